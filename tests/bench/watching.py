"""What it costs to be watched: events, metrics and scrapes."""

import http.client
import os
import pathlib
import shutil
import statistics
import tempfile
import threading
import time

import harness
from harness import Row

RANKS = 64
REQUESTS = 1000
AS_PROMETHEUS = {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}
# A rank that reports a step ten times a second and computes nothing.
REPORTS = """
import os, time
out = os.open(f"/proc/self/fd/{os.environ['LOCKSTEP_EVENTS_FD']}", os.O_WRONLY)
for step in range(1, 10**6):
    os.write(out, b'{"event":"step","step":%d,"samples":64,"loss":0.5,"seconds":0.1,"collective_seconds":0.01,"flops":1e9}\\n' % step)
    time.sleep(0.1)
"""


def without_events(binaries: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """The same programs, but the trainer gets no pipe for its events: the launcher has nothing to count."""
    shutil.copy(binaries / "lockstep", folder / "lockstep")
    wrapper = folder / "lockstep-trainer"
    wrapper.write_text(f'#!/bin/sh\nunset LOCKSTEP_EVENTS_FD\nexec {binaries.resolve() / "lockstep-trainer"} "$@"\n')
    wrapper.chmod(0o755)
    return folder


def scrape(run: harness.Run, ended: threading.Event) -> None:
    connection = http.client.HTTPConnection(run.wait_for_file("http-address"), timeout=5)
    while not ended.wait(1):
        try:
            connection.request("GET", "/metrics", headers=AS_PROMETHEUS)
            connection.getresponse().read()
        except OSError:  # the job is over
            return


def processor_seconds(binaries: pathlib.Path, scraped: bool) -> float:
    """Of launcher and rank together, of the smallest job: one process, digits that it draws itself."""
    spec = harness.mnist_spec(1, "", epochs=4)
    with harness.Run(binaries, spec, threads=1) as run:
        ended = threading.Event()
        scraper = threading.Thread(target=scrape, args=(run, ended), daemon=True)
        if scraped:
            scraper.start()
        run.process.stdout.read()
        _, status, usage = os.wait4(run.process.pid, 0)
        run.process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        if run.process.returncode != 0:
            raise RuntimeError(f"exit code {run.process.returncode}")
        return usage.ru_utime + usage.ru_stime


def cost(binaries: pathlib.Path, repeats: int) -> Row:
    """In turn, and of each the least: other work on the machine only ever adds."""
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        silent = without_events(binaries, pathlib.Path(folder))
        off, on = [], []
        for _ in range(repeats):
            off.append(processor_seconds(silent, scraped=False))
            on.append(processor_seconds(binaries, scraped=True))
    return Row("smallest job: processor time with events and a scrape a second; without", f"{min(on):.3f} s", f"{min(off):.3f} s",
               f"{min(on) / min(off):.4f}", "<= 1.01")


def latencies(address: str, headers: dict) -> tuple:
    """Seconds of each request on one connection, and the bytes of the last answer."""
    connection = http.client.HTTPConnection(address, timeout=5)
    seconds, size = [], 0
    for _ in range(REQUESTS):
        start = time.perf_counter()
        connection.request("GET", "/metrics", headers=headers)
        size = len(connection.getresponse().read())
        seconds.append(time.perf_counter() - start)
        time.sleep(0.005)
    return seconds, size


def answering(binaries: pathlib.Path) -> list[Row]:
    rows = []
    with harness.Run(binaries, harness.program_spec(RANKS, "python3", "-c", REPORTS)) as run:
        deadline = time.monotonic() + 60
        while sum(series.startswith("lockstep_straggler_delay_seconds") for series in run.metrics()) < RANKS:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{RANKS} ranks do not report")
            time.sleep(0.2)
        for name, headers in (("text", {}), ("OpenMetrics, gzip", AS_PROMETHEUS)):
            seconds, size = latencies(run.wait_for_file("http-address"), headers)
            seconds.sort()
            rows.append(Row(f"/metrics of {RANKS} ranks that run, {name} ({size / 1024:.0f} KiB): p99; median",
                            f"{seconds[int(0.99 * len(seconds))] * 1000:.2f} ms", f"{statistics.median(seconds) * 1000:.2f} ms", "",
                            "<= 5 ms"))
    return rows


def measure(binaries: pathlib.Path, repeats: int = 9) -> list[Row]:
    return [cost(binaries, repeats), *answering(binaries)]
