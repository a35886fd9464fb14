#!/usr/bin/env python3
"""./dev e2e: brings a real Kubernetes up on this machine, runs the e2e tests on it, and takes it down.

First the GoogleTest programs of the label e2e, which need an API server alone (LOCKSTEP_TEST_KUBECONFIG says where it
is), then tests/e2e on a control plane and two nodes, to which the image of what was built has been given.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import fixture
import image
from control_plane import ControlPlane
from nodes import Nodes

NODES = 2
STARTED = time.monotonic()


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
        for index in nodes.indices():
            nodes.load(index, archive)


def with_nodes(folder: pathlib.Path, names: list) -> bool:
    plane = ControlPlane(folder / "cluster")
    nodes = None
    try:
        plane.up()
        nodes = Nodes(plane)
        nodes.up(NODES)
        give_images(nodes, folder)
        os.environ["LOCKSTEP_E2E_CLUSTER"] = str(plane.folder)
        step("tests on two nodes")
        loader = unittest.TestLoader()
        here = pathlib.Path(__file__).resolve().parent
        tests = loader.loadTestsFromNames(names) if names else loader.discover(str(here), pattern="*_test.py")
        return unittest.TextTestRunner(verbosity=2).run(tests).wasSuccessful()
    finally:
        if nodes:
            nodes.down()
        plane.down()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=fixture.ROOT / "build/release")
    parser.add_argument("--keep-logs", type=pathlib.Path, help="a folder in which the clusters' files and logs stay")
    parser.add_argument("--only-api", action="store_true", help="only the tests that need an API server alone")
    parser.add_argument("tests", nargs="*", help="such as pods_test or pods_test.PodsTest; all, if none is named")
    arguments = parser.parse_args()
    os.environ["LOCKSTEP_BIN"] = str(arguments.build / "bin")
    with tempfile.TemporaryDirectory(prefix="lockstep-e2e-") as temporary:
        folder = arguments.keep_logs or pathlib.Path(temporary)
        passed = True
        if not arguments.tests:
            step("tests on an API server")
            passed = with_api_server(folder, arguments.build)
        if not arguments.only_api:
            step("two nodes")
            passed = with_nodes(folder, arguments.tests) and passed
    step("passed" if passed else "FAILED")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
