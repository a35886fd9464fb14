"""What the strategies cost and bring, each beside the way of training that it is chosen instead of."""

import contextlib
import os
import pathlib
import re
import signal
import statistics
import tempfile
import threading
import time

import harness
from harness import Row


def digits(processes: int, strategy: dict, units: int, **trainer) -> dict:
    """A perceptron with two hidden layers on generated digits."""
    return {
        "processesPerReplica": processes, "devices": {"type": "CPU"}, "strategy": strategy,
        "trainer": {"data": {"format": "Digits", "samples": 12800, "testSamples": 10},
                    "model": {"layers": [{"type": "Dense", "units": units, "activation": "ReLU"},
                                         {"type": "Dense", "units": units, "activation": "ReLU"},
                                         {"type": "Dense", "units": 10}]},
                    "optimizer": {"type": "Adam"}, "batchSize": 256, "epochs": 3, "seed": 1, **trainer}}


def run(binaries: pathlib.Path, spec: dict, repeats: int = 3) -> tuple[float, str]:
    """The best images/s of the last epoch, and what was printed."""
    best, printed = 0.0, ""
    for _ in range(repeats):
        with harness.Run(binaries, spec, threads=1) as job:
            printed = job.finish()[0]
        best = max(best, harness.last_rate(printed))
    return best, printed


def sharding(binaries: pathlib.Path) -> list[Row]:
    """ZeRO on four processes, the sums over Gloo: 1.9 million parameters. Alone, and with a copy of each share."""
    whole, _ = run(binaries, digits(4, {"crossDeviceOps": "Gloo"}, 1024))
    rows = []
    for shard, copies in (("Optimizer", False), ("Gradients", False), ("Optimizer", True), ("Gradients", True)):
        rate, printed = run(binaries, digits(4, {"crossDeviceOps": "Gloo", "shard": shard, "copyShards": copies}, 1024))
        name = f"shard: {shard}" + (", with copies" if copies else "")
        rows.append(Row(f"{name}, 4 processes, time of a step; None", f"{256e3 / rate:.1f} ms",
                        f"{256e3 / whole:.1f} ms", f"{whole / rate:.2f}", "<= 1.1"))
        if shard == "Optimizer":
            mine, all_of_it = map(float, re.search(r"has ([0-9.]+) MB of the ([0-9.]+) MB", printed).groups())
            mine *= 2 if copies else 1
            rows.append(Row("the same, optimizer state a process; the whole", f"{mine:.1f} MB", f"{all_of_it:.1f} MB",
                            f"{mine / all_of_it:.2f}", *([] if copies else ["<= 0.3"])))
    return rows


def central_storage(binaries: pathlib.Path) -> list[Row]:
    mirrored, _ = run(binaries, digits(4, {"type": "Mirrored"}, 256))
    central, _ = run(binaries, digits(4, {"type": "CentralStorage"}, 256))
    return [Row("CentralStorage, 4 processes; Mirrored", f"{central:,.0f} images/s", f"{mirrored:,.0f}",
                f"{central / mirrored:.2f}")]


class Paced:
    """Lets each worker of a running job compute for a share of the time only, as if it had a slower processor. Small
    shares, so that all of them together fit into few cores."""

    PERIOD = 0.1

    def __init__(self, job: harness.Run, shares: list[float]):
        self._end = threading.Event()
        ranks = [rank for rank in job.status()["ranks"] if rank["role"] == "worker"]
        self._threads = [threading.Thread(target=self._pace, args=(rank["pid"], share, number / len(shares)))
                         for number, (rank, share) in enumerate(zip(ranks, shares, strict=True))]

    def _pace(self, pid: int, share: float, phase: float) -> None:
        with contextlib.suppress(ProcessLookupError):
            begin = time.monotonic() + phase * self.PERIOD
            while not self._end.is_set():
                os.kill(pid, signal.SIGSTOP)
                self._end.wait(max(0, begin + self.PERIOD * (1 - share) - time.monotonic()))
                os.kill(pid, signal.SIGCONT)
                begin += self.PERIOD
                self._end.wait(max(0, begin - time.monotonic()))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        for thread in self._threads:
            thread.join()


def rate(job: harness.Run, batch: int, seconds: float) -> float:
    """images/s of a running job, of all the time that passes."""
    time.sleep(1)
    first = job.status()["progress"]["step"]
    start = time.monotonic()
    time.sleep(seconds)
    steps = job.status()["progress"]["step"] - first
    return steps * batch / (time.monotonic() - start)


@contextlib.contextmanager
def ready(binaries: pathlib.Path, spec: dict):
    """A job that has begun to train."""
    with harness.Run(binaries, spec, threads=1) as job:
        while not job.status().get("ready"):
            time.sleep(0.05)
        yield job


def paced_rate(binaries: pathlib.Path, spec: dict, shares: list[float], seconds: float = 8) -> float:
    """images/s of a job whose workers have these shares of their time."""
    with ready(binaries, spec) as job, Paced(job, shares):
        return rate(job, spec["trainer"]["batchSize"], seconds)


def parameter_server(binaries: pathlib.Path) -> list[Row]:
    """Four workers, one of them five times as slow as the others."""
    fast, slow = 0.2, 0.04

    def served(workers: int) -> dict:
        spec = digits(1, {"type": "ParameterServer", "synchronous": False}, 256, epochs=1000)
        role = {"processesPerReplica": 1, "devices": spec.pop("devices")}
        del spec["processesPerReplica"]
        return {**spec, "roles": [{**role, "name": "worker", "processesPerReplica": workers}, {**role, "name": "ps"}]}

    alone = 3 * paced_rate(binaries, served(1), [fast]) + paced_rate(binaries, served(1), [slow])
    together = statistics.median(paced_rate(binaries, served(4), [fast, fast, fast, slow]) for _ in range(3))
    mirrored = paced_rate(binaries, digits(4, {"type": "Mirrored"}, 256, epochs=1000), [fast, fast, fast, slow])
    return [Row("asynchronous ParameterServer, 4 workers, one 5 x as slow; the sum of each alone",
                f"{together:,.0f} images/s", f"{alone:,.0f}", f"{together / alone:.2f}", ">= 0.9"),
            Row("Mirrored, the same four; the sum", f"{mirrored:,.0f} images/s", f"{alone:,.0f}",
                f"{mirrored / alone:.2f}")]


def checkpoints(binaries: pathlib.Path) -> list[Row]:
    """Two processes that write 70 MB of parameters and optimizer state, in two parts, every 50 steps."""
    every = 50
    with_them, without, blocked = [], [], []
    for _ in range(3):
        spec = digits(2, {"type": "Mirrored"}, 2048, epochs=1000)
        with ready(binaries, spec) as job:
            without.append(rate(job, 256, 10))
        with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
            spec["trainer"]["checkpoint"] = {"directory": folder, "every": every, "keep": 1}
            with ready(binaries, spec) as job:
                with_them.append(rate(job, 256, 10))
                metrics = job.metrics()
        written = sum(metrics.get(f'lockstep_checkpoint_duration_seconds_count{{result="{result}"}}', 0)
                      for result in ("success", "failure"))
        blocked.append(metrics["lockstep_checkpoint_blocking_seconds_total"] / max(1, written))
    one, other = statistics.median(with_them), statistics.median(without)
    step = 256 / other
    return [Row("a checkpoint of 70 MB every 50 steps, 2 processes; none", f"{one:,.0f} images/s", f"{other:,.0f}",
                f"{one / other:.2f}", ">= 0.95"),
            Row("the training stands still for one; a step", f"{1e3 * statistics.median(blocked):.1f} ms",
                f"{1e3 * step:.1f} ms", f"{statistics.median(blocked) / step:.2f}")]


def measure(binaries: pathlib.Path) -> list[Row]:
    return sharding(binaries) + central_storage(binaries) + parameter_server(binaries) + checkpoints(binaries)
