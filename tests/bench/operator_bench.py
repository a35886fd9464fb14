#!/usr/bin/env python3
"""./dev bench operator: Lockstep's operator beside JobSet and Kubeflow's Training Operator, on a real API server.

Jobs of two pods are created at once over 8 connections; there are no nodes and no controller manager, so that the operator
and the API server have the machine to themselves. Each operator has an API server of its own, new and empty, one after the
other. What the API server takes from a plain client is measured right before and right after Lockstep's jobs.
"""

import argparse
import dataclasses
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import harness
import operator_peers
from bench import machine
from harness import Row
from launching import cpu_seconds, resident_kib
from operator_peers import ControlPlane, JobSet, Kubeflow, Lockstep, Operator

CONNECTIONS = 8
SETTLE = 5  # seconds that the API server has for a new kind of object
REST = 20  # seconds of looking at an operator that has nothing to do


def revision(plane: ControlPlane) -> int:
    """How many writes etcd has taken."""
    request = urllib.request.Request(f"http://127.0.0.1:{plane.settings['etcd']}/v3/kv/range", b'{"key": "AA=="}')
    with urllib.request.urlopen(request, timeout=10) as answer:
        return int(json.load(answer)["header"]["revision"])


class Writes:
    """A context manager that notes every 50 ms how many writes etcd has taken."""

    def __init__(self, plane: ControlPlane):
        self.plane = plane
        self.seen: list[tuple[float, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._stop.wait(0.05):
            self.seen.append((time.time(), revision(self.plane)))

    def __enter__(self):
        self.seen.append((time.time(), revision(self.plane)))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def wait_for_quiet(self, deadline: float) -> None:
        """Until there are fewer than five in a second (the API server itself writes now and then)."""
        while time.time() < deadline:
            time.sleep(0.2)
            now, last = self.seen[-1]
            if last - max((count for at, count in self.seen if at <= now - 1), default=0) < 5:
                return
        raise TimeoutError("the operator never stops writing")

    def last(self) -> tuple[float, int]:
        """When the last of many came, and how many there were by then."""
        for (_, before), (at, after) in zip(reversed(self.seen[:-1]), reversed(self.seen)):
            if after - before >= 2:
                return at, after
        return self.seen[0]


@dataclasses.dataclass
class Burst:
    """What creating many jobs at once came to."""

    jobs: int
    median: float  # seconds from create to first child
    p99: float
    jobs_per_second: float  # until the last write
    writes_per_second: float
    writes_per_job: float
    cpu_per_job: float  # seconds, the operator's
    server_cpu_per_job: float  # the API server's and etcd's


class Bench:
    def __init__(self, programs: pathlib.Path, folder: pathlib.Path, quick: bool):
        self.programs = programs
        self.folder = folder
        self.quick = quick
        self.first, self.more, self.plain = (200, 800, 500) if quick else (1000, 9000, 2000)
        self._number = 0

    def plane(self) -> ControlPlane:
        self._number += 1
        plane = ControlPlane(self.folder / f"plane-{self._number}")
        plane.up(only_api=True)
        return plane

    def load(self, plane: ControlPlane, template: dict, count: int, child: str = "") -> dict:
        file = self.folder / "template.json"
        file.write_text(json.dumps(template))
        self._number += 1
        command = [str(self.programs / "operator_load"), str(plane.folder / "kubeconfig-token"), str(file), str(count),
                   str(self._number * 100_000), str(CONNECTIONS), *([child] if child else [])]
        return json.loads(subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, timeout=1200).stdout)

    @staticmethod
    def server_cpu(plane: ControlPlane) -> float:
        return sum(cpu_seconds(plane.processes.pid(name)) for name in ("etcd", "kube-apiserver"))

    def plain_rate(self, plane: ControlPlane) -> float:
        """Writes a second that the API server takes from one client that does nothing else."""
        return self.plain / self.load(plane, operator_peers.plain_job(), self.plain)["creating"]

    def burst(self, operator: Operator, count: int) -> Burst:
        cpu, server_cpu = cpu_seconds(operator.process.pid), self.server_cpu(operator.plane)
        with Writes(operator.plane) as writes:
            before = writes.seen[0][1]
            report = self.load(operator.plane, operator.template(), count, operator.child)
            writes.wait_for_quiet(time.time() + 120)
        ended, after = writes.last()
        seconds = ended - report["began"]
        latencies = sorted(report["seconds"])
        return Burst(count, statistics.median(latencies), latencies[int(len(latencies) * 0.99)], count / seconds,
                     (after - before) / seconds, (after - before) / count,
                     (cpu_seconds(operator.process.pid) - cpu) / count,
                     (self.server_cpu(operator.plane) - server_cpu) / count)

    def say(self, text: str) -> None:
        print(f"  {text}", file=sys.stderr, flush=True)

    def lockstep(self) -> dict:
        plane = self.plane()
        operator = Lockstep(plane, self.folder, self.programs)
        found = {}
        try:
            operator.install()
            time.sleep(SETTLE)
            starts = []
            for _ in range(7):
                starts.append(operator.start())
                operator.stop()
                self.release_lease(plane)
            found["start"] = statistics.median(starts)
            rate = self.plain_rate(plane)
            operator.start()
            self.wait_for_lead(operator)
            found["empty"] = resident_kib(operator.process.pid) / 1024
            found["first"] = self.burst(operator, self.first)
            found["more"] = self.burst(operator, self.more)
            self.say(f"lockstep: {found['first']} {found['more']}")
            found["held"] = resident_kib(operator.process.pid) / 1024
            cpu, writes = cpu_seconds(operator.process.pid), operator.writes()
            time.sleep(REST)
            found["rest cpu"] = (cpu_seconds(operator.process.pid) - cpu) / REST
            after = operator.writes()
            # A Lease is renewed by PUT, and nothing else is.
            found["rest writes"] = sum(after[method] - writes[method] for method in after if method != "PUT")
            operator.stop()
            found["restart"] = operator.start()
            self.release_lease(plane)
            time.sleep(5)
            found["held after restart"] = resident_kib(operator.process.pid) / 1024
            operator.stop()
            found["plain"] = (rate + self.plain_rate(plane)) / 2
        finally:
            operator.stop()
            plane.down()
        return found

    @staticmethod
    def release_lease(plane: ControlPlane) -> None:
        """The operator was killed: the next is not to wait until its lease has run out."""
        plane.api.delete("/apis/coordination.k8s.io/v1/namespaces/default/leases/lockstep-operator", missing_is_fine=True)

    @staticmethod
    def wait_for_lead(operator: Lockstep) -> None:
        deadline = time.monotonic() + 30
        path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        while not operator.plane.api.get(path)["items"]:
            if time.monotonic() > deadline:
                raise TimeoutError("the operator takes no lease")
            time.sleep(0.05)

    def peer(self, kind: type, more: bool) -> dict:
        plane = self.plane()
        operator = kind(plane, self.folder)
        found = {}
        try:
            operator.install()
            operator.start()
            time.sleep(SETTLE)  # its lease, too
            found["first"] = self.burst(operator, self.first)
            self.say(f"{operator.name}: {found['first']}")
            if more:
                found["more"] = self.burst(operator, self.more)
                self.say(f"{operator.name}: {found['more']}")
            found["held"] = resident_kib(operator.process.pid) / 1024
        finally:
            operator.stop()
            plane.down()
        return found

    def compare(self, what: str, ours: float, theirs: float, text: str, wanted: str) -> Row:
        return Row(what, text.format(ours), text.format(theirs), f"{ours / theirs:.3f}", wanted)

    def rows(self, ours: dict, jobset: dict | None, kubeflow: dict | None) -> list[Row]:
        first, more = ours["first"], ours["more"]
        rows = []
        for name, peer in (("JobSet", jobset), ("Kubeflow", kubeflow)):
            if peer:
                their = peer["first"]
                wanted = "<= 0.333" if name == "JobSet" else ""
                what = f"{self.first} jobs at once: create -> first child"
                rows.append(self.compare(f"{what}, median; {name}", first.median, their.median, "{:.2f} s", wanted))
                rows.append(self.compare(f"{what}, p99; {name}", first.p99, their.p99, "{:.2f} s", wanted))
        what = f"{self.more} more"
        if jobset:
            their = jobset["more"]
            rows.append(self.compare(f"{what}: jobs a second; JobSet", more.jobs_per_second, their.jobs_per_second, "{:.1f}",
                                     ">= 2"))
            rows.append(self.compare(f"{what}: CPU a job, the operator's; JobSet", more.cpu_per_job * 1000,
                                     their.cpu_per_job * 1000, "{:.2f} ms", ""))
            rows.append(self.compare(f"{what}: CPU a job, the API server's and etcd's; JobSet", more.server_cpu_per_job * 1000,
                                     their.server_cpu_per_job * 1000, "{:.2f} ms", ""))
        rows.append(self.compare(f"{what}: writes a second; a plain client's", more.writes_per_second, ours["plain"], "{:.0f}",
                                 ">= 0.7"))
        rows.append(Row(f"{what}: writes a job, the client's included", f"{more.writes_per_job:.2f}",
                        f"{jobset['more'].writes_per_job:.2f} (JobSet)" if jobset else "", "", "5"))
        held = self.first + self.more
        rows.append(Row(f"{held} held: resident; JobSet", f"{ours['held']:.1f} MiB",
                        f"{jobset['held']:.0f} MiB" if jobset else "",
                        f"{ours['held'] / jobset['held']:.3f}" if jobset else "", "<= 80 MB"))
        rows.append(Row(f"{held} held, after a restart: resident", f"{ours['held after restart']:.1f} MiB", "", "", ""))
        rows.append(Row(f"{held} held, at rest for {REST} s: writes but the lease", str(ours["rest writes"]), "", "", "0"))
        rows.append(Row(f"{held} held, at rest: of a core", f"{ours['rest cpu'] * 100:.2f} %", "", "", "< 1 %"))
        rows.append(Row(f"{held} held: restart to synced", f"{ours['restart']:.2f} s", "", "", "<= 10 s"))
        rows.append(Row("empty cluster: start to ready", f"{ours['start'] * 1000:.0f} ms", "", "", "<= 200 ms"))
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=operator_peers.ROOT / "build/release/bin")
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs")
    parser.add_argument("--without-peers", action="store_true", help="Lockstep alone")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder in which the logs stay")
    arguments = parser.parse_args()
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # through every `finally`
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as temporary:
        folder = arguments.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(arguments.bin.resolve(), folder.resolve(), arguments.quick)
        ours = bench.lockstep()
        jobset = None if arguments.without_peers else bench.peer(JobSet, more=True)
        kubeflow = None if arguments.without_peers else bench.peer(Kubeflow, more=False)
        print()
        harness.print_table(bench.rows(ours, jobset, kubeflow))
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
