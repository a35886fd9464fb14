"""Pods without a kubelet: binds a job's pods to a node that is none and says what became of them, as a test wants it."""

import json
import threading
import time

from api import ApiError
from control_plane import ControlPlane

NODE = "played"
TIME = "2026-01-31T12:00:00Z"


class PlayedNode(threading.Thread):
    """A node that no kubelet runs. It stays Ready until it is closed, or its pods would be evicted.

    Without `pods` nothing is scheduled to it: pods are bound to it by name. With it the scheduler gives it as many."""

    def __init__(self, plane: ControlPlane, name: str = NODE, labels: dict | None = None, pods: int | None = None):
        super().__init__(daemon=True)
        self._plane, self._name, self._closed = plane, name, threading.Event()
        self._resources = {"cpu": "64", "memory": "64Gi", "pods": str(pods or 110)}
        try:
            plane.api.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels or {}},
                                               "spec": {"unschedulable": pods is None}})
        except ApiError as error:
            if error.code != 409:  # another test class has it too
                raise
        self._beat()
        self.start()

    def close(self) -> None:
        self._closed.set()
        self.join()

    def remove(self) -> None:
        self.close()
        self._plane.api.delete(f"/api/v1/nodes/{self._name}")

    def run(self):
        while not self._closed.wait(2):
            try:
                self._beat()
            except (ApiError, OSError):
                pass  # the API server is away

    def _beat(self) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._plane.api.merge(f"/api/v1/nodes/{self._name}/status", {"status": {
            "capacity": self._resources, "allocatable": self._resources, "conditions": [
                {"type": "Ready", "status": "True", "reason": "Played", "message": "", "lastHeartbeatTime": now}]}})


def end_pods(plane: ControlPlane, namespace: str) -> None:
    """No kubelet does, and their namespace waits for them."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for pod in plane.api.get(pods)["items"]:
        try:
            plane.api.text("DELETE", f"{pods}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.code != 404:
                raise


class PlayedPods:
    """The pods of the TrainingJob `job`."""

    def __init__(self, plane: ControlPlane, namespace: str, job: str):
        self._api = plane.api
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._job = job
        self.address = None  # where its agents are; none: nowhere

    def all(self) -> list:
        return self._api.get(f"{self._pods}?labelSelector=lockstep.dev/job-name={self._job}")["items"]

    def alive(self) -> list:
        return [pod for pod in self.all() if "deletionTimestamp" not in pod["metadata"]
                and pod["status"]["phase"] in ("Pending", "Running")]

    def run(self) -> None:
        """Every pod that waits gets a node and runs; every pod that is being deleted goes."""
        for pod in self.all():
            try:
                self._run(pod)
            except ApiError as error:
                if error.code not in (404, 409):  # it is gone, or about to go
                    raise

    def _run(self, pod: dict) -> None:
        name = pod["metadata"]["name"]
        if "deletionTimestamp" in pod["metadata"]:
            self._api.text("DELETE", f"{self._pods}/{name}", {"gracePeriodSeconds": 0})
        elif pod["status"]["phase"] == "Pending":
            if not pod["spec"].get("nodeName"):
                self._api.create(f"{self._pods}/{name}/binding", {
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": NODE}})
            self._become(pod, "Running", {"running": {"startedAt": TIME}})

    def end(self, pod: dict, code: int, reason: str = "Error", message: str = "", conditions: list | None = None) -> None:
        self._become(pod, "Failed" if code else "Succeeded", {"terminated": {
            "exitCode": code, "reason": reason if code else "Completed", "message": message, "startedAt": TIME,
            "finishedAt": TIME}}, conditions)

    def drain(self, pod: dict) -> None:
        """As an eviction does, and the kubelet then."""
        self.end(pod, 143, conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}])

    def end_all(self) -> None:
        for pod in self.alive():
            self.end(pod, 0)

    def fail(self, pod: dict, replica: int, code: int, message: str) -> None:
        """As an agent does when the job has failed."""
        self.end(pod, 3, message=json.dumps({"exitCode": code, "reason": "Error", "message": message, "replica": replica}))

    def _become(self, pod: dict, phase: str, state: dict, conditions: list | None = None) -> None:
        addresses = {"podIP": self.address, "podIPs": [{"ip": self.address}]} if self.address else {}
        self._api.merge(f"{self._pods}/{pod['metadata']['name']}/status", {"status": {
            "phase": phase, **addresses, "conditions": [{"type": "PodScheduled", "status": "True"}, *(conditions or [])],
            "containerStatuses": [{"name": "lockstep", "image": "", "imageID": "", "ready": False, "restartCount": 0,
                                   "state": state}]}})
