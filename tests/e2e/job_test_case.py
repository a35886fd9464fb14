"""TrainingJobs on the cluster, run by the operator that run.py has installed with Helm."""

import json
import pathlib
import re
import tempfile
import threading
import urllib.request

import fixture
from api import ApiError
from installation import Installation
from nodes import read

OWNED = "lockstep.dev/job-name={}"
GATE = "lockstep.dev/e2e"
# Pods keep off each other where they can.
SPREAD = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": {
    "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app.kubernetes.io/managed-by": "lockstep"}}}}]}}


class Placer(threading.Thread):
    """Says of each pod of a namespace that was made with GATE where it goes, by `node_of`, its completion index → node."""

    def __init__(self, test: fixture.ClusterTest, node_of):
        super().__init__(daemon=True)
        self._test, self._node_of, self._closed = test, node_of, threading.Event()
        test.addCleanup(self.close)
        self.start()

    def close(self) -> None:
        self._closed.set()
        self.join()

    def run(self):
        while not self._closed.wait(0.2):
            try:
                for pod in self._test.list("pod"):
                    if pod["spec"].get("schedulingGates"):
                        self._place(pod)
            except (ApiError, OSError):
                pass  # it is gone, or the API server is; there is a next time

    def _place(self, pod: dict) -> None:
        node = self._node_of(pod)
        if node is not None:
            self._test.api.merge(f"/api/v1/namespaces/{self._test.namespace}/pods/{pod['metadata']['name']}", {"spec": {
                "schedulingGates": [], "nodeSelector": {"kubernetes.io/hostname": node} if node else {}}})


def index_of(pod: dict) -> int:
    return int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])


def node_of(pod: dict) -> int:
    """The number of the node that the pod is on."""
    return int(pod["spec"]["nodeName"].rpartition("-")[2])


def steps_of(report: dict, generation: int) -> int:
    ranks = [rank["step"] for rank in report.get("ranks", []) if rank["phase"] == "Training"]
    return min(ranks, default=0) if report.get("generation", -1) >= generation else 0


class JobTestCase(fixture.ClusterTest):
    """A test on TrainingJobs. Whatever the API server refused the operator meanwhile fails the test."""

    needs_operator = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.installation = Installation(cls.plane)

    def setUp(self):
        super().setUp()
        refused = len(self.installation.refused())
        self.addCleanup(lambda: self.assertEqual(self.installation.refused()[refused:], []))

    def create(self, name: str, replicas: int = 2, processes: int = 1, epochs: int = 1_000_000, template: dict | None = None,
               trainer: dict | None = None, **spec) -> None:
        """A job of light steps, which goes on for as long as a test may want where no number of epochs is given."""
        pod = {"affinity": SPREAD, **(template or {})}
        # A share of the processors that lets many jobs run side by side.
        pod["containers"] = [{"name": "lockstep", "resources": {"limits": {"cpu": "300m"}, "requests": {"cpu": "10m"}},
                              **(pod.get("containers") or [{}])[0]}]
        self.api.create(fixture.PATHS["trainingjob"].format(self.namespace), {
            "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"replicas": replicas, "processesPerReplica": processes, "devices": {"type": "CPU"},
                     "strategy": {"type": "MultiWorkerMirrored" if replicas > 1 else "Mirrored"},
                     "template": {"spec": pod},
                     "trainer": {"data": {"format": "Digits", "samples": 2000, "testSamples": 500},
                                 "model": {"layers": [{"type": "Dense", "units": 10}], "metrics": ["Accuracy"]},
                                 "batchSize": 96, "epochs": epochs, "seed": 1, **(trainer or {})},
                     **spec, "runPolicy": {"terminationGracePeriodSeconds": 1, "progressDeadlineSeconds": 60,
                                           **spec.get("runPolicy", {})}}})

    def change(self, name: str, **spec) -> None:
        self.api.merge(f"{fixture.PATHS['trainingjob'].format(self.namespace)}/{name}", {"spec": spec})

    def status(self, name: str) -> dict:
        return (self.get("trainingjob", name) or {}).get("status", {})

    def condition(self, name: str, kind: str) -> dict:
        return next((each for each in self.status(name).get("conditions", []) if each["type"] == kind), {})

    def wait_for_phase(self, name: str, phase: str, seconds: float = 90, **fields) -> dict:
        def there():
            status = self.status(name)
            if status.get("phase") in ("Succeeded", "Failed") and phase != status["phase"]:
                self.fail(f"{name} is {status['phase']}, not {phase}\n{self.events()}")
            return status if status.get("phase") == phase and all(status.get(k) == v for k, v in fields.items()) else None

        return self.wait_until(there, f"{name} is {phase} {fields or ''}", seconds)

    def pods(self, name: str) -> list:
        """Those that are not being deleted, by index, the older first."""
        pods = [pod for pod in self.list("pod", OWNED.format(name)) if "deletionTimestamp" not in pod["metadata"]]
        return sorted(pods, key=lambda pod: (index_of(pod), pod["metadata"]["creationTimestamp"]))

    def pod(self, name: str, index: int) -> dict:
        """The pod of a replica that has not ended; the test fails if there is not exactly one."""
        pods = [pod for pod in self.pods(name) if index_of(pod) == index and pod["status"]["phase"] in ("Pending", "Running")]
        self.assertEqual(len(pods), 1, pods)
        return pods[0]

    def agent(self, name: str) -> dict:
        """What replica 0's agent says of the job, at its pod's own address; empty where it says nothing."""
        pods = [pod for pod in self.pods(name) if index_of(pod) == 0 and pod["status"].get("podIP")]
        return self.agent_at(pods[-1]["status"]["podIP"]) if pods else {}

    def agent_at(self, address: str) -> dict:
        try:
            with urllib.request.urlopen(f"http://{address}:8080/status", timeout=2) as answer:
                return json.load(answer)
        except OSError:
            return {}

    def steps(self, name: str, generation: int = 0) -> int:
        """Steps that the job has made in that generation or a later one of this attempt."""
        return steps_of(self.agent(name), generation)

    def steps_at(self, address: str) -> int:
        return steps_of(self.agent_at(address), 0)

    def wait_for_steps(self, name: str, generation: int = 0, seconds: float = 120) -> int:
        return self.wait_until(lambda: self.steps(name, generation), f"{name} makes steps in generation {generation}", seconds)

    def ranks_of(self, name: str, index: int) -> list:
        """The pids, as this machine has them, of a replica's trainers."""
        return self.processes_of(name, index, "lockstep-trainer")

    def processes_of(self, name: str, index: int, program: str) -> list:
        pod = self.pod(name, index)
        uid = pod["metadata"]["uid"]
        return [pid for pid in self.nodes.processes(node_of(pod), program)
                if uid in read(pathlib.Path(f"/proc/{pid}/cgroup"))]

    def children(self, name: str) -> list:
        """Whatever the job has in the cluster."""
        return [f"{kind} {each['metadata']['name']}" for kind in ("job", "service", "secret", "pod")
                for each in self.list(kind, OWNED.format(name))]

    def give_volume(self, name: str, folder: pathlib.Path | None = None) -> pathlib.Path:
        """A claim of that name for a folder that all nodes share, as they would a file server's; a new one by default."""
        if folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="lockstep-volume-", ignore_cleanup_errors=True)
            self.addCleanup(temporary.cleanup)
            folder = pathlib.Path(temporary.name)
            folder.chmod(0o777)
        size = {"storage": "1Gi"}
        volume = f"{self.namespace}-{name}"
        self.api.create("/api/v1/persistentvolumes", {"metadata": {"name": volume}, "spec": {
            "capacity": size, "accessModes": ["ReadWriteMany"], "hostPath": {"path": str(folder)}, "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": self.namespace, "name": name}}})
        self.addCleanup(self.api.delete, f"/api/v1/persistentvolumes/{volume}", True)
        self.api.create(f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims", {"metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteMany"], "resources": {"requests": size}, "storageClassName": "", "volumeName": volume}})
        return folder


def with_volume(claim: str, path: str, **template) -> dict:
    """A pod's spec with that claim at `path`."""
    return {**template, "volumes": [{"name": claim, "persistentVolumeClaim": {"claimName": claim}}],
            "containers": [{"name": "lockstep", "volumeMounts": [{"name": claim, "mountPath": path}]}]}


def printed_result(log: str) -> tuple:
    """Loss and accuracy on the test samples, which rank 0 prints at the end."""
    match = re.search(r"test: loss ([0-9.]+), accuracy ([0-9.]+)", log)
    if match is None:
        raise AssertionError(f"no result in the log:\n{log}")
    return tuple(map(float, match.groups()))
