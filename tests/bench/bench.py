#!/usr/bin/env python3
"""./dev bench: what Lockstep's speed is here, in one table, beside the peers and the limits."""

import argparse
import pathlib
import platform
import re
import subprocess
import sys

import harness
import images
import launching
import programs
import strategies
import training
import watching

ROOT = pathlib.Path(__file__).resolve().parents[2]


def install_peers() -> str:
    """PyTorch and TensorFlow in a virtual environment of their own; returns its Python."""
    folder = ROOT / ".venv-peers"
    python = folder / "bin" / "python3"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "-q", "torch", "numpy", "tensorflow-cpu"], check=True)
    return str(python)


def machine() -> str:
    model = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    return f"{model}, {len(launching.os.sched_getaffinity(0))} cores, {platform.system()} {platform.release()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--data", default=str(ROOT.parent / "shared/data/mnist"),
                        help="a folder with MNIST's IDX files; without it generated digits are used")
    parser.add_argument("--with-peers", action="store_true", help="install PyTorch and TensorFlow and measure them")
    parser.add_argument("part", nargs="?", choices=["compute", "training", "strategies", "launching", "programs", "watching", "manifests"],
                        help="measure this alone")
    arguments = parser.parse_args()
    data = arguments.data if pathlib.Path(arguments.data).is_dir() else ""
    python = install_peers() if arguments.with_peers else ""

    def wanted(part: str) -> bool:
        return arguments.part in (None, part)

    print(f"{machine()}; data: {'MNIST' if data else 'generated digits'}\n")
    limit = None
    if wanted("compute"):
        products = subprocess.run([str(arguments.bin / "compute_bench")], check=True, text=True, capture_output=True).stdout
        print(products)
        limit = float(re.search(r"^Float32 +256 +[0-9.]+ +([0-9]+)", products, re.MULTILINE).group(1))
    rows = []
    if wanted("training"):
        rows += training.measure(arguments.bin, data, training.Peers(python, data), limit)
    if wanted("strategies"):
        rows += strategies.measure(arguments.bin) + images.measure(arguments.bin, python)
    if wanted("launching"):
        rows += launching.measure(arguments.bin, data)
    if arguments.part == "programs" or arguments.with_peers:
        rows += programs.measure(arguments.bin)
    if wanted("watching"):
        rows += watching.measure(arguments.bin)
    if rows:
        print()
        harness.print_table(rows)
    if wanted("manifests"):
        print()
        subprocess.run([str(arguments.bin / "hostile_manifests")], check=True)


if __name__ == "__main__":
    main()
