#!/usr/bin/env python3
"""TensorBoard itself reads what a run leaves, with the values that metrics.jsonl has."""

import fcntl
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ROOT / "build/release")
VERSION = "2.21.0"
SKIPPED = 77

JOB = {
    "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "digits"},
    "spec": {"processesPerReplica": 2, "devices": {"type": "CPU"},
             "trainer": {"data": {"format": "Digits", "samples": 640, "testSamples": 64}, "batchSize": 64, "epochs": 2,
                         "model": {"layers": [{"type": "Dense", "units": 10}], "metrics": ["Accuracy"]}}}}
# Every scalar of a folder: {tag: [[step, value] …]}.
READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""


def python_with_tensorboard() -> pathlib.Path | None:
    """A virtual environment's, made once and kept; None where it cannot be installed."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "lockstep"
    cache.mkdir(parents=True, exist_ok=True)
    environment = cache / f"tensorboard-{VERSION}"
    with open(f"{environment}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = environment / "complete"
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
            # (setuptools before 81: TensorBoard still imports pkg_resources.)
            install = [environment / "bin/pip", "install", "-q", "--disable-pip-version-check",
                       f"tensorboard=={VERSION}", "setuptools<81"]
            if subprocess.run(install, timeout=240).returncode != 0:
                return None
            done.touch()
    return environment / "bin/python3"


class TensorboardTest(unittest.TestCase):
    def test_it_reads_the_scalars_of_a_run(self):
        with tempfile.TemporaryDirectory(prefix="lockstep-test-") as folder:
            manifest = pathlib.Path(folder) / "job.json"
            manifest.write_text(json.dumps(JOB))
            run = pathlib.Path(folder) / "run"
            subprocess.run([BUILD / "bin/lockstep", "run", "-q", manifest, "--run-dir", run], check=True, timeout=60,
                           stdout=subprocess.DEVNULL)
            metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            read = subprocess.run([PYTHON, "-c", READ, run / "tensorboard"], check=True, timeout=60, text=True,
                                  capture_output=True)
        scalars = json.loads(read.stdout)
        self.assertEqual(metrics[-1]["step"], 20)
        for tag, key in (("loss/batch", "loss"), ("learning_rate", "learningRate"),
                         ("samples_per_second", "samplesPerSecond")):
            wanted = [(line["step"], line[key]) for line in metrics if key in line]
            self.assertEqual([step for step, _ in scalars[tag]], [step for step, _ in wanted], tag)
            for (_, value), (_, expected) in zip(scalars[tag], wanted, strict=True):
                self.assertAlmostEqual(value / expected, 1, delta=1e-3)  # (rounded there)
        self.assertEqual([step for step, _ in scalars["accuracy/test"]], [20])
        self.assertIn("loss/test", scalars)


if __name__ == "__main__":
    PYTHON = python_with_tensorboard()
    if PYTHON is None:
        print("skipped: TensorBoard could not be installed from PyPI")
        sys.exit(SKIPPED)
    unittest.main()
