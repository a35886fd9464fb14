"""A job that goes on with fewer replicas in real pods, and with all of them when they are there again."""

import unittest

from job_test_case import GATE, JobTestCase, Placer, with_volume


class ElasticJobsTest(JobTestCase):
    side_by_side = True
    slow = True  # 30 s until a replica is left out, 60 s until the job may grow

    def test_it_goes_on_without_a_pod_that_finds_no_node_and_grows_again(self):
        self.held = False
        Placer(self, lambda pod: None if self.held else "")
        self.give_volume("checkpoints")
        self.create("elastic", runPolicy={"minReplicas": 1}, trainer={"checkpoint": {"directory": "/checkpoints/elastic", "every": 20}},
                    template=with_volume("checkpoints", "/checkpoints", schedulingGates=[{"name": GATE}]))
        self.wait_until(lambda: self.steps("elastic") > 40, "two checkpoints are made", 120)

        self.held = True
        self.kubectl("delete", "pod", self.pod("elastic", 1)["metadata"]["name"], "--wait=false")
        self.wait_until(lambda: self.condition("elastic", "Running").get("reason") == "FewerReplicas", "it goes on with one", 120)
        self.assertGreaterEqual(self.wait_for_steps("elastic", generation=1), 40)
        self.assertEqual(self.agent("elastic")["replicas"], {"desired": 2, "running": 1, "leftOut": [1]})
        self.assertEqual(self.status("elastic")["replicas"]["desired"], 2)

        alone = self.steps("elastic")
        self.held = False
        self.wait_until(lambda: self.agent("elastic").get("replicas", {}).get("running") == 2, "it grows again", 150)
        self.assertGreaterEqual(self.wait_for_steps("elastic", generation=2), alone)
        self.wait_until(lambda: self.condition("elastic", "Running").get("reason") != "FewerReplicas", "the operator says so")
        status = self.status("elastic")
        self.assertEqual((status["phase"], status["attempt"], status["restarts"]), ("Running", 0, 0))


if __name__ == "__main__":
    unittest.main()
