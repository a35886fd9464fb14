"""What the benchmarks share: manifests, runs of the real binaries, and one table."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import urllib.request


@dataclasses.dataclass
class Row:
    """One line of the table. `ratio` compares `value` with `reference`; `wanted` says what it should be."""

    what: str
    value: str
    reference: str = ""
    ratio: str = ""
    wanted: str = ""


def print_table(rows: list[Row]) -> None:
    header = Row("what", "here", "beside", "ratio", "wanted")
    cells = [dataclasses.astuple(row) for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for number, row in enumerate(cells):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def manifest(name: str, spec: dict) -> str:
    return json.dumps({"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
                       "spec": spec})


def mnist_spec(processes: int, data: str, precision: str = "Float32", epochs: int = 2, **trainer) -> dict:
    """The MNIST job: 784-256-256-10, Adam, global batch 256."""
    source = {"format": "IDX", "path": data} if data else {"format": "Digits"}
    return {
        "processesPerReplica": processes,
        "trainer": {
            "data": {**source, "validationSamples": 10000},
            "model": {"layers": [{"type": "Dense", "units": 256, "activation": "ReLU"},
                                 {"type": "Dense", "units": 256, "activation": "ReLU"},
                                 {"type": "Dense", "units": 10}],
                      "loss": "SparseCategoricalCrossentropy", "metrics": ["Accuracy"]},
            "optimizer": {"type": "Adam", "learningRate": 0.001},
            "batchSize": 256, "epochs": epochs, "seed": 1, "precision": precision, **trainer,
        },
    }


def program_spec(processes: int, *command: str, **policy) -> dict:
    return {"processesPerReplica": processes, "devices": {"type": "CPU"}, "program": {"command": list(command)},
            "runPolicy": policy}


class Run:
    """One `lockstep run` of a spec, or of a whole manifest's text, in a folder of its own; a context manager that leaves
    no process behind."""

    def __init__(self, binaries: pathlib.Path, spec: dict | str, quiet: bool = True, threads: int = 0):
        self.folder = tempfile.TemporaryDirectory(prefix="lockstep-bench-")
        self.path = pathlib.Path(self.folder.name)
        (self.path / "job.yaml").write_text(spec if isinstance(spec, str) else manifest("bench", spec))
        command = [str(binaries / "lockstep"), "run", "--run-dir", str(self.path / "run"), str(self.path / "job.yaml")]
        environment = {**os.environ, "NO_COLOR": "1", **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
        self.started = time.perf_counter()
        self.process = subprocess.Popen(command + (["-q"] if quiet else []), stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Asked to stop first: then its processes are gone too when the next run begins.
        for end in (self.process.terminate, self.process.terminate, self.process.kill):
            if self.process.poll() is None:
                end()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(timeout=10)
        self.process.stdout.close()
        self.folder.cleanup()

    def finish(self, timeout: float = 120) -> tuple[str, float]:
        """Waits for success; returns the output and the seconds from start to end."""
        output, _ = self.process.communicate(timeout=timeout)
        seconds = time.perf_counter() - self.started
        if self.process.returncode != 0:
            raise RuntimeError(f"exit code {self.process.returncode}:\n{output}")
        return output, seconds

    def wait_for_file(self, name: str, timeout: float = 10) -> str:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            path = self.path / "run" / name
            if path.exists():
                return path.read_text().strip()
            time.sleep(0.001)
        raise TimeoutError(f"no {name} after {timeout} s")

    def status(self) -> dict:
        with urllib.request.urlopen(f"http://{self.wait_for_file('http-address')}/status", timeout=5) as answer:
            return json.load(answer)

    def metrics(self) -> dict[str, float]:
        """Each series, as it is written, and its value."""
        with urllib.request.urlopen(f"http://{self.wait_for_file('http-address')}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return {series: float(value) for series, value in (line.rsplit(" ", 1) for line in lines if line[:1] != "#")}


def last_rate(output: str) -> float:
    """samples/s of the last epoch."""
    return float(re.findall(r"([0-9]+) samples/s", output)[-1])


def test_accuracy(output: str) -> float:
    return float(re.search(r"test: .*accuracy ([0-9.]+)", output).group(1))
