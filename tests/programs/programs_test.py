#!/usr/bin/env python3
"""./dev programs [FRAMEWORK…]: real scripts of real frameworks, from PyPI, under the launcher: each trains, loses a rank
to SIGKILL, and is resumed from its own checkpoint. jax, mpi (mpi4py over Open MPI 4), openmpi (over 5), tensorflow
and torch; all, if none is named.

A framework that cannot be installed here is skipped; the environments are kept in ~/.cache/lockstep.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))

import python_packages  # noqa: E402

LAUNCHER = ROOT / "build/release/bin/lockstep"
PRINTED = {"logPattern": r"step (?<step>\d+)/(?<total>\d+) loss (?<loss>\S+)"}
TWO = {"processesPerReplica": 2, "devices": {"type": "CPU"}}
ROLES = {"roles": [{"name": name, "replicas": count, "processesPerReplica": 1, "devices": {"type": "CPU"}}
                   for name, count in (("chief", 1), ("worker", 2), ("ps", 1))]}

# PyPI's name and version, what else, then the scripts: their job, how their progress is seen, which rank is killed, and who
# says that it went on from a checkpoint (none does where the others go on without the one).
FRAMEWORKS = {
    "jax": ("JAX", ("jax", "0.10.2"), [("jax_distributed", TWO, None, 1, (0, 1))]),
    "tensorflow": ("TensorFlow", ("tensorflow-cpu", "2.21.0", "tf_keras==2.21.0"), [
        ("tensorflow_multi_worker", TWO, None, 1, (0, 1)),
        ("tensorflow_parameter_server", ROLES, PRINTED, 2, ())]),
    "mpi": ("MPI", ("mpi4py", "4.1.2", "numpy"), [("mpi_allreduce", TWO, PRINTED, 1, (0, 1))]),  # Open MPI 4, Debian's
    "openmpi": ("MPI", ("openmpi", "5.0.11", "mpi4py==4.1.2", "numpy"), [("mpi_allreduce", TWO, PRINTED, 1, (0, 1))]),
    "torch": ("PyTorch", ("torch", "2.15.0", "numpy"), [
        ("torch_ddp", TWO, PRINTED, 1, (0, 1)),
        ("torch_fsdp", TWO, None, 1, (0, 1))]),
}
LIMIT = 120  # seconds for one script


class Failed(Exception):
    pass


class Run:
    """One script under `lockstep run`, in a folder of its own."""

    def __init__(self, folder: pathlib.Path, python: pathlib.Path, framework: str, script: str, job: dict, progress: dict | None):
        self.folder = folder
        (folder / "checkpoints").mkdir()
        program = {"framework": framework, "command": [str(python), str(HERE / f"{script}.py"), str(folder / "checkpoints")],
                   "env": [{"name": "PYTHONPATH", "value": str(ROOT / "python")}]}
        if progress:
            program["progress"] = progress
        (folder / "job.json").write_text(json.dumps({
            "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": script.replace("_", "-")},
            "spec": {**job, "program": program}}))
        self.output = open(folder / "output", "w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen([LAUNCHER, "run", folder / "job.json", "--run-dir", folder / "run"],
                                        stdout=self.output, stderr=subprocess.STDOUT)
        self.deadline = time.monotonic() + LIMIT

    def status(self) -> dict:
        try:
            address = (self.folder / "run/http-address").read_text().strip()
            with urllib.request.urlopen(f"http://{address}/status", timeout=10) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return {}

    def said(self) -> str:
        return (self.folder / "output").read_text(encoding="utf-8", errors="replace")

    def wait_for(self, condition, what: str) -> None:
        while not condition():
            if self.process.poll() is not None:
                raise Failed(f"it ended before {what}")
            if time.monotonic() > self.deadline:
                raise Failed(f"{what}: not so within {LIMIT} s")
            time.sleep(0.05)

    def end(self) -> int:
        try:
            return self.process.wait(max(1, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failed(f"it has not ended within {LIMIT} s") from None

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.output.close()


def check(run: Run, victim: int, resumed: tuple) -> str:
    def step():
        return (run.status().get("progress") or {}).get("step", 0)

    run.wait_for(lambda: step() >= 15, "its 15th step")
    rank = next(rank for rank in run.status()["ranks"] if rank["rank"] == victim)
    os.kill(rank["pid"], signal.SIGKILL)
    killed = time.monotonic()
    run.wait_for(lambda: run.status().get("restarts", 0) > 0, "the restart")
    if resumed:
        run.wait_for(lambda: "resumes after step" in run.said(), "it resumes")
    recovered = time.monotonic() - killed
    code = run.end()
    said = run.said()
    if code != 0:
        raise Failed(f"exit code {code}")
    for number in resumed:
        if f"rank {number} resumes after step" not in said:
            raise Failed(f"rank {number} began again")
    if " done, loss " not in said:
        raise Failed("no rank says that it is done")
    return f"resumed {recovered:.1f} s after rank {victim} was killed" if resumed else f"went on {recovered:.1f} s after rank {victim} was killed"


def main() -> int:
    names = sys.argv[1:] or list(FRAMEWORKS)
    unknown = [name for name in names if name not in FRAMEWORKS]
    if unknown:
        print(f"programs_test.py: no framework {unknown[0]}; there are {', '.join(FRAMEWORKS)}", file=sys.stderr)
        return 2
    failed = skipped = passed = 0
    for name in names:
        framework, packages, scripts = FRAMEWORKS[name]
        python = python_packages.python_with(*packages, limit=600)
        for script, job, progress, victim, resumed in scripts:
            if python is None:
                print(f"skipped {script}: {packages[0]} cannot be installed", flush=True)
                skipped += 1
                continue
            with tempfile.TemporaryDirectory() as folder:
                run = Run(pathlib.Path(folder), python, framework, script, job, progress)
                began = time.monotonic()
                try:
                    what = check(run, victim, resumed)
                    print(f"ok      {script} ({time.monotonic() - began:.1f} s): {what}", flush=True)
                    passed += 1
                except Failed as error:
                    print(f"FAILED  {script}: {error}\n{run.said()[-6000:]}", flush=True)
                    failed += 1
                finally:
                    run.close()
    print(f"{passed} passed, {skipped} skipped, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
