"""How fast the CIFAR-10 models of manifests/examples train on one core, beside PyTorch."""

import contextlib
import os
import pathlib
import random
import re
import statistics
import subprocess
import tempfile
import time

import harness
from harness import Row

ROOT = pathlib.Path(__file__).resolve().parents[2]
CIFAR10 = ROOT.parent / "shared/data/cifar10"
BATCH = 128
RECORD = 1 + 3 * 32 * 32

# PyTorch eager's images/s, measured elsewhere (shared machine, AMD EPYC with AVX-512, one thread).
RECORDED = {"towers": 274, "resnet20": 396}
MANIFESTS = {"towers": "cifar10-towers", "resnet20": "resnet20-cifar10"}


@contextlib.contextmanager
def some_cifar10():
    """A folder with 10 steps of CIFAR-10, or of noise where it is not there."""
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        for name, count in (("data_batch_1.bin", 10 * BATCH), ("test_batch.bin", BATCH)):
            if (CIFAR10 / name).exists():
                with open(CIFAR10 / name, "rb") as file:
                    records = file.read(count * RECORD)
            else:
                records = b"".join(bytes([i % 10]) + random.Random(i).randbytes(RECORD - 1) for i in range(count))
            (pathlib.Path(folder) / name).write_bytes(records)
        yield folder


def example(model: str, data: str, processes: int = 1, strategy: str = "{type: OneDevice}", epochs: int = 1000) -> str:
    """The example as it is, but for where it computes and for how long."""
    text = (ROOT / f"manifests/examples/{MANIFESTS[model]}.yaml").read_text()
    text = re.sub(r"\n  strategy: .*", "", text)
    values = {"processesPerReplica": f"{processes}\n  strategy: {strategy}", "devices": "{type: CPU}", "path": data,
              "validationSamples": "0", "batchSize": str(BATCH), "epochs": str(epochs)}
    for field, value in values.items():
        text = re.sub(rf"(\n +{field}: ).*", lambda match, value=value: match[1] + value, text, count=1)
    return text


def processor_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def next_step(job: harness.Run) -> int:
    """Waits for a step to end, and returns its number."""
    before = job.status()["progress"]["step"]
    while (now := job.status()["progress"]["step"]) == before:
        time.sleep(0.01)
    return now


def rate(binaries: pathlib.Path, manifest: str, seconds: float = 4) -> float:
    """images in a second of the processor time of a job's one process, with the thread that prepares its batches:
    whoever else computes on the machine takes little of that. On an idle core it is images/s."""
    with harness.Run(binaries, manifest, threads=1) as job:
        while not job.status().get("ready"):
            time.sleep(0.05)
        pid = job.status()["ranks"][0]["pid"]
        first, start = next_step(job), processor_seconds(pid)
        while processor_seconds(pid) < start + seconds:
            time.sleep(0.05)
        steps = next_step(job) - first
        return steps * BATCH / (processor_seconds(pid) - start)


def pytorch_rate(python: str, model: str) -> float:
    command = [python, str(pathlib.Path(__file__).parent / "peers/pytorch_cifar10.py"), model]
    output = subprocess.run(command, check=True, text=True, capture_output=True, timeout=600).stdout
    return float(re.search(r"images/s ([0-9]+)", output).group(1))


def beside_pytorch(binaries: pathlib.Path, python: str, data: str, model: str, wanted: float, repeats: int) -> Row:
    """By turns; the ratio is the median of each pair's."""
    here, there = [], []
    for _ in range(repeats):
        here.append(rate(binaries, example(model, data)))
        there.append(pytorch_rate(python, model) if python else RECORDED[model])
    ratios = sorted(a / b for a, b in zip(here, there, strict=True))
    return Row(f"{MANIFESTS[model]}, 1 process on 1 core; PyTorch eager, 1 thread",
               f"{statistics.median(here):,.0f} images/s",
               f"{statistics.median(there):,.0f} ({'this run' if python else 'recorded elsewhere'})",
               f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})", f">= {wanted}")


def pipeline(binaries: pathlib.Path, data: str, repeats: int) -> Row:
    """Two stages that the trainer balances itself, a core each, beside one process on one core; in images/s."""
    stages = "{type: Pipeline, schedule: OneForwardOneBackward, microBatches: 16}"

    def last_rate(manifest: str) -> float:
        with harness.Run(binaries, manifest, threads=1) as job:
            return harness.last_rate(job.finish(timeout=300)[0])

    one, two = [], []
    for _ in range(repeats):
        one.append(last_rate(example("resnet20", data, epochs=3)))
        two.append(last_rate(example("resnet20", data, processes=2, strategy=stages, epochs=3)))
    ratios = sorted(b / a for a, b in zip(one, two, strict=True))
    return Row("resnet20-cifar10 as a pipeline, 2 stages on 2 cores; one process",
               f"{statistics.median(two):,.0f} images/s", f"{statistics.median(one):,.0f}",
               f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})", ">= 1.6")


def measure(binaries: pathlib.Path, python: str, repeats: int = 5) -> list[Row]:
    with some_cifar10() as data:
        return [beside_pytorch(binaries, python, data, "towers", 2.5, repeats),
                beside_pytorch(binaries, python, data, "resnet20", 1.5, repeats), pipeline(binaries, data, repeats)]
