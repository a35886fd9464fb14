#!/usr/bin/env python3
"""TensorBoard itself reads what a run leaves, with the values that metrics.jsonl has."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from python_packages import python_with

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ROOT / "build/release")
VERSION = "2.21.0"
SKIPPED = 77

JOB = {
    "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "digits"},
    "spec": {"processesPerReplica": 2, "devices": {"type": "CPU"},
             "trainer": {"data": {"format": "Digits", "samples": 640, "testSamples": 64}, "batchSize": 64, "epochs": 2,
                         "model": {"layers": [{"type": "Dense", "units": 10}], "metrics": ["Accuracy"]}}}}
# Every scalar of a folder: {tag: [[step, value] …]}; and what the Graphs tab asks its server for, which draws it from that:
# {node: [type, inputs, device, shapes of its outputs]}.
READ = """
import json, sys
from google.protobuf import text_format
from tensorboard import context
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.graph.graphs_plugin import GraphsPlugin

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
scalars = {tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
multiplexer = EventMultiplexer().AddRunsFromDirectory(sys.argv[1])
multiplexer.Reload()
provider = MultiplexerDataProvider(multiplexer, sys.argv[1])
plugin = GraphsPlugin(TBContext(logdir=sys.argv[1], data_provider=provider, multiplexer=multiplexer))
text, kind = plugin.graph_impl(context.RequestContext(), run=".", tag=None, is_conceptual=False, experiment="")
graph = text_format.Parse(text, GraphDef())
nodes = {node.name: [node.op, list(node.input), node.device,
                     [[dim.size for dim in shape.dim] for shape in node.attr["_output_shapes"].list.shape]]
         for node in graph.node}
print(json.dumps([scalars, nodes]))
"""


class TensorboardTest(unittest.TestCase):
    def test_it_reads_the_scalars_and_the_graph_of_a_run(self):
        with tempfile.TemporaryDirectory(prefix="lockstep-test-") as folder:
            manifest = pathlib.Path(folder) / "job.json"
            manifest.write_text(json.dumps(JOB))
            run = pathlib.Path(folder) / "run"
            subprocess.run([BUILD / "bin/lockstep", "run", "-q", manifest, "--run-dir", run], check=True, timeout=60,
                           stdout=subprocess.DEVNULL)
            metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            read = subprocess.run([PYTHON, "-c", READ, run / "tensorboard"], check=True, timeout=60, text=True,
                                  capture_output=True)
        scalars, nodes = json.loads(read.stdout)
        self.assertEqual(metrics[-1]["step"], 20)
        for tag, key in (("loss/batch", "loss"), ("learning_rate", "learningRate"),
                         ("samples_per_second", "samplesPerSecond")):
            wanted = [(line["step"], line[key]) for line in metrics if key in line]
            self.assertEqual([step for step, _ in scalars[tag]], [step for step, _ in wanted], tag)
            for (_, value), (_, expected) in zip(scalars[tag], wanted, strict=True):
                self.assertAlmostEqual(value / expected, 1, delta=1e-3)  # (rounded there)
        self.assertEqual([step for step, _ in scalars["accuracy/test"]], [20])
        self.assertIn("loss/test", scalars)
        self.assertEqual(set(nodes), {f"replica_{rank}/{name}" for rank in (0, 1) for name in ("inputs", "dense")})
        for rank in (0, 1):
            device = f"/job:worker/replica:0/task:{rank}/device:CPU:0"
            self.assertEqual(nodes[f"replica_{rank}/dense"], ["Dense", [f"replica_{rank}/inputs"], device, [[-1, 10]]])


if __name__ == "__main__":
    # (setuptools before 81: TensorBoard still imports pkg_resources.)
    PYTHON = python_with("tensorboard", VERSION, "setuptools<81")
    if PYTHON is None:
        print("skipped: TensorBoard could not be installed from PyPI")
        sys.exit(SKIPPED)
    unittest.main()
