#!/usr/bin/env python3
"""What python/lockstep tells reaches the launcher's status; without a launcher it tells nobody."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ROOT / "build/release")

TRAINS = """
import subprocess, sys
import lockstep
lockstep.resumed(10)
for step in range(11, 41):
    lockstep.report(step, loss=lambda: 1 / step, samples=64, epoch=1, total_steps=40)
lockstep.phase("Evaluating")
lockstep.evaluation(0.5, accuracy=0.75, split="test")
lockstep.checkpoint(40, "/tmp/somewhere", seconds=0.1)
lockstep.event("step", step=40, epoch=1, loss=float("nan"))
# The number of the pipe comes down to a child, the pipe does not; what else has that number there is not written to.
code = "import lockstep; lockstep.report(99)"
with open(sys.argv[1], "w+") as file:
    subprocess.run(["sh", "-c", "exec python3 -c \\"$0\\" 3<>" + sys.argv[1], code], check=True)
"""


class PythonPackageTest(unittest.TestCase):
    def setUp(self):
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}

    def test_what_it_tells_is_the_jobs_progress(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "job.json").write_text(json.dumps({
                "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "test"},
                "spec": {"processesPerReplica": 1, "devices": {"type": "CPU"},
                         "program": {"command": ["python3", "-c", TRAINS, str(folder / "other")]}}}))
            run = subprocess.run([BUILD / "bin/lockstep", "run", folder / "job.json", "--run-dir", folder / "run"],
                                 env=self.environment, capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(run.returncode, 0, run.stderr)
            progress = json.loads((folder / "run/status.json").read_text())["progress"]
            self.assertEqual((progress["step"], progress["totalSteps"], progress["epoch"]), (40, 40, 1))
            self.assertEqual(float(progress["accuracy"]), 0.75)
            steps = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
            self.assertIn(40, [step.get("step") for step in steps])
            self.assertEqual((folder / "other").read_text(), "")

    def test_without_a_launcher_it_tells_nobody(self):
        self.environment.pop("LOCKSTEP_EVENTS_FD", None)
        run = subprocess.run([sys.executable, "-c", "import lockstep; lockstep.report(1, loss=2); lockstep.phase('Training')"],
                             env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
