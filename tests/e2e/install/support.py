"""What the tests of this folder share: kubectl and helm on an API server, and what the manifests and the chart come to."""

import json
import os
import pathlib
import re
import secrets
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support/kubernetes"))

import binaries  # noqa: E402

KUBECONFIG = os.environ.get("LOCKSTEP_TEST_KUBECONFIG")
CHART = ROOT / "helm/lockstep"
CRD = ROOT / "manifests/crd/trainingjobs.lockstep.dev.yaml"
SKIPPED = 77  # CMakeLists.txt


def main() -> None:
    """Runs the tests of the file; without an API server says that they were skipped."""
    if not KUBECONFIG:
        print("no API server: ./dev e2e --only-api makes one")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)


def ran(program: str, *words, text: str | None = None) -> subprocess.CompletedProcess:
    environment = {**os.environ, "KUBECONFIG": KUBECONFIG or "/dev/null"}
    return subprocess.run([str(binaries.path(program)), *map(str, words)], input=text, text=True, capture_output=True,
                          env=environment, timeout=120, check=False)


def output(program: str, *words, text: str | None = None) -> str:
    """What it prints; AssertionError with its errors where it fails."""
    result = ran(program, *words, text=text)
    if result.returncode:
        raise AssertionError(f"{program} {' '.join(map(str, words))}: {result.stderr}")
    return result.stdout


def kubectl(*words, text: str | None = None) -> str:
    return output("kubectl", *words, text=text)


def helm(*words) -> str:
    return output("helm", *words)


def template(*words, release: str = "lockstep", space: str = "lockstep-system") -> str:
    """The chart's objects, as YAML."""
    return helm("template", release, CHART, "-n", space, "--kube-version", binaries.version("kubectl"), *words)


def kustomized(folder) -> str:
    return kubectl("kustomize", ROOT / "manifests" / folder)


def objects(yaml: str) -> list:
    """The objects of a YAML file as they are in it, without any default."""
    text, found, place = kubectl("create", "--dry-run=client", "-o", "json", "-f", "-", text=yaml), [], 0
    decoder = json.JSONDecoder()
    while place < len(text.rstrip()):
        value, place = decoder.raw_decode(text, place)
        found += value["items"] if value["kind"] == "List" else [value]
        place = re.compile(r"\s*").match(text, place).end()
    return found


def new_space() -> str:
    """A namespace that is left behind: nothing on an API server alone would delete it."""
    name = f"install-{secrets.token_hex(4)}"
    kubectl("create", "namespace", name)
    return name
