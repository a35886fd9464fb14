"""How fast a job trains, beside the limit of the processor's matrix products and beside the peers."""

import pathlib
import re
import statistics
import subprocess
import sys
import time

import harness
from harness import Row

# Measured elsewhere (shared machine, AMD EPYC with AVX-512, 2 cores; images/s of the second epoch): stand-ins where
# the peer is not installed, and marked as such.
RECORDED = {"pytorch": 44975, "pytorch-ddp": 30339, "tensorflow": 16599, "tensorflow-seconds": 16.3}


class Peers:
    """The peers' figures: measured in this run, or the recorded ones."""

    def __init__(self, python: str, data: str):
        self.python = python
        self.data = data
        self.scripts = pathlib.Path(__file__).parent / "peers"

    def _run(self, command: list[str]) -> tuple[float, float]:
        start = time.perf_counter()
        output = subprocess.run(command + (["--data", self.data] if self.data else []), check=True, text=True,
                                capture_output=True, timeout=600).stdout
        return float(re.search(r"images/s ([0-9]+)", output).group(1)), time.perf_counter() - start

    def figure(self, name: str) -> tuple[float, str]:
        """images/s, and how it is to be called."""
        if not self.python:
            return RECORDED[name], "recorded elsewhere"
        commands = {
            "pytorch": [self.python, f"{self.scripts}/pytorch_mnist.py"],
            "pytorch-ddp": [self.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
                            f"{self.scripts}/pytorch_mnist.py"],
            "tensorflow": [self.python, f"{self.scripts}/tensorflow_mnist.py", "--devices", "4"],
        }
        rate, seconds = self._run(commands[name])
        if name == "tensorflow":
            self.tensorflow_seconds = seconds
        return rate, "this run"

    def whole_program(self) -> tuple[float, str]:
        if not self.python:
            return RECORDED["tensorflow-seconds"], "recorded elsewhere"
        return self.tensorflow_seconds, "this run"


def rate(binaries: pathlib.Path, data: str, processes: int, precision: str = "Float32", repeats: int = 5) -> float:
    """Best images/s of several runs' last epochs: the machine's other tenants only ever take away. A core a process."""
    best = 0.0
    for _ in range(repeats):
        with harness.Run(binaries, harness.mnist_spec(processes, data, precision, epochs=3), threads=1) as run:
            best = max(best, harness.last_rate(run.finish()[0]))
    return best


def measure(binaries: pathlib.Path, data: str, peers: Peers, limit: float | None) -> list[Row]:
    """`limit`: images/s of the bare matrix products on one core, where they were measured."""
    rows = []

    def row(what: str, value: float, reference: float, source: str, wanted: float) -> None:
        rows.append(Row(what, f"{value:,.0f} images/s", f"{reference:,.0f} ({source})", f"{value / reference:.2f}",
                        f">= {wanted}"))

    one = rate(binaries, data, 1)
    two = rate(binaries, data, 2)
    four = rate(binaries, data, 4)
    if limit:
        row("fp32, 1 process on 1 core; oneDNN's bare products", one, limit, "this run", 0.85)
    pytorch, source = peers.figure("pytorch")
    row("fp32, 1 process; PyTorch eager, 1 thread", one, pytorch, source, 3)
    row("fp32, 2 processes on 2 cores; 1 process", two, one, "this run", 1.6)
    ddp, source = peers.figure("pytorch-ddp")
    row("fp32, 2 processes; PyTorch DDP over Gloo, 2 processes", two, ddp, source, 6)
    tensorflow, source = peers.figure("tensorflow")
    row("fp32, 4 processes; TensorFlow MirroredStrategy, 4 devices", four, tensorflow, source, 8)
    try:
        bfloat16 = rate(binaries, data, 1, "BFloat16")
        row("BFloat16, 1 process; fp32", bfloat16, one, "this run", 1.6)
    except RuntimeError as error:
        print(f"BFloat16: not here: {error}", file=sys.stderr)

    seconds = []
    for _ in range(5):
        with harness.Run(binaries, harness.mnist_spec(4, data)) as run:
            seconds.append(run.finish()[1])
    tensorflow_seconds, source = peers.whole_program()
    rows.append(Row("whole program, 4 processes, 2 epochs; TensorFlow", f"{statistics.median(seconds):.2f} s",
                    f"{tensorflow_seconds:.1f} s ({source})", f"{statistics.median(seconds) / tensorflow_seconds:.3f}",
                    "<= 1.5 s"))
    return rows
