"""`lockstep agent` in the pods of Indexed Jobs, in the shape that the operator gives them, on real nodes."""

import json
import os
import secrets
import signal
import unittest
import urllib.request

from fixture import ClusterTest, restricted_container
from jobs import printed_result, training_job

NODES = 2
PORT = 29400


class AgentsTest(ClusterTest):
    def start(self, replicas: int, processes: int, epochs: int) -> None:
        manifest = training_job(replicas, processes, epochs, http={"address": "0.0.0.0", "port": 8080})
        arguments = ["agent", "--manifest", "/etc/lockstep/job/manifest.json", "--run-dir", "/var/run/lockstep/run"]
        if replicas > 1:
            arguments += ["--rendezvous", f"digits-0.digits.{self.namespace}.svc.cluster.local.:{PORT}",
                          "--token-file", "/etc/lockstep/token/token"]
        container = restricted_container(
            "lockstep", arguments, ports=[{"name": "http", "containerPort": 8080}],
            env=[{"name": "LOCKSTEP_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
            volumeMounts=[{"name": "job", "mountPath": "/etc/lockstep/job"}, {"name": "token", "mountPath": "/etc/lockstep/token"},
                          {"name": "run", "mountPath": "/var/run/lockstep"}, {"name": "tmp", "mountPath": "/tmp"},
                          {"name": "shared-memory", "mountPath": "/dev/shm"}])
        template = {"metadata": {"labels": {"app": "digits"}}, "spec": {
            "restartPolicy": "Never", "subdomain": "digits", "automountServiceAccountToken": False,
            "securityContext": {"fsGroup": 65532},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                                           "whenUnsatisfiable": "DoNotSchedule",
                                           "labelSelector": {"matchLabels": {"app": "digits"}}}],
            "containers": [container],
            "volumes": [{"name": "job", "configMap": {"name": "digits"}},
                        {"name": "token", "secret": {"secretName": "digits", "defaultMode": 0o440}},
                        {"name": "run", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}},
                        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]}}
        self.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "digits"}, "data": {"manifest.json": manifest}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "digits"}, "stringData": {"token": secrets.token_hex(16)}},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "digits"}, "spec": {
                "clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "digits"}}},
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "digits"}, "spec": {
                "completionMode": "Indexed", "completions": replicas, "parallelism": replicas, "backoffLimit": 4,
                "podReplacementPolicy": "Failed", "template": template}})

    def pods(self, index: int) -> list:
        """The pods of one index of the Job, the oldest first."""
        listed = json.loads(self.kubectl("get", "pods", "-o", "json", "-l", f"batch.kubernetes.io/job-completion-index={index}",
                                         "--sort-by=.metadata.creationTimestamp"))
        return listed["items"]

    def result(self) -> tuple:
        """Of the pod of replica 0 that succeeded."""
        done = [pod for pod in self.pods(0) if pod["status"]["phase"] == "Succeeded"]
        self.assertEqual(len(done), 1)
        return printed_result(self.kubectl("logs", done[0]["metadata"]["name"]))

    def step(self) -> int:
        """How far the job is, as replica 0's agent says at the pod's own address; 0 before it says anything."""
        address = next((pod["status"].get("podIP") for pod in reversed(self.pods(0))), None)
        if address is None:
            return 0
        try:
            with urllib.request.urlopen(f"http://{address}:8080/status", timeout=5) as answer:
                return (json.load(answer).get("progress") or {}).get("step") or 0
        except OSError:
            return 0

    def wait_for_steps(self) -> None:
        self.wait_until(lambda: self.step() > 0, "steps are taken", 120)

    def test_two_agents_on_two_nodes_train_as_one(self):
        self.start(replicas=NODES, processes=2, epochs=1)
        self.assertEqual(self.wait_for_job("digits"), "Complete", self.events())
        self.assertGreater(self.result()[1], 0.8)
        self.assertEqual({pod["spec"]["nodeName"] for index in range(NODES) for pod in self.pods(index)}, {"node-0", "node-1"})

    def test_a_killed_rank_is_restarted_in_its_pod(self):
        self.start(replicas=NODES, processes=2, epochs=60)
        self.wait_for_steps()
        node = int(self.pods(1)[0]["spec"]["nodeName"].rpartition("-")[2])
        os.kill(self.nodes.processes(node, "lockstep-trainer")[0], signal.SIGKILL)
        self.assertEqual(self.wait_for_job("digits", 300), "Complete", self.events())
        self.assertEqual([len(self.pods(index)) for index in range(NODES)], [1, 1])
        self.assertGreater(self.result()[1], 0.8)

    def test_a_killed_agent_is_back_in_its_pod(self):
        self.start(replicas=NODES, processes=2, epochs=60)
        self.wait_for_steps()
        node = int(self.pods(1)[0]["spec"]["nodeName"].rpartition("-")[2])
        keeper, agent = sorted(self.nodes.processes(node, "lockstep"))[:2]
        self.assertLess(keeper, agent)
        os.kill(agent, signal.SIGKILL)
        self.assertEqual(self.wait_for_job("digits", 300), "Complete", self.events())
        self.assertEqual([len(self.pods(index)) for index in range(NODES)], [1, 1])

    def test_a_deleted_pod_is_replaced_and_the_survivor_goes_on_with_it(self):
        self.start(replicas=NODES, processes=2, epochs=60)
        self.wait_for_steps()
        first = self.pods(1)[0]["metadata"]
        self.kubectl("delete", "pod", first["name"], "--force", "--grace-period=0")
        self.assertEqual(self.wait_for_job("digits", 300), "Complete", self.events())
        survivor, replaced = self.pods(0), self.pods(1)
        self.assertEqual(len(survivor), 1)
        self.assertNotIn(first["uid"], [pod["metadata"]["uid"] for pod in replaced])


if __name__ == "__main__":
    unittest.main()
