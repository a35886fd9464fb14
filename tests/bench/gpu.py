#!/usr/bin/env python3
"""./dev gpu: every GPU test and benchmark on this machine's GPU, as one report in Markdown.

Runs what was built (preset cuda); needs neither CMake nor a compiler, so that binaries built elsewhere can be
measured where the GPU is. PyTorch is measured where Python has it, in the same run.
"""

import argparse
import importlib.util
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import harness
from harness import Row

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = pathlib.Path(__file__).parent / "peers"


def call(command: list, timeout: float = 300, **more) -> str:
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=timeout, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: exit code {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


def library_path(bundled: pathlib.Path) -> str:
    """A bundle's own libraries, and CUDA's among Python's packages."""
    if not bundled.is_dir():
        return os.environ.get("LD_LIBRARY_PATH", "")
    folders = [str(bundled)]
    for place in sys.path:
        folders += sorted({str(library.parent)
                           for pattern in ("libcublasLt.so.13", "libcudart.so.13", "libcudnn.so.9", "libnccl.so.2")
                           for library in pathlib.Path(place).glob(f"nvidia/**/{pattern}")})
    return ":".join(folders + [os.environ.get("LD_LIBRARY_PATH", "")])


class Report:
    """Sections are printed as they come, so that a run that is cut off has told what it knew."""

    def __init__(self):
        self.failed = []

    def section(self, title: str, work) -> None:
        print(f"\n## {title}\n", flush=True)
        start = time.monotonic()
        try:
            work()
        except Exception as error:  # the other sections are still wanted
            self.failed.append(title)
            print(f"**failed**: {error}")
        print(f"\n({time.monotonic() - start:.0f} s)", flush=True)


def machine() -> None:
    print(call(["nvidia-smi", "--query-gpu=name,uuid,driver_version,memory.total,mig.mode.current", "--format=csv"]))
    if importlib.util.find_spec("torch"):
        print(call([sys.executable, "-c", "import torch; print('PyTorch', torch.__version__, 'CUDA', torch.version.cuda,"
                    " 'NCCL', torch.cuda.nccl.version())"]))


def tests(binaries: pathlib.Path) -> None:
    """The programs with the label gpu; they skip themselves where there is none."""
    ran = failed = 0
    for program in sorted(binaries.glob("*_gpu_test")):
        with tempfile.NamedTemporaryFile(suffix=".json") as result:
            done = subprocess.run([str(program), f"--gtest_output=json:{result.name}"], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=400)
            try:
                counts = json.load(open(result.name))
            except json.JSONDecodeError:
                counts = {"tests": 0, "failures": 1, "testsuites": []}
        skipped = sum(case.get("result") == "SKIPPED" for suite in counts["testsuites"] for case in suite["testsuite"])
        print(f"- {program.name}: {counts['tests']} tests, {counts['failures']} failed, {skipped} skipped"
              f"{'' if done.returncode in (0, 1) else f', ended by {done.returncode}'}", flush=True)
        ran += counts["tests"] - skipped
        failed += counts["failures"] + (done.returncode not in (0, 1))
        if done.returncode != 0:
            lines = [line for line in done.stdout.splitlines() if not line.startswith(("[ RUN", "[       OK", "[----"))]
            print("```\n" + "\n".join(lines[:80]) + "\n```")
    print(f"\n{ran - failed} passed, {failed} failed")
    if failed or ran == 0:
        raise RuntimeError("not all GPU tests passed" if failed else "no GPU test ran")


def figures(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^(\w+) ([-+.\de]+)$", text, re.MULTILINE)}


def peer(job: str, *more: str) -> float | None:
    if not importlib.util.find_spec("torch"):
        return None
    try:
        output = call([sys.executable, PEERS / "pytorch_gpu.py", job, *more], timeout=280)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"PyTorch {job} {' '.join(more)}: {str(error)[-600:]}")
        return None
    return float(re.search(r"microseconds ([\d.]+)", output).group(1))


def against(rows: list, what: str, value: float, reference: float | None, wanted: float) -> None:
    beside = "not here" if reference is None else f"{reference:,.1f} us"
    ratio = "" if reference is None else f"{reference / value:.2f}"
    rows.append(Row(what, f"{value:,.1f} us", beside, ratio, f">= {wanted}"))


def mnist_step(binaries: pathlib.Path) -> None:
    rows = []
    graphs = figures(call([binaries / "gpu_bench", "step", "mnist"]))
    plain = figures(call([binaries / "gpu_bench", "step", "mnist", "--no-graphs"]))
    against(rows, "MNIST step with graphs; PyTorch eager", graphs["step_microseconds"], peer("mnist"), 6)
    against(rows, "MNIST step with graphs; torch.compile", graphs["step_microseconds"], peer("mnist", "--compile"), 1.5)
    against(rows, "MNIST step with graphs; without", graphs["step_microseconds"], plain["step_microseconds"], 1)
    rows.append(Row("host's processor time a step", f"{graphs['host_microseconds']:.1f} us", "", "", "<= 20 us"))
    grown = graphs["memory_used_after_bytes"] - graphs["memory_used_before_bytes"]
    rows.append(Row("growth of device memory over 10,000 steps", f"{grown:,.0f} bytes", "", "", "0"))
    harness.print_table(rows)
    print("\nThe parts of a step, each alone; their sum beside the step is what launching and waiting cost:\n")
    for name, value in graphs.items():
        if name.startswith(("product_", "kernel_", "kernels_")):
            print(f"- {name}: {value:.2f}")


def dense_step(binaries: pathlib.Path) -> None:
    measured = figures(call([binaries / "gpu_bench", "step", "dense"], timeout=400))
    rows = [Row("8 layers of 8192, BFloat16, batch 8192; its bare products", f"{measured['step_tflops']:.0f} TFLOP/s",
                f"{measured['products_tflops']:.0f} TFLOP/s",
                f"{measured['step_tflops'] / measured['products_tflops']:.2f}", ">= 0.85")]
    against(rows, "the same step; PyTorch eager", measured["step_microseconds"], peer("dense"), 1)
    harness.print_table(rows)


def virtual_devices(binaries: pathlib.Path, data: str, seeds: int) -> None:
    accuracies = []
    for seed in range(1, seeds + 1):
        spec = harness.mnist_spec(4, data)
        spec["trainer"]["seed"] = seed
        spec["devices"] = {"type": "GPU", "visible": ["0"], "virtual": {"perDevice": 4, "memoryLimit": "1Gi"}}
        with harness.Run(binaries, spec, quiet=False) as run:
            output, _ = run.finish()
        accuracies.append(float(re.search(r"test: loss [\d.]+, accuracy ([\d.]+)", output).group(1)))
    print(f"{'MNIST' if data else 'Generated digits'}, {seeds} seeds: mean {statistics.mean(accuracies):.4f} (wanted for MNIST:"
          f" >= 0.964), lowest {min(accuracies):.4f}, highest {max(accuracies):.4f}")


def all_reduce(binaries: pathlib.Path, bandwidth: float) -> None:
    print(f"Ranks that share one GPU. The limit is what its memory moves: {bandwidth / 1e9:,.0f} GB/s, measured by copies.\n")
    with_mps = [False, True] if shutil.which("nvidia-cuda-mps-control") else [False]
    if len(with_mps) == 1:
        print("nvidia-cuda-mps-control is not here: without MPS only, where processes take turns.\n")
    for ranks, mps, ops in itertools.product((2, 4), with_mps, ("HierarchicalCopy", "ReductionToOneDevice", "NCCL")):
        what = f"{ranks} ranks{' under MPS' if mps else ''}, {ops}"
        spec = harness.program_spec(ranks, str(binaries / "gpu_bench"), "allreduce", ops, maxRestarts=0)
        spec["devices"] = {"type": "GPU", "visible": ["0"], "virtual": {"perDevice": ranks}}
        if mps:
            spec["devices"]["memory"] = {"policy": "Fraction", "fraction": round(0.9 / ranks, 3), "enforce": "MPS"}
        try:
            with harness.Run(binaries, spec, quiet=False) as run:
                output, _ = run.finish()
        except RuntimeError as error:
            print(f"- {what}: {str(error)[-500:]}")
            continue
        for line in re.findall(r"over .*|allreduce_bytes.*", output):
            print(f"- {what}: {line}")
            if match := re.search(r"memory_bytes_per_second (\S+)", line):
                print(f"  = {float(match.group(1)) / bandwidth:.2f} of the limit (wanted >= 0.5)")


def faults(binaries: pathlib.Path, data: str) -> None:
    """Until the launcher has found a fault and starts all ranks again; and until they train again."""

    def disturbed(name: str, disturb, **more) -> Row:
        spec = harness.mnist_spec(2, data, epochs=2000)
        spec["devices"] = {"type": "GPU", "visible": ["0"], "virtual": {"perDevice": 2}}
        spec.update(more)
        with tempfile.TemporaryDirectory() as checkpoints:
            spec["trainer"]["checkpoint"] = {"directory": checkpoints, "every": 200}
            with harness.Run(binaries, spec, quiet=False) as run:
                until(run, lambda status: status.get("progress", {}).get("step", 0) >= 400)
                disturb(run.status()["ranks"][1]["pid"])
                start = time.perf_counter()
                until(run, lambda status: status["generation"] >= 1)
                found = time.perf_counter() - start
                until(run, lambda status: status["ready"] and all(rank["phase"] == "Training" for rank in status["ranks"]))
                again = time.perf_counter() - start
        return Row(f"{name}: found; trains again", f"{found:.2f} s", f"{again:.2f} s", "", "found <= 5 s")

    def out_of_memory() -> Row:
        spec = harness.mnist_spec(1, data)
        spec["devices"] = {"type": "GPU", "visible": ["0"], "memory": {"policy": "Limit", "limit": "48Mi"}}
        spec["trainer"]["model"]["layers"].insert(0, {"type": "Dense", "units": 16384})
        with harness.Run(binaries, spec, quiet=False) as run:
            until(run, lambda status: status["generation"] >= 1)
            return Row("out of memory at the start: found, from the start of the job",
                       f"{time.perf_counter() - run.started:.2f} s", "", "", "<= 5 s")

    harness.print_table([
        disturbed("a rank killed", lambda pid: os.kill(pid, signal.SIGKILL)),
        disturbed("a rank stopped, progressDeadlineSeconds: 4", lambda pid: os.kill(pid, signal.SIGSTOP),
                  runPolicy={"progressDeadlineSeconds": 4}),
        out_of_memory()])


def until(run: harness.Run, done, timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    try:
        while not done(run.status()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not after {timeout:.0f} s")
            time.sleep(0.002)
    except OSError as error:  # (a timeout is one, too)
        run.process.kill()
        raise RuntimeError(f"the job did not come so far: {error}\n{run.process.communicate()[0][-2000:]}") from error


SECTIONS = ("Tests", "MNIST: a step", "Dense, large: a step", "Four virtual devices of 1 GiB", "All-reduce", "Faults")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=pathlib.Path, default=ROOT / "build/cuda",
                        help="a folder with bin/, and lib/ where the libraries came along (tools/gpu_bundle.sh)")
    parser.add_argument("--data", default=str(ROOT.parent / "shared/data/mnist"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", choices=SECTIONS)
    arguments = parser.parse_args()
    binaries = arguments.bundle.resolve() / "bin"
    os.environ["LD_LIBRARY_PATH"] = library_path(arguments.bundle.resolve() / "lib")
    os.environ.setdefault("LOCKSTEP_CUDA_PLUGIN", str(binaries / "liblockstep-cuda.so"))
    data = arguments.data if pathlib.Path(arguments.data).is_dir() else ""
    report = Report()
    print("# Lockstep on a GPU")
    report.section("Machine", machine)
    work = (lambda: tests(binaries), lambda: mnist_step(binaries), lambda: dense_step(binaries),
            lambda: virtual_devices(binaries, data, arguments.seeds),
            lambda: all_reduce(binaries, figures(call([binaries / "gpu_bench", "copy"]))["copy_bytes_per_second"]),
            lambda: faults(binaries, data))
    for section, its_work in zip(SECTIONS, work):
        if arguments.only in (None, section):
            report.section(section, its_work)
    print(f"\n{'Failed: ' + ', '.join(report.failed) if report.failed else 'All sections ran.'}")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
