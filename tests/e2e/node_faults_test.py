"""What becomes of a job when a node of its fails: each test has one to itself, and node-0, which stays well."""

import unittest

import fixture
from job_test_case import GATE, JobTestCase, Placer, index_of, node_of, with_volume


class NodeFaultsTest(JobTestCase):
    side_by_side = True
    slow = True

    def start(self, name: str, victim: int, **spec) -> int:
        """A job of two replicas with a checkpoint every 20 steps; the replica `victim` of its first attempt is on the node
        that is returned, whatever else its pods need on node-0."""
        node = self.take_spare_node()

        def place(pod):
            first = pod["metadata"]["labels"]["lockstep.dev/attempt"] == "0" and not self.moved
            return f"node-{node}" if first and index_of(pod) == victim else "node-0"

        self.moved = False
        Placer(self, place)
        self.give_volume("checkpoints")
        self.create(name, template=with_volume(
            "checkpoints", "/checkpoints", schedulingGates=[{"name": GATE}],
            tolerations=[{"key": fixture.SPARE_TAINT, "operator": "Exists"}]),
            trainer={"checkpoint": {"directory": f"/checkpoints/{name}", "every": 20}}, **spec)
        self.wait_until(lambda: self.steps(name) > 40, "two checkpoints are made", 120)
        self.assertEqual(node_of(self.pod(name, victim)), node)
        return node

    def goes_on(self, name: str, attempt: int) -> None:
        """The job makes steps after its checkpoint, in exactly that attempt, and what it had before is given up."""
        self.wait_for_phase(name, "Running", 180, attempt=attempt)
        self.assertGreaterEqual(self.wait_for_steps(name), 40)
        jobs = self.list("job", f"lockstep.dev/job-name={name}")
        self.assertEqual([job["metadata"]["name"] for job in jobs], [f"{name}-worker-{attempt}"])

    def test_a_node_without_power_does_not_keep_the_job(self):
        node = self.start("dark", victim=1)
        self.nodes.power_off(node)
        self.addCleanup(lambda: self.nodes.ready(node) or self.nodes.power_on(node))
        self.wait_for_phase("dark", "Restarting", 60)
        self.goes_on("dark", attempt=1)
        self.assertEqual({node_of(pod) for pod in self.pods("dark") if pod["status"]["phase"] == "Running"}, {0})
        self.assertEqual(self.status("dark")["restarts"], 1)

    def test_the_leader_s_node_is_cut_off_and_its_old_pod_runs_on_beside_the_new_one(self):
        node = self.start("split", victim=0)
        old = self.pod("split", 0)["metadata"]["uid"]
        ranks = self.ranks_of("split", 0)
        self.nodes.pull_cable(node)
        self.addCleanup(self.nodes.plug_cable, node)
        self.goes_on("split", attempt=1)
        # Nobody could tell it to end.
        alive = [pid for pid in self.nodes.processes(node, "lockstep") + self.nodes.processes(node, "lockstep-trainer")]
        self.assertTrue(ranks and alive)
        new = [pod["metadata"]["uid"] for pod in self.pods("split")]
        self.assertNotIn(old, new)
        before = self.steps("split")
        self.nodes.plug_cable(node)
        self.wait_until(lambda: self.nodes.ready(node), "the node is back", 60)
        self.wait_until(lambda: not self.nodes.processes(node, "lockstep"), "the old pod ends", 60)
        # And the new ones never noticed.
        self.wait_until(lambda: self.steps("split") > before, "the job goes on")
        self.assertEqual([pod["metadata"]["uid"] for pod in self.pods("split")], new)
        self.assertEqual((self.agent("split")["generation"], self.status("split")["attempt"]), (0, 1))

    def test_a_job_does_not_notice_that_a_kubelet_is_away_for_a_while(self):
        node = self.start("kept", victim=1)
        before = [pod["metadata"]["uid"] for pod in self.pods("kept")]
        self.nodes.stop_kubelet(node)
        self.addCleanup(lambda: self.nodes.ready(node) or self.nodes.start_kubelet(node))
        made = self.steps("kept")
        self.wait_until(lambda: self.steps("kept") > made, "the job goes on meanwhile")
        self.nodes.start_kubelet(node)
        self.wait_until(lambda: self.nodes.ready(node), "the node is Ready")
        made = self.steps("kept")
        self.wait_until(lambda: self.steps("kept") > made, "the job goes on")
        self.assertEqual([pod["metadata"]["uid"] for pod in self.pods("kept")], before)
        self.assertEqual(self.agent("kept")["generation"], 0)

    def test_a_node_whose_kubelet_stays_away_is_given_up(self):
        node = self.start("orphan", victim=1)
        self.nodes.stop_kubelet(node)
        self.addCleanup(lambda: self.nodes.ready(node) or self.nodes.start_kubelet(node))
        self.goes_on("orphan", attempt=1)
        self.nodes.start_kubelet(node)
        self.wait_until(lambda: not self.nodes.processes(node, "lockstep"), "the old pod ends", 60)
        self.assertEqual((self.agent("orphan")["generation"], self.status("orphan")["attempt"]), (0, 1))

    def test_a_drain_is_not_a_failure(self):
        node = self.start("drained", victim=1, runPolicy={"maxRestarts": 0})
        survivor = self.pod("drained", 0)["metadata"]["uid"]
        self.addCleanup(self.kubectl, "uncordon", f"node-{node}")
        self.moved = True
        self.kubectl("drain", f"node-{node}", "--delete-emptydir-data", "--timeout=60s")
        self.wait_for_phase("drained", "Restarting")
        self.wait_for_phase("drained", "Running", 60, attempt=0)
        self.assertGreaterEqual(self.wait_for_steps("drained", generation=1), 40)
        self.assertEqual(self.pod("drained", 0)["metadata"]["uid"], survivor)
        self.assertEqual(node_of(self.pod("drained", 1)), 0)
        self.assertEqual(self.condition("drained", "Failed").get("status", "False"), "False")


if __name__ == "__main__":
    unittest.main()
