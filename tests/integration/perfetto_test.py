#!/usr/bin/env python3
"""Perfetto's trace processor, which ui.perfetto.dev has too, reads what `lockstep run --trace` leaves, and misses nothing.

The package is on PyPI; the processor itself it fetches from Google's storage, or it is the file in TRACE_PROCESSOR. Without
either this is skipped, and trace_test.cc alone holds the file to the format.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from python_packages import python_with

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ROOT / "build/release")
VERSION = "0.59.1"
SKIPPED = 77

JOB = {
    "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "digits"},
    "spec": {"processesPerReplica": 2, "devices": {"type": "CPU"},
             "trainer": {"data": {"format": "Digits", "samples": 1280, "testSamples": 64}, "batchSize": 64, "epochs": 1,
                         "model": {"layers": [{"type": "Dense", "units": 64}, {"type": "Dense", "units": 10}]}}}}
# [[[process, thread, name, how often] …], [what was wrong …]].
READ = """
import json, sys
from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
processor = TraceProcessor(trace=sys.argv[1], config=TraceProcessorConfig(bin_path=sys.argv[2]))
slices = processor.query('''
    select process.name as process, thread.name as thread, slice.name as name, count(1) as times
    from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
    group by 1, 2, 3''')
found = [[row.process, row.thread, row.name, row.times] for row in slices]
errors = [row.name for row in processor.query("select name from stats where severity in ('error', 'data_loss') and value > 0")]
processor.close()
print(json.dumps([found, errors]))
"""
FETCH = """
from perfetto.prebuilts.manifests.trace_processor_shell import TRACE_PROCESSOR_SHELL_MANIFEST
from perfetto.prebuilts.perfetto_prebuilts import get_perfetto_prebuilt
print(get_perfetto_prebuilt(TRACE_PROCESSOR_SHELL_MANIFEST))
"""


def processor(python: pathlib.Path) -> str | None:
    """Its path; None where it cannot be had."""
    if path := os.environ.get("TRACE_PROCESSOR"):
        return path
    try:
        fetched = subprocess.run([python, "-c", FETCH], timeout=120, text=True, capture_output=True)
    except subprocess.TimeoutExpired:  # a network that says nothing
        return None
    return fetched.stdout.splitlines()[-1] if fetched.returncode == 0 else None


def bars_of(trace: dict) -> dict:
    """What the file says, counted in the same way."""
    names = {}
    for event in trace["traceEvents"]:
        if event["name"] == "process_name":
            names[event["pid"]] = event["args"]["name"]
        if event["name"] == "thread_name":
            names[event["pid"], event["tid"]] = event["args"]["name"]
    return collections.Counter((names[event["pid"]], names[event["pid"], event["tid"]], event["name"])
                               for event in trace["traceEvents"] if event["ph"] == "X")


class PerfettoTest(unittest.TestCase):
    def test_it_reads_a_trace_and_misses_nothing(self):
        with tempfile.TemporaryDirectory(prefix="lockstep-test-") as folder:
            manifest = pathlib.Path(folder) / "job.json"
            manifest.write_text(json.dumps(JOB))
            run = pathlib.Path(folder) / "run"
            subprocess.run([BUILD / "bin/lockstep", "run", "-q", manifest, "--run-dir", run, "--trace", "5"], check=True, timeout=60,
                           stdout=subprocess.DEVNULL)
            trace = json.loads((run / "trace.json").read_text())
            read = subprocess.run([PYTHON, "-c", READ, run / "trace.json", PROCESSOR], timeout=100, text=True, capture_output=True)
        self.assertEqual(read.returncode, 0, read.stderr)
        found, errors = json.loads(read.stdout.splitlines()[-1])
        self.assertEqual(errors, [])
        self.assertEqual({(process, thread, name): times for process, thread, name, times in found}, dict(bars_of(trace)))


if __name__ == "__main__":
    PYTHON = python_with("perfetto", VERSION)
    PROCESSOR = processor(PYTHON) if PYTHON else None
    if PROCESSOR is None:
        print("skipped: Perfetto or its trace processor cannot be fetched")
        sys.exit(SKIPPED)
    unittest.main()
