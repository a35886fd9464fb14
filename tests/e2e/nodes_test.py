"""The ways in which a node of the test cluster can fail do what they are named after: the jobs' tests rely on it."""

import unittest

from fixture import SPARE_TAINT, ClusterTest, restricted_container


class NodesTest(ClusterTest):
    side_by_side = True

    def setUp(self):
        super().setUp()
        self.node = self.take_spare_node()

    def idle_pod(self, name: str) -> dict:
        container = restricted_container("idle", [])
        container["image"] = "lockstep.dev/pause:1"
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "nodeSelector": {"kubernetes.io/hostname": f"node-{self.node}"},
            "tolerations": [{"key": SPARE_TAINT, "operator": "Exists"}], "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container]}}

    def start(self, name: str) -> None:
        self.apply(self.idle_pod(name))
        self.wait_until(lambda: self.running(name), f"{name} runs")

    def running(self, name: str) -> bool:
        """As its kubelet said last."""
        return (self.get("pod", name) or {}).get("status", {}).get("phase") == "Running"

    def evicted(self, name: str) -> bool:
        """Whether the control plane has asked for the pod's end."""
        pod = self.get("pod", name)
        return pod is None or "deletionTimestamp" in pod["metadata"]

    def test_a_node_without_power_is_not_ready_and_comes_back_without_its_pods_processes(self):
        self.start("victim")
        self.nodes.power_off(self.node)
        self.addCleanup(self.power_on_if_off)
        self.wait_until(lambda: not self.nodes.ready(self.node), "the node is not Ready", 30)
        self.wait_until(lambda: self.evicted("victim"), "its pod is evicted", 30)
        self.nodes.power_on(self.node)
        self.wait_until(lambda: self.nodes.ready(self.node), "the node is Ready", 60)
        self.wait_until(lambda: self.get("pod", "victim") is None, "the pod is gone", 60)
        self.start("next")

    def power_on_if_off(self):
        if not self.plane.processes.pid(f"node-{self.node}"):
            self.nodes.power_on(self.node)

    def test_pods_outlive_their_kubelet(self):
        self.start("survivor")
        before = self.get("pod", "survivor")["status"]["containerStatuses"][0]["containerID"]
        self.nodes.stop_kubelet(self.node)
        self.nodes.start_kubelet(self.node)
        self.start("started-by-the-new-kubelet")
        status = self.get("pod", "survivor")["status"]
        self.assertEqual(status["containerStatuses"][0]["containerID"], before)
        self.assertEqual(status["containerStatuses"][0]["restartCount"], 0)

    def test_a_node_whose_cable_is_pulled_is_not_ready_until_it_is_plugged_in(self):
        self.nodes.pull_cable(self.node)
        self.addCleanup(self.nodes.plug_cable, self.node)
        self.wait_until(lambda: not self.nodes.ready(self.node), "the node is not Ready", 30)
        self.nodes.plug_cable(self.node)
        self.wait_until(lambda: self.nodes.ready(self.node), "the node is Ready", 60)


class ControlPlaneTest(ClusterTest):
    alone = True

    def test_the_api_server_and_its_store_come_back_with_what_they_held(self):
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"key": "value"}})
        for program in ("kube-apiserver", "etcd"):
            self.plane.stop(program)
            self.plane.start(program)
        self.wait_until(lambda: self.try_kubectl("get", "configmap", "kept").returncode == 0, "the object is there")
        self.assertEqual(self.get("configmap", "kept")["data"], {"key": "value"})


if __name__ == "__main__":
    unittest.main()
