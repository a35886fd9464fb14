#!/usr/bin/env python3
"""clang-tidy on the sources named, those left out that passed before and have not changed since.

Sources that a unity build compiles together are checked together, in a fraction of the time.

A source has not changed when it, the headers of this project that it includes (they in turn too), the compiler's
arguments, clang-tidy's settings and the versions of the packages that headers come from are the same. What passed is
remembered in ~/.cache/lockstep/tidy, which need not be there.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PASSED = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "lockstep/tidy"
FORGET_AFTER = 60 * 24 * 3600  # seconds without a source like it
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def output_of(*command: str) -> bytes:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


@functools.cache
def included_by(path: pathlib.Path) -> frozenset:
    """The project's headers that a file names itself."""
    names = (name.decode() for name in INCLUDE.findall(path.read_bytes()))
    return frozenset(found for name in names for found in (ROOT / name, path.parent / name) if found.is_file())


def with_headers(source: pathlib.Path) -> list:
    seen, left = {source}, [source]
    while left:
        for header in included_by(left.pop()) - seen:
            seen.add(header)
            left.append(header)
    return sorted(seen)


def compiled_by(unit: pathlib.Path) -> frozenset:
    """The sources that a source of a unity build includes, or else itself."""
    return included_by(unit) if unit.parent.name == "Unity" else frozenset({unit})


def fingerprint(source: pathlib.Path, arguments: str, common: bytes) -> str:
    sums = hashlib.sha256(common)
    sums.update(arguments.replace(str(ROOT), "").encode())
    for path in with_headers(source):
        content = path.read_bytes().replace(str(ROOT).encode(), b"")
        sums.update(str(path.relative_to(ROOT)).encode() + b"\0" + hashlib.sha256(content).digest())
    return sums.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release", help="where compile_commands.json is")
    parser.add_argument("sources", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    commands = json.loads((pathlib.Path(options.build) / "compile_commands.json").read_text())
    arguments = {pathlib.Path(entry["file"]).resolve(): entry["command"] for entry in commands}
    common = (output_of("clang-tidy", "--version") + (ROOT / ".clang-tidy").read_bytes()
              + output_of("dpkg-query", "-W", "-f", "${Package} ${Version}\n", "g++", "clang-tidy", "lib*-dev"))
    wanted = {source.resolve() for source in options.sources}
    sources = [unit for unit in arguments if wanted & compiled_by(unit)]
    if left_out := len(wanted - set().union(*map(compiled_by, sources))):
        print(f"clang-tidy: {left_out} sources are not built here (./dev cuda-toolkit gets what they need): left out")
    todo = {}
    for path in sources:
        stamp = PASSED / fingerprint(path, arguments[path], common)
        if stamp.exists():
            stamp.touch()
        else:
            todo[path] = stamp
    print(f"clang-tidy: {len(todo)} of {len(sources)} sources are new or changed (several compiled as one are one)", flush=True)
    PASSED.mkdir(parents=True, exist_ok=True)
    for stamp in PASSED.iterdir():
        if stamp.stat().st_mtime < time.time() - FORGET_AFTER:
            stamp.unlink(missing_ok=True)

    def check(path: pathlib.Path) -> str:
        # (The commands are GCC's.)
        done = subprocess.run(["clang-tidy", "-p", options.build, "--quiet", "--extra-arg=-Wno-unknown-warning-option",
                               str(path)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            return done.stdout
        todo[path].touch()
        return ""

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        findings = [text for text in pool.map(check, todo) if text]
    print("\n".join(findings), end="")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
