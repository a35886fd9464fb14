"""What jobs live on while what runs them is away: the operator, its leader, the API server, etcd, and Helm at work."""

import datetime
import os
import pathlib
import signal
import unittest

from job_test_case import JobTestCase, node_of
from nodes import read


class OperatorFaultsTest(JobTestCase):
    alone = True

    def operator_process(self, name: str) -> int:
        """The pid of the operator in the pod of that name."""
        pod = next(pod for pod in self.installation.pods() if pod["metadata"]["name"] == name)
        uid = pod["metadata"]["uid"]
        for pid in self.nodes.processes(node_of(pod), "lockstep"):
            if uid in read(pathlib.Path(f"/proc/{pid}/cgroup")):
                return pid
        self.fail(f"no process of {name}")

    def leader(self) -> str:
        """The pod whose operator acts."""
        names = [pod["metadata"]["name"] for pod in self.installation.pods()]
        holder = self.installation.leader()
        return next((name for name in names if holder.startswith(name + "_")), "")

    def undisturbed(self, name: str, before: list) -> None:
        made = self.steps(name)
        self.wait_until(lambda: self.steps(name) > made, f"{name} goes on")
        self.assertEqual([pod["metadata"]["uid"] for pod in self.pods(name)], before)
        self.assertEqual((self.agent(name)["generation"], self.status(name)["attempt"]), (0, 0))

    def begin(self, name: str) -> list:
        self.create(name)
        self.wait_for_steps(name)
        return [pod["metadata"]["uid"] for pod in self.pods(name)]

    def test_an_operator_that_is_killed_goes_on_where_it_was(self):
        before = self.begin("runs")
        killed = self.wait_until(self.leader, "somebody leads")
        os.kill(self.operator_process(killed), signal.SIGKILL)
        self.create("comes-meanwhile", epochs=1)
        self.wait_for_phase("comes-meanwhile", "Succeeded", 120)
        self.undisturbed("runs", before)

    def test_a_leader_that_is_paused_for_longer_than_its_lease_gives_way(self):
        self.installation.up(replicas=2)
        self.addCleanup(self.installation.up)
        before = self.begin("led")
        first = self.wait_until(self.leader, "somebody leads")
        process = self.operator_process(first)
        os.kill(process, signal.SIGSTOP)
        self.addCleanup(lambda: os.path.exists(f"/proc/{process}") and os.kill(process, signal.SIGCONT))
        second = self.wait_until(lambda: self.leader() not in ("", first) and self.leader(), "another leads", 60)
        self.create("of-the-second", epochs=1)
        self.wait_for_phase("of-the-second", "Succeeded", 120)
        os.kill(process, signal.SIGCONT)
        # It sees that it was deposed, ends, and is started anew as one that waits.
        self.wait_until(lambda: not os.path.exists(f"/proc/{process}"), "the old leader's process ends")
        self.undisturbed("led", before)
        self.assertEqual(self.leader(), second)

    def test_jobs_and_operator_outlive_the_api_server_and_etcd(self):
        for program in ("kube-apiserver", "etcd"):
            with self.subTest(program=program):
                name = f"without-{program.rpartition('-')[2]}"
                before = self.begin(name)
                made = self.steps(name)
                address = self.pod(name, 0)["status"]["podIP"]
                since = datetime.datetime.now(datetime.timezone.utc)
                self.plane.stop(program)
                try:
                    self.wait_until(lambda: self.steps_at(address) > made, "the job goes on meanwhile", 30)
                finally:
                    self.plane.start(program)
                self.wait_until(self.ready, "the API server is ready", 60)
                self.installation.server_restarted(since)
                self.create(f"after-{name}", epochs=1)
                self.wait_for_phase(f"after-{name}", "Succeeded", 120)
                self.undisturbed(name, before)

    def ready(self) -> bool:
        return self.try_kubectl("get", "--raw", "/readyz").returncode == 0

    def test_a_job_runs_on_while_helm_upgrades_the_operator(self):
        before = self.begin("upgraded")
        pods = {pod["metadata"]["uid"] for pod in self.installation.pods()}
        self.installation.up(podAnnotations={"lockstep.dev/e2e": "another"})
        self.addCleanup(self.installation.up)
        self.assertTrue(pods.isdisjoint(pod["metadata"]["uid"] for pod in self.installation.pods()))
        self.create("comes-after", epochs=1)
        self.wait_for_phase("comes-after", "Succeeded", 120)
        self.undisturbed("upgraded", before)


if __name__ == "__main__":
    unittest.main()
