"""What the launcher itself costs: starting, restarting, and being there."""

import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

import harness
from harness import Row


def start_and_end(binaries: pathlib.Path) -> Row:
    """8 processes of `true`, beside mpirun in turn."""
    ours, theirs = [], []
    mpirun = shutil.which("mpirun")
    for _ in range(15):
        with harness.Run(binaries, harness.program_spec(8, "true")) as run:
            ours.append(run.finish()[1])
        if mpirun:
            start = time.perf_counter()
            subprocess.run([mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "8", "true"], check=True)
            theirs.append(time.perf_counter() - start)
    value = statistics.median(ours)
    reference, source = (statistics.median(theirs), "this run") if theirs else (0.06, "recorded elsewhere")
    return Row("run of 8 x true; mpirun", f"{value * 1000:.1f} ms", f"{reference * 1000:.1f} ms ({source})",
               f"{value / reference:.2f}", "<= 0.5")


def kill_to_running(binaries: pathlib.Path) -> Row:
    """A rank is killed: until all four run again."""
    seconds = []
    for _ in range(7):
        with harness.Run(binaries, harness.program_spec(
                4, "sh", "-c", "f=$(dirname $LOCKSTEP_TOKEN_FILE)/started.$RANK.$LOCKSTEP_GENERATION;"
                " date +%s.%N > $f.part; mv $f.part $f; exec sleep 100")) as run:
            def started(generation: int) -> list[float]:
                times = []
                while len(times) < 4:
                    times = [float(path.read_text()) for path in (run.path / "run").glob(f"started.*.{generation}")]
                    time.sleep(0.0005)
                return times
            started(0)
            victim = run.status()["ranks"][2]["pid"]
            killed = time.time()
            os.kill(victim, signal.SIGKILL)
            seconds.append(max(started(1)) - killed)
    return Row("a rank killed -> all four run again; torchrun", f"{statistics.median(seconds) * 1000:.1f} ms",
               "230-420 ms (recorded elsewhere)", f"{statistics.median(seconds) / 0.23:.2f}", "<= 50 ms")


def kill_to_step(binaries: pathlib.Path, data: str) -> Row:
    """A rank of a training is killed: until the next step is done."""
    seconds = []
    for _ in range(5):
        spec = harness.mnist_spec(4, data, epochs=500)
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-bench-"))
        spec["trainer"]["checkpoint"] = {"directory": str(folder), "every": 100}
        try:
            with harness.Run(binaries, spec) as run:
                status = run.status()
                while status.get("progress", {}).get("step", 0) < 300:
                    time.sleep(0.01)
                    status = run.status()
                os.kill(status["ranks"][1]["pid"], signal.SIGKILL)
                killed = time.perf_counter()
                while True:
                    status = run.status()
                    ranks = status["ranks"]
                    if status["generation"] == 1 and all(rank["phase"] == "Training" for rank in ranks) and status["ready"]:
                        break
                    time.sleep(0.002)
                seconds.append(time.perf_counter() - killed)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return Row("a rank killed -> next training step done", f"{statistics.median(seconds):.2f} s", "",
               "", "<= 0.5 s")


def at_rest(binaries: pathlib.Path) -> list[Row]:
    with harness.Run(binaries, harness.program_spec(8, "sleep", "100")) as run:
        run.status()
        time.sleep(1)
        pids = launcher_pids(run.process.pid)
        resident = sum(resident_kib(pid) for pid in pids)
        before = sum(cpu_seconds(pid) for pid in pids)
        time.sleep(10)
        used = sum(cpu_seconds(pid) for pid in pids) - before
    return [Row("at rest with 8 processes: resident", f"{resident / 1024:.1f} MiB", "", "", "<= 20 MB"),
            Row("at rest with 8 processes: of a core", f"{used / 10 * 100:.2f} %", "", "", "< 1 %")]


def launcher_pids(guard: int) -> list[int]:
    """The guard and the launcher, its only child."""
    children = pathlib.Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    return [guard, *map(int, children)]


def resident_kib(pid: int) -> int:
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(binaries: pathlib.Path, data: str) -> list[Row]:
    return [start_and_end(binaries), kill_to_running(binaries), kill_to_step(binaries, data), *at_rest(binaries)]
