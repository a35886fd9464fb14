"""The launcher for other images starts in all of them: it needs nothing there, and leaves their programs alone."""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import unittest

import bare_roots
import fixture
import image

LIBRARY = f"{image.BUNDLE}/lib/"


def versions(file: pathlib.Path) -> tuple:
    """What `file` wants of other libraries, {(library, version)}, and the versions that it defines."""
    text = subprocess.run(["objdump", "-p", str(file)], check=True, capture_output=True, text=True).stdout
    wanted, library = set(), ""
    for line in text.partition("Version References:")[2].splitlines():
        if match := re.match(r"\s+required from (\S+):", line):
            library = match.group(1)
        elif match := re.match(r"\s+0x[0-9a-f]+ 0x[0-9a-f]+ \d+ (\S+)", line):
            wanted.add((library, match.group(1)))
    defined = text.partition("Version definitions:")[2].partition("Version References:")[0]
    return wanted, set(re.findall(r"^\d+ 0x[0-9a-f]+ 0x[0-9a-f]+ (\S+)", defined, re.MULTILINE))


def job(command: list, framework: str = "None") -> str:
    return json.dumps({"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "bare"}, "spec": {
        "processesPerReplica": 2, "devices": {"type": "CPU"}, "program": {"command": command, "framework": framework}}})


@unittest.skipUnless(os.geteuid() == 0, "only root changes its root")
class BundleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.bundle = cls.folder / "bundle"
        cls.packages = image.make_bundle(cls.bundle, fixture.bin_folder())

    def root(self, fill) -> pathlib.Path:
        """A new image that `fill` has filled."""
        root = self.folder / self.id().rpartition(".")[2]
        root.mkdir()
        fill(root)
        return root

    def run_in(self, root: pathlib.Path, *command: str, **options: str) -> str:
        result = bare_roots.run(root, self.bundle, *command, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def check_runs_jobs(self, root: pathlib.Path, command: list, **environment: str) -> None:
        self.assertRegex(self.run_in(root, "bin/lockstep", "version", **environment), r"^lockstep [0-9.]+\n$")
        # (MPI's has a server beside it.)
        for framework in ("None", "MPI"):
            printed = self.run_in(root, "bin/lockstep", "run", "-", "--run-dir", f"/tmp/{framework}", text=job(command, framework),
                                  **environment)
            self.assertEqual(sorted(printed.splitlines()), [f"[rank {rank}] rank {rank} of 2" for rank in (0, 1)])

    def test_it_asks_only_for_libraries_and_symbols_that_it_brings(self):
        libraries = {path.name: path for path in (self.bundle / "lib").iterdir()}
        for file in (*(self.bundle / "bin" / name for name in image.BUNDLED), *libraries.values()):
            text = subprocess.run(["objdump", "-p", str(file)], check=True, capture_output=True, text=True).stdout
            self.assertLessEqual(set(re.findall(r"NEEDED\s+(\S+)", text)), set(libraries), file.name)
            for library, version in versions(file)[0]:
                self.assertIn(version, versions(libraries[library])[1], f"{file.name} wants it of {library}")

    def test_what_was_compiled_asks_for_no_glibc_newer_than_2_35(self):
        for name in image.BUNDLED:
            found = [tuple(map(int, match.groups())) for library, version in versions(fixture.bin_folder() / name)[0]
                     if (match := re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version))]
            self.assertTrue(found)
            self.assertLessEqual(max(found), (2, 35), name)

    def test_every_library_comes_with_its_licence(self):
        self.assertEqual({library.name for library in self.packages}, {path.name for path in (self.bundle / "lib").iterdir()})
        for package in self.packages.values():
            self.assertGreater((self.bundle / "share/doc" / package.split(":")[0] / "copyright").stat().st_size, 100, package)

    def test_in_an_image_without_a_c_library(self):
        root = self.root(bare_roots.nothing)
        self.check_runs_jobs(root, ["rank"])

    def test_in_an_image_with_musl(self):
        root = self.root(bare_roots.musl)
        self.check_runs_jobs(root, ["rank"])

    def check_debian(self, release: str) -> None:
        root = bare_roots.debian(release)
        # Its own libraries are not taken, not even where a variable of the image leads to them.
        own = "/usr/lib/x86_64-linux-gnu"
        self.check_runs_jobs(root, ["sh", "-c", "echo rank $RANK of $WORLD_SIZE; grep /opt/lockstep/ /proc/self/maps; true"],
                             LD_LIBRARY_PATH=own)
        loaded = self.run_in(root, f"lib/{image.LOADER}", "--list", f"{image.BUNDLE}/bin/lockstep", LD_LIBRARY_PATH=own)
        paths = re.findall(r"(/\S+) \(0x", loaded)
        self.assertGreater(len(paths), 10, loaded)
        self.assertEqual([path for path in paths if not path.startswith(LIBRARY)], [])

    def test_in_debian_bullseye_with_glibc_2_31(self):
        self.check_debian("bullseye")

    def test_in_debian_bookworm_with_glibc_2_36(self):
        self.check_debian("bookworm")

    def test_in_debian_trixie_with_glibc_2_41(self):
        self.check_debian("trixie")

    def test_names_of_hosts_are_found_as_the_image_says(self):
        def fill(root):
            (root / "etc").mkdir()
            (root / "etc/hosts").write_text("127.0.0.1 peer.test\n")
            (root / "etc/nsswitch.conf").write_text("hosts: mymachines files dns\n")  # the first is not there

        root = self.root(fill)
        with socket.create_server(("127.0.0.1", 0)) as peer:
            address = f"peer.test:{peer.getsockname()[1]}"
            findings = json.loads(bare_roots.run(root, self.bundle, "bin/lockstep", "doctor", "--peer", address, "-o", "json").stdout)
        self.assertIn(("Fine", f"peer {address}"), [(finding["level"], finding["about"]) for finding in findings])

    def test_the_driver_is_found_where_the_image_has_it(self):
        driver = self.folder / "libnvidia-ml.so.1"
        # As NVIDIA's, it asks for libraries that glibc once had.
        needed = [f"-l:{name}" for name in image.ONCE_OF_GLIBC]
        subprocess.run(["gcc", "-shared", "-fPIC", str(bare_roots.HERE / "driver.c"), "-o", str(driver), "-Wl,--no-as-needed", *needed],
                       check=True)
        places = {"usr/lib/x86_64-linux-gnu": {}, "usr/local/nvidia/lib64": {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}, "cached": {}}
        for place, environment in places.items():
            with self.subTest(place=place):
                root = self.folder / f"driver-{place.rpartition('/')[2]}"
                (root / place).mkdir(parents=True)
                shutil.copyfile(driver, root / place / driver.name)
                if place == "cached":
                    (root / "etc").mkdir()
                    (root / "etc/ld.so.conf").write_text(f"/{place}\n")
                    subprocess.run(["ldconfig", "-r", str(root)], check=True)
                findings = bare_roots.run(root, self.bundle, "bin/lockstep", "doctor", **environment).stdout
                self.assertIn("the driver of the test", findings)


if __name__ == "__main__":
    unittest.main()
