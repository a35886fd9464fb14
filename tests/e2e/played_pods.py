"""Pods without a kubelet: binds a job's pods to a node that is none and says what became of them, as a test wants it."""

import json

from api import ApiError
from control_plane import ControlPlane

NODE = "played"
TIME = "2026-01-31T12:00:00Z"


def make_node(plane: ControlPlane) -> None:
    """A node that nothing is scheduled to: pods are bound to it by name."""
    nodes = plane.api.get("/api/v1/nodes")["items"]
    if all(node["metadata"]["name"] != NODE for node in nodes):
        plane.api.create("/api/v1/nodes", {"metadata": {"name": NODE}, "spec": {"unschedulable": True}})


class PlayedPods:
    """The pods of the TrainingJob `job`."""

    def __init__(self, plane: ControlPlane, namespace: str, job: str):
        self._api = plane.api
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._job = job

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

    def end(self, pod: dict, code: int, reason: str = "Error", message: str = "") -> None:
        self._become(pod, "Failed" if code else "Succeeded", {"terminated": {
            "exitCode": code, "reason": reason if code else "Completed", "message": message, "startedAt": TIME,
            "finishedAt": TIME}})

    def end_all(self) -> None:
        for pod in self.alive():
            self.end(pod, 0)

    def fail(self, pod: dict, replica: int, code: int, message: str) -> None:
        """As an agent does when the job has failed."""
        self.end(pod, 3, message=json.dumps({"exitCode": code, "reason": "Error", "message": message, "replica": replica}))

    def _become(self, pod: dict, phase: str, state: dict) -> None:
        self._api.merge(f"{self._pods}/{pod['metadata']['name']}/status", {"status": {
            "phase": phase, "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{"name": "lockstep", "image": "", "imageID": "", "ready": False, "restartCount": 0,
                                   "state": state}]}})
