#!/usr/bin/env python3
"""./dev e2e: brings a real Kubernetes up on this machine, runs the e2e tests on it, and takes it down.

First the GoogleTest programs of the label e2e, which need an API server alone (LOCKSTEP_TEST_KUBECONFIG says where it
is), then tests/e2e on a control plane and nodes, to which the image of what was built has been given: those that say
`needs_operator` with the operator that Helm installs, then the others, which bring their own.

Ctrl-C takes everything down as well. What a run left behind that was killed is taken down by the next one. Two may run
side by side, each with its own cluster, and take twice as long.
"""

import argparse
import concurrent.futures
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import fixture
import image
import installation
import parallel
from control_plane import ControlPlane
from nodes import Nodes

STARTED = time.monotonic()
PREFIX = "lockstep-e2e-"


def step(what: str) -> None:
    print(f"== {what} ({time.monotonic() - STARTED:.0f} s)", flush=True)


def with_api_server(folder: pathlib.Path, build: pathlib.Path) -> bool:
    plane = ControlPlane(folder / "api-server")
    try:
        plane.up(only_api=True)
        environment = {**os.environ, "LOCKSTEP_TEST_KUBECONFIG": str(plane.kubeconfig)}
        return subprocess.run(["ctest", "--test-dir", str(build), "--label-regex", "^e2e$", "--output-on-failure",
                               "--no-tests=ignore"], env=environment, check=False).returncode == 0
    finally:
        plane.down()


def give_images(nodes: Nodes, folder: pathlib.Path) -> None:
    for name, programs in ((fixture.IMAGE, ["lockstep", "lockstep-trainer"]), (fixture.OPERATOR_IMAGE, ["lockstep"])):
        rootfs, archive = folder / f"rootfs-{len(programs)}", folder / f"image-{len(programs)}.tar"
        shutil.rmtree(rootfs, ignore_errors=True)
        image.make_rootfs(rootfs, fixture.bin_folder(), programs)
        image.make_archive(archive, rootfs, name, ["/usr/bin/lockstep"])
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda index: nodes.load(index, archive), nodes.indices()))


def set_spare_nodes_apart(plane: ControlPlane) -> None:
    for index in range(fixture.NODES, fixture.NODES + fixture.SPARE_NODES):
        plane.api.merge(f"/api/v1/nodes/node-{index}", {"spec": {"taints": [
            {"key": fixture.SPARE_TAINT, "effect": "NoSchedule"}]}})


def run_tests(plane: ControlPlane, names: list, at_once: int) -> bool:
    loader = unittest.TestLoader()
    here = pathlib.Path(__file__).resolve().parent
    tests = loader.loadTestsFromNames(names) if names else loader.discover(str(here), pattern="*_test.py")
    with_operator, without = unittest.TestSuite(), unittest.TestSuite()
    for test in parallel.tests_of(tests):
        (with_operator if parallel.says(test, "needs_operator") else without).addTest(test)
    results = parallel.Results()
    if with_operator.countTestCases():
        step("Helm installs the operator")
        operator = installation.Installation(plane)
        operator.up()
        step("tests with it")
        parallel.run(with_operator, at_once, results)
        step("Helm uninstalls it")
        operator.down()
        left = operator.wait_until_gone()
        if left:
            results.failed.append(f"helm uninstall leaves {', '.join(left)}")
    if without.countTestCases():
        step("tests without it")
        parallel.run(without, at_once, results)
    step(results.summary())
    return results.successful


def with_nodes(folder: pathlib.Path, names: list, at_once: int) -> bool:
    plane = ControlPlane(folder / "cluster")
    take_down(plane)
    try:
        plane.up()
        nodes = Nodes(plane)
        nodes.up(fixture.NODES + fixture.SPARE_NODES)
        set_spare_nodes_apart(plane)
        give_images(nodes, folder)
        os.environ["LOCKSTEP_E2E_CLUSTER"] = str(plane.folder)
        return run_tests(plane, names, at_once)
    finally:
        take_down(plane)


def take_down(plane: ControlPlane) -> None:
    if plane.up_now and plane.network:
        Nodes(plane).down()
    plane.down()


def take_down_what_others_left() -> None:
    """Clusters of runs that did not live to take them down: nobody holds their lock."""
    for folder in pathlib.Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        lock = locked(folder)
        if lock:
            step(f"takes down what a run left in {folder}")
            for name in ("cluster", "api-server"):
                take_down(ControlPlane(folder / name))
            shutil.rmtree(folder, ignore_errors=True)
            lock.close()


def locked(folder: pathlib.Path):
    """The lock of a run's folder, held until it is closed; None where another process holds it."""
    lock = open(folder / "run.lock", "w", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def end_children() -> None:
    """What tests started and, interrupted, could not end."""
    for task in pathlib.Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)


def what_is_missing(only_api: bool) -> str:
    """Why no cluster can be made here; empty: one can."""
    if shutil.which("go") is None:
        return "Kubernetes is built from its Go modules: Go 1.26 or later must be on the PATH"
    if only_api:
        return ""
    if os.geteuid() != 0:
        return "nodes are made of namespaces and a bridge: only root may make them. --only-api needs no right"
    namespaces = subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "true"], text=True, capture_output=True, check=False)
    return f"nodes are made of namespaces, and none can be made here: {namespaces.stderr.strip()}" if namespaces.returncode else ""


def run(arguments: argparse.Namespace, folder: pathlib.Path) -> bool:
    passed = True
    if not arguments.tests:
        step("tests on an API server")
        passed = with_api_server(folder, arguments.build)
    if not arguments.only_api:
        step("a control plane and nodes")
        passed = with_nodes(folder, arguments.tests, arguments.at_once) and passed
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=fixture.ROOT / "build/release")
    parser.add_argument("--keep-logs", type=pathlib.Path, help="a folder in which the clusters' files and logs stay")
    parser.add_argument("--only-api", action="store_true", help="only the tests that need an API server alone")
    parser.add_argument("--at-once", type=int, default=5, help="tests that run side by side (default: %(default)s)")
    parser.add_argument("--if-possible", action="store_true", help="do nothing, and say why, on a machine that cannot")
    parser.add_argument("tests", nargs="*", help="such as jobs_test or jobs_test.MnistTest; all, if none is named")
    arguments = parser.parse_args()
    os.environ["LOCKSTEP_BIN"] = str(arguments.build.resolve() / "bin")
    missing = what_is_missing(arguments.only_api)
    if missing:
        print(f"run.py: {missing}", file=sys.stderr)
        return 0 if arguments.if_possible else 2
    take_down_what_others_left()
    folder = arguments.keep_logs.resolve() if arguments.keep_logs else pathlib.Path(tempfile.mkdtemp(prefix=PREFIX))
    folder.mkdir(parents=True, exist_ok=True)
    lock = locked(folder)
    if lock is None:
        print(f"run.py: another run keeps its logs in {folder}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell's background job is started with it ignored, and so would be the programs that are tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        passed = run(arguments, folder)
    except KeyboardInterrupt:
        step("interrupted; everything is down")
        end_children()
        passed = False
    finally:
        if not arguments.keep_logs:
            shutil.rmtree(folder, ignore_errors=True)
        lock.close()
    step("passed" if passed else "FAILED")
    sys.stdout.flush()
    os._exit(0 if passed else 1)  # an interrupted test may still wait in its thread


if __name__ == "__main__":
    sys.exit(main())
