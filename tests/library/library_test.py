#!/usr/bin/env python3
"""A user's project, built against an installed Lockstep and run by it: library_test.py BUILD_FOLDER."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(sys.argv.pop(1))


def run(*command) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class LibraryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="library-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.installed = cls.folder / "installed"
        run("cmake", "--install", BUILD, "--prefix", cls.installed)
        run("cmake", "-S", HERE, "-B", cls.folder / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={cls.installed}")
        run("cmake", "--build", cls.folder / "build")

    def right(self, processes: int) -> int:
        """Test samples that the custom loop gets right."""
        manifest = self.folder / f"job-{processes}.json"
        manifest.write_text(json.dumps({
            "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "custom-loop"},
            "spec": {"processesPerReplica": processes, "devices": {"type": "CPU"},
                     "program": {"command": [str(self.folder / "build" / "custom_loop")]}}}), encoding="utf-8")
        out = run(self.installed / "bin" / "lockstep", "run", manifest, "--run-dir", self.folder / f"run-{processes}")
        return int(re.search(r"(\d+) of 2000 right", out)[1])

    def test_a_custom_loop_learns_the_same_on_one_replica_and_on_four(self):
        one = self.right(1)
        self.assertGreater(one, 1600)
        # The sums of four are rounded in another order.
        self.assertLess(abs(self.right(4) - one), 10)

    def test_the_installed_programs_train(self):
        out = run(self.installed / "bin" / "lockstep", "run", HERE.parent.parent / "manifests/examples/digits.yaml",
                  "--run-dir", self.folder / "digits")
        self.assertIn("test: loss", out)

    def test_the_loop_has_at_most_sixty_lines_and_stands_in_the_docs(self):
        code = (HERE / "custom_loop.cc").read_text(encoding="utf-8")
        self.assertLessEqual(code.count("\n"), 60)
        self.assertIn(code, (HERE.parent.parent / "docs/library.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
