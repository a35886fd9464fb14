"""The scripts of tests/programs under the launcher and under their own, in turn: how soon they step, how soon they step
again when a rank is killed, and what the launcher takes of the processors."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import harness
from harness import Row
from launching import cpu_seconds

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))

import python_packages  # noqa: E402

RUNS = 5
LIMIT = 60  # seconds, for whatever is waited for


class Script:
    """One run of a script, below `command`; a context manager that leaves no process behind."""

    def __init__(self, command: list, environment: dict):
        self.lines: list = []  # (time, line)
        self.started = time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                        env={**os.environ, **environment})
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for end in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(end)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(timeout=10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.reader.join()

    def time_of(self, pattern: str, after: float = 0) -> float | None:
        """When it printed a line like that; None: it has not, and has ended or taken too long."""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None and not self.reader.is_alive()
            for moment, line in list(self.lines):
                if moment > after and re.search(pattern, line):
                    return moment
            if ended:
                return None
            time.sleep(0.002)
        return None

    def rank(self, script: str, number: int) -> int:
        """The pid of the Python process of that rank."""
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.getsid(int(folder.name)) and script in (folder / "cmdline").read_text():
                    environment = (folder / "environ").read_text().split("\0")
                    if any(f"{name}={number}" in environment for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_RANK")):
                        return int(folder.name)
        raise RuntimeError(f"no rank {number} of {script}")


def time_run(command, script: str, kills: bool) -> tuple:
    """Seconds to the first step, and from the death of rank 1 until all have resumed (None: they did not)."""
    with tempfile.TemporaryDirectory() as folder:
        arguments, environment = command(pathlib.Path(folder))
        with Script(arguments, environment) as run:
            first = run.time_of(r"step 1/")
            if first is None:
                raise RuntimeError("no first step:\n" + "".join(line for _, line in run.lines))
            if not kills:
                return first - run.started, None
            run.time_of(r"step 15/")
            os.kill(run.rank(script, 1), signal.SIGKILL)
            killed = time.monotonic()
            resumed = [run.time_of(rf"rank {rank} resumes after", killed) for rank in (0, 1)]
            return first - run.started, None if None in resumed else max(resumed) - killed


def launcher_share(binaries: pathlib.Path, python: pathlib.Path, script: pathlib.Path, framework: str) -> Row:
    """What the launcher and its guard take, of what all take together."""
    with tempfile.TemporaryDirectory() as folder:
        arguments, environment = ours(binaries, python, script, framework)(pathlib.Path(folder))
        with Script(arguments, environment) as run:
            run.time_of(r"step 50/")
            guard = run.process.pid
            children = pathlib.Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
            own = sum(cpu_seconds(int(pid)) for pid in (guard, *children) if "lockstep" in
                      pathlib.Path(f"/proc/{pid}/comm").read_text())
            ranks = sum(cpu_seconds(run.rank(script.name, rank)) for rank in (0, 1))
    return Row(f"{script.stem}: processor time of the launcher; of the ranks", f"{own:.2f} s", f"{ranks:.1f} s", f"{own / ranks:.3f}",
               "<= 0.01")


def ours(binaries: pathlib.Path, python: pathlib.Path, script: pathlib.Path, framework: str):
    def command(folder: pathlib.Path) -> tuple:
        (folder / "checkpoints").mkdir()
        (folder / "job.json").write_text(harness.manifest("beside", {
            "processesPerReplica": 2, "devices": {"type": "CPU"},
            "program": {"framework": framework, "command": [str(python), str(script), str(folder / "checkpoints")]}}))
        return [binaries / "lockstep", "run", "-q", "--run-dir", folder / "run", folder / "job.json"], {}

    return command


def torchrun(python: pathlib.Path, script: pathlib.Path):
    def command(folder: pathlib.Path) -> tuple:
        (folder / "checkpoints").mkdir()
        return [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "3", script,
                folder / "checkpoints"], {"OMP_NUM_THREADS": "1"}

    return command


def mpirun(python: pathlib.Path, script: pathlib.Path):
    def command(folder: pathlib.Path) -> tuple:
        (folder / "checkpoints").mkdir()
        return [shutil.which("mpirun"), "--allow-run-as-root", "--oversubscribe", "-n", "2", python, script, folder / "checkpoints"], {}

    return command


def beside(name: str, script: str, here, there, kills: bool) -> list[Row]:
    first, again = ([], []), ([], [])
    for _ in range(RUNS):
        for side, command in enumerate((here, there)):
            start, back = time_run(command, script, kills)
            first[side].append(start)
            if back is not None:
                again[side].append(back)
    rows = [row(f"{script}: start to first step; {name}", first)]
    if kills:
        what = (f"{script}: a rank killed -> both have read their checkpoint ({len(again[0])} of {RUNS} times within {LIMIT} s); "
                f"{name} ({len(again[1])} of {RUNS})")
        rows.append(row(what, again) if all(again) else Row(what))
    return rows


def row(what: str, seconds: tuple) -> Row:
    here, there = (statistics.median(side) for side in seconds)
    return Row(what, f"{here:.2f} s", f"{there:.2f} s", f"{here / there:.2f}", "<= 1")


def measure(binaries: pathlib.Path) -> list[Row]:
    result = []
    folder = ROOT / "tests/programs"
    if (python := python_packages.python_with("torch", "2.15.0", "numpy", limit=600)) is not None:
        script = folder / "torch_ddp.py"
        result += beside("torchrun", script.stem, ours(binaries, python, script, "PyTorch"), torchrun(python, script), kills=True)
        result.append(launcher_share(binaries, python, script, "PyTorch"))
    if shutil.which("mpirun") and (python := python_packages.python_with("mpi4py", "4.1.2", "numpy", limit=600)) is not None:
        script = folder / "mpi_allreduce.py"
        result += beside("mpirun", script.stem, ours(binaries, python, script, "MPI"), mpirun(python, script), kills=False)
    return result
