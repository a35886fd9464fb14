"""Many jobs at once, on nodes that kwok plays: its pods become Running, and succeed, as soon as they have a node."""

import json
import pathlib
import subprocess
import time
import unittest

import binaries
import fixture
from control_plane import answers
from job_test_case import JobTestCase
from processes import free_port

JOBS = 200
NODES = 50
PLAYED = {"kwok.x-k8s.io/node": "fake"}
STAGES = ("node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease", "pod/fast/pod-ready",
          "pod/fast/pod-complete", "pod/fast/pod-delete")


class ScaleTest(JobTestCase):
    alone = True

    def setUp(self):
        super().setUp()
        # (Its folder is known only once it is there: a compiled kwok may outlive it.)
        module = subprocess.run(["go", "mod", "download", "-json", "sigs.k8s.io/kwok"], cwd=binaries.MODULES / "kwok", check=True,
                                text=True, capture_output=True).stdout
        stages = pathlib.Path(json.loads(module)["Dir"]) / "kustomize/stage"
        address = f"127.0.0.1:{free_port()}"
        self.plane.processes.start("kwok", [
            binaries.path("kwok"), f"--kubeconfig={self.plane.kubeconfig}", f"--server-address={address}",
            "--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--node-lease-duration-seconds=40", *(f"--config={stages / stage}.yaml" for stage in STAGES)],
            lambda: answers(f"http://{address}/healthz"))
        self.addCleanup(self.plane.processes.stop, "kwok", 0)
        for index in range(NODES):
            name = f"played-{index}"
            self.api.create("/api/v1/nodes", {
                "metadata": {"name": name, "annotations": PLAYED, "labels": {"type": "played"}},
                "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "effect": "NoSchedule"}]}})
            self.addCleanup(self.api.delete, f"/api/v1/nodes/{name}", True)

    def test_two_hundred_jobs_come_and_go(self):
        restarts = self.operator_restarts()
        begun = time.monotonic()
        template = {"nodeSelector": {"type": "played"}, "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]}
        for index in range(JOBS):
            self.create(f"job-{index}", template=template)
        created = time.monotonic()
        self.wait_until(lambda: self.phases() == {"Succeeded": JOBS}, "all have succeeded", 120)
        done = time.monotonic()
        self.api.delete(fixture.PATHS["trainingjob"].format(self.namespace))
        labels = "app.kubernetes.io/managed-by=lockstep"
        self.wait_until(lambda: not self.list("trainingjob") and not any(
            self.list(kind, labels) for kind in ("job", "service", "secret", "pod")), "nothing is left of them", 120)
        gone = time.monotonic()
        print(f"{JOBS} jobs of two replicas: made in {created - begun:.1f} s, all succeeded after {done - begun:.1f} s, and gone "
              f"{gone - done:.1f} s after they were deleted", flush=True)
        self.assertEqual(self.operator_restarts(), restarts)

    def phases(self) -> dict:
        counts = {}
        for job in self.list("trainingjob"):
            phase = job.get("status", {}).get("phase")
            counts[phase] = counts.get(phase, 0) + 1
        if "Failed" in counts:
            self.fail(json.dumps(counts))
        return counts

    def operator_restarts(self) -> list:
        return [status["restartCount"] for pod in self.installation.pods() for status in pod["status"]["containerStatuses"]]


if __name__ == "__main__":
    unittest.main()
