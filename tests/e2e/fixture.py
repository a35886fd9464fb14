"""What the e2e tests share: one cluster with real nodes for all of them, and a namespace of its own for each test.

run.py brings the cluster up and says where it is in LOCKSTEP_E2E_CLUSTER; a test never starts or ends it. Most tests use
the first two nodes. The spare ones are for tests that make a node fail: nothing else is scheduled to them, so that it
can run meanwhile.
"""

import json
import os
import pathlib
import queue
import secrets
import subprocess
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support/kubernetes"), str(ROOT / "containers")]

import binaries  # noqa: E402
from api import ApiError  # noqa: E402
from control_plane import ControlPlane  # noqa: E402
from nodes import Nodes  # noqa: E402

IMAGE = "lockstep.dev/lockstep:e2e"
OPERATOR_IMAGE = "lockstep.dev/lockstep-operator:e2e"
OPERATOR_NAMESPACE = "lockstep-system"

NODES = 2
SPARE_NODES = 3
SPARE_TAINT = "lockstep.dev/spare"
_spare = queue.SimpleQueue()
for _index in range(NODES, NODES + SPARE_NODES):
    _spare.put(_index)

PATHS = {"pod": "/api/v1/namespaces/{}/pods", "service": "/api/v1/namespaces/{}/services",
         "secret": "/api/v1/namespaces/{}/secrets", "configmap": "/api/v1/namespaces/{}/configmaps",
         "event": "/api/v1/namespaces/{}/events", "serviceaccount": "/api/v1/namespaces/{}/serviceaccounts",
         "job": "/apis/batch/v1/namespaces/{}/jobs",
         "trainingjob": "/apis/lockstep.dev/v1alpha1/namespaces/{}/trainingjobs"}


def bin_folder() -> pathlib.Path:
    return pathlib.Path(os.environ.get("LOCKSTEP_BIN") or ROOT / "build/release/bin")


class ClusterTest(unittest.TestCase):
    """A test on the cluster. `self.namespace` is empty at its start, meets the restricted standard, and goes at its end."""

    @classmethod
    def setUpClass(cls):
        folder = os.environ.get("LOCKSTEP_E2E_CLUSTER")
        if not folder:
            raise unittest.SkipTest("no cluster: ./dev e2e makes one")
        cls.plane = ControlPlane(pathlib.Path(folder))
        cls.api = cls.plane.api
        cls.nodes = Nodes(cls.plane)

    def setUp(self):
        self.namespace = f"e2e-{secrets.token_hex(4)}"
        self.plane.api.create("/api/v1/namespaces", {"metadata": {"name": self.namespace, "labels": {
            "pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}}})
        self.addCleanup(self.plane.api.delete, f"/api/v1/namespaces/{self.namespace}", True)
        # No pod is admitted before it is there.
        self.wait_until(lambda: self.get("serviceaccount", "default"), "the namespace has its service account")

    def take_spare_node(self) -> int:
        """The index of a node that is this test's until its end, and must be Ready then."""
        index = _spare.get(timeout=600)
        self.addCleanup(_spare.put, index)
        self.addCleanup(self.wait_until, lambda: self.nodes.ready(index), f"node-{index} is Ready again", 90)
        return index

    def kubectl(self, *words: str, text: str | None = None, timeout: float = 60) -> str:
        """What kubectl prints; the test fails with what it says on its error stream where it fails."""
        result = self.try_kubectl(*words, text=text, timeout=timeout)
        if result.returncode != 0:
            self.fail(f"kubectl {' '.join(words)}: {result.stderr}")
        return result.stdout

    def try_kubectl(self, *words: str, text: str | None = None, timeout: float = 60) -> subprocess.CompletedProcess:
        return subprocess.run([str(binaries.path("kubectl")), f"--kubeconfig={self.plane.kubeconfig}",
                               f"--namespace={self.namespace}", *words],
                              input=text, text=True, capture_output=True, timeout=timeout, check=False)

    def apply(self, *objects: dict) -> None:
        """Server-side apply of `objects` in the test's namespace. A warning of the API server fails the test."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        result = self.try_kubectl("apply", "--server-side", "-f", "-", text=json.dumps(listed))
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def get(self, kind: str, name: str) -> dict | None:
        """The object of one of PATHS, or None if there is none."""
        try:
            return self.api.get(f"{PATHS[kind].format(self.namespace)}/{name}")
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def list(self, kind: str, labels: str = "") -> list:
        return self.api.get(f"{PATHS[kind].format(self.namespace)}?labelSelector={labels}")["items"]

    def wait_until(self, condition, what: str, seconds: float = 60):
        """Calls `condition` until it returns something true, and returns that. Fails the test after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                self.fail(f"{what}: not so after {seconds:.0f} s\n{self.events()}")
            time.sleep(0.1)

    def events(self) -> str:
        """What happened in the namespace and what its pods and the operator say, for the message of a failure."""
        def shown(*words):
            result = self.try_kubectl(*words)
            return f"--- {' '.join(words)}\n{result.stdout}{result.stderr}"

        text = shown("get", "nodes,jobs,pods", "-o", "wide") + shown("get", "events", "--sort-by=.lastTimestamp")
        text += shown("get", "trainingjobs", "-o", "yaml")
        for pod in self.try_kubectl("get", "pods", "-o", "name").stdout.split():
            text += shown("logs", pod, "--all-containers", "--tail=20")
        return text + shown("logs", "-n", OPERATOR_NAMESPACE, "-l", "app.kubernetes.io/part-of=lockstep", "--tail=20", "--prefix")

    def wait_for_job(self, name: str, seconds: float = 120) -> str:
        """`Complete` or `Failed`: how the batch/v1 Job `name` ended."""
        def ended():
            conditions = (self.get("job", name) or {}).get("status", {}).get("conditions", [])
            return next((c["type"] for c in conditions if c["type"] in ("Complete", "Failed") and c["status"] == "True"), None)

        return self.wait_until(ended, f"Job {name} ended", seconds)


def restricted_container(name: str, arguments: list, **fields) -> dict:
    """A container of the image under test that meets the restricted Pod Security Standard."""
    return {"name": name, "image": IMAGE, "imagePullPolicy": "Never", "args": arguments,
            "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "runAsNonRoot": True,
                                "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}, **fields}
