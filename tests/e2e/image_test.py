"""The images hold what the programs need and nothing else."""

import pathlib
import tempfile
import unittest

import fixture
import image


class ImageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.whole, cls.operator = cls.folder / "whole", cls.folder / "operator"
        image.make_rootfs(cls.whole, fixture.bin_folder(), ["lockstep", "lockstep-trainer"])
        image.make_rootfs(cls.operator, fixture.bin_folder(), ["lockstep"])

    def test_with_the_trainer_it_has_at_most_90_megabytes_and_the_operator_alone_30(self):
        self.assertLessEqual(image.size_of(self.whole), 90e6)
        self.assertLessEqual(image.size_of(self.operator), 30e6)

    def test_has_no_shell_and_nothing_that_changes_who_one_is(self):
        for path in self.whole.rglob("*"):
            self.assertFalse(path.name in ("sh", "bash", "dash", "busybox", "apt", "dpkg") and path.is_file(), path)
            if not path.is_symlink():
                self.assertEqual(path.stat().st_mode & 0o6000, 0, path)
                if path.is_file():
                    self.assertEqual(path.stat().st_mode & 0o022, 0, f"{path} is writable by others")

    def test_every_library_comes_with_its_licence_and_version(self):
        packages = sorted(path.name for path in (self.whole / "var/lib/dpkg/status.d").iterdir())
        self.assertIn("libdnnl2", packages)
        self.assertEqual(packages, sorted(path.name for path in (self.whole / "usr/share/doc").iterdir()))
        for package in packages:
            self.assertGreater((self.whole / "usr/share/doc" / package / "copyright").stat().st_size, 100)

    def test_the_same_files_give_the_same_archive(self):
        archives = []
        for name in ("one", "two"):
            archives.append(self.folder / f"{name}.tar")
            image.make_archive(archives[-1], self.operator, "lockstep.dev/x:1", ["/usr/bin/lockstep"])
        self.assertEqual(archives[0].read_bytes(), archives[1].read_bytes())

    def test_its_launcher_is_one_that_other_images_can_have(self):
        for rootfs in (self.whole, self.operator):
            self.assertEqual(str((rootfs / "usr/bin/lockstep").readlink()), "../.." + image.BUNDLE + "/bin/lockstep")
            self.assertTrue((rootfs / image.BUNDLE[1:] / "lib" / image.LOADER).is_file())


if __name__ == "__main__":
    unittest.main()
