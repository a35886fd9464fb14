#!/usr/bin/env python3
"""What `./dev package` makes: package_test.py BUILD_FOLDER. Skipped (77) without Debian's tools."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop(1))
# A package of the CUDA preset has its library as well.
PROGRAMS = ["kubectl-lockstep", "lockstep", "lockstep-pmix", "lockstep-trainer"]


def run(*command, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=200, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="package-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", cls.folder)
        cls.package, = cls.folder.glob("*.deb")
        cls.archive, = cls.folder.glob("*.tar.zst")
        cls.root = cls.folder / "root"
        run("dpkg-deb", "-x", cls.package, cls.root)
        cls.bin = cls.root / "usr/bin"

    def pages(self) -> list[pathlib.Path]:
        return sorted((self.root / "usr/share/man/man1").glob("lockstep*.1"))

    def test_the_programs_are_those_of_the_build(self):
        self.assertEqual(sorted(path.name for path in self.bin.iterdir()), PROGRAMS)
        self.assertEqual(run(self.bin / "lockstep", "version"), run(BUILD / "bin/lockstep", "version"))
        self.assertEqual(os.readlink(self.bin / "kubectl-lockstep"), "lockstep")

    def test_what_is_unpacked_trains(self):
        manifest = self.folder / "job.json"
        manifest.write_text(json.dumps({
            "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "packed"},
            "spec": {"processesPerReplica": 2, "devices": {"type": "CPU"},
                     "trainer": {"data": {"format": "Digits", "samples": 512},
                                 "model": {"layers": [{"type": "Dense", "units": 10}],
                                           "loss": "SparseCategoricalCrossentropy"},
                                 "optimizer": {"type": "SGD", "learningRate": 0.1},
                                 "batchSize": 64, "epochs": 1}}}), encoding="utf-8")
        run(self.bin / "lockstep", "run", manifest, "--run-dir", self.folder / "run", stdin=subprocess.DEVNULL)
        self.assertEqual(json.loads((self.folder / "run/status.json").read_text(encoding="utf-8"))["phase"],
                         "Succeeded")

    def test_its_dependencies_are_packages(self):
        self.assertEqual(run("dpkg-deb", "-f", self.package, "Package"), "lockstep\n")
        depends = run("dpkg-deb", "-f", self.package, "Depends")
        for library in ["libc6 (>= ", "libssl3", "libdnnl2", "libgloo0", "libpmix2"]:
            self.assertIn(library, depends)

    def test_the_archive_has_the_same_files(self):
        def files(root: pathlib.Path) -> set[str]:
            return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}

        unpacked = self.folder / "archive"
        unpacked.mkdir()
        run("cmake", "-E", "tar", "xf", self.archive, cwd=unpacked)
        top, = unpacked.iterdir()
        self.assertEqual(files(top), files(self.root / "usr"))

    def test_every_command_has_a_page(self):
        help_text = run(self.bin / "lockstep", "--help")
        commands = re.findall(r"^  ([a-z]+) ", help_text[help_text.index("Subcommands:"):], re.MULTILINE)
        self.assertIn("run", commands)
        self.assertEqual({page.stem for page in self.pages()}, {"lockstep"} | {f"lockstep-{name}" for name in commands})

    def test_the_pages_have_what_the_help_has(self):
        text = (self.root / "usr/share/man/man1/lockstep-run.1").read_text(encoding="utf-8")
        options = set(re.findall(r"--[a-z-]+", run(self.bin / "lockstep", "run", "--help")))
        self.assertGreater(len(options), 10)
        for option in options:
            self.assertIn(option.replace("-", "\\-"), text)

    @unittest.skipUnless(shutil.which("groff"), "needs groff")
    def test_the_pages_are_well_formed(self):
        self.assertTrue(self.pages())
        for page in self.pages():
            done = subprocess.run(["groff", "-man", "-ww", "-z", str(page)], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""), page)


if __name__ == "__main__":
    missing = [tool for tool in ["dpkg-deb", "dpkg-shlibdeps", "file"] if shutil.which(tool) is None]
    if missing:
        print("skipped: needs " + ", ".join(missing))
        sys.exit(77)
    unittest.main()
