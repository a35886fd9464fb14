"""The image in pods of real nodes, under the restricted Pod Security Standard: what every job on a cluster stands on."""

import json
import secrets
import unittest

from fixture import ClusterTest, restricted_container
from jobs import printed_result, training_job

NODES = 2
PORT = 29400


class PodsTest(ClusterTest):
    def pod(self, name: str, arguments: list, node: int) -> dict:
        return {
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": {"app": "digits"}}, "spec": {
                "restartPolicy": "Never", "hostname": name, "subdomain": "digits", "automountServiceAccountToken": False,
                "nodeSelector": {"kubernetes.io/hostname": f"node-{node}"},
                "containers": [restricted_container("lockstep", arguments, workingDir="/runs", volumeMounts=[
                    {"name": "job", "mountPath": "/job"}, {"name": "runs", "mountPath": "/runs"},
                    {"name": "tmp", "mountPath": "/tmp"}, {"name": "shared-memory", "mountPath": "/dev/shm"}])],
                "volumes": [
                    {"name": "job", "projected": {"sources": [{"configMap": {"name": "digits"}}, {"secret": {"name": "digits"}}]}},
                    {"name": "runs", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}},
                    {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}}],
            }}}}

    def prepare(self, job: str) -> None:
        self.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "digits"}, "data": {"job.yaml": job}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "digits"}, "stringData": {"token": secrets.token_hex(16)}},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "digits"}, "spec": {
                "clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "digits"}}})

    def result(self, job: str) -> tuple:
        return printed_result(self.kubectl("logs", f"job/{job}"))

    def test_a_job_on_two_nodes_ends_as_it_does_on_one(self):
        self.prepare(training_job(replicas=1, processes=4))
        self.apply(self.pod("alone", ["run", "/job/job.yaml", "--run-dir", "/runs/run"], node=0))
        self.assertEqual(self.wait_for_job("alone"), "Complete", self.events())
        loss, accuracy = self.result("alone")
        self.assertGreater(accuracy, 0.8)

        self.prepare(training_job(replicas=NODES, processes=2))
        leader = f"leader.digits.{self.namespace}.svc.cluster.local.:{PORT}"
        for replica, name in enumerate(("leader", "follower")):
            address = f"0.0.0.0:{PORT}" if replica == 0 else leader
            self.apply(self.pod(name, ["run", "/job/job.yaml", "--run-dir", "/runs/run", "--replica", str(replica), "--rendezvous", address,
                                       "--token-file", "/job/token"], node=replica))
        for name in ("leader", "follower"):
            self.assertEqual(self.wait_for_job(name), "Complete", self.events())
        on_two = self.result("leader")
        self.assertAlmostEqual(on_two[0], loss, delta=0.01)
        self.assertAlmostEqual(on_two[1], accuracy, delta=0.01)

    def test_a_pod_of_the_image_is_refused_what_the_restricted_standard_forbids(self):
        # That the namespaces of these tests enforce it, or the tests beside this one would prove nothing.
        self.prepare(training_job(replicas=1, processes=1))
        pod = self.pod("privileged", ["version"], node=0)
        pod["spec"]["template"]["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
        result = self.try_kubectl("apply", "-f", "-", text=json.dumps(pod))
        self.assertIn("would violate PodSecurity", result.stderr)
        self.wait_until(lambda: "violates PodSecurity" in self.events(), "the pod is refused")
        self.assertEqual(self.kubectl("get", "pods", "-o", "name"), "")


if __name__ == "__main__":
    unittest.main()
