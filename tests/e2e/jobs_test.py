"""TrainingJobs in real pods, from `kubectl apply` to their end; what happens to them on the way needs no node to fail."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

import binaries
import fixture
from job_test_case import GATE, JobTestCase, Placer, index_of, node_of, printed_result, with_volume
from nodes import read

EPOCHS = 5  # as many as it takes for progress to be seen
STEPS = EPOCHS * 196
MNIST = fixture.ROOT.parent / "shared/data/mnist"


class MnistTest(JobTestCase):
    slow = True

    def spec(self, replicas: int, processes: int, data: dict, template: dict) -> dict:
        dense = {"type": "Dense", "units": 256, "activation": "ReLU"}
        return {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "mnist"}, "spec": {
            "replicas": replicas, "processesPerReplica": processes, "devices": {"type": "CPU"}, "template": {"spec": template},
            "strategy": {"type": "MultiWorkerMirrored" if replicas > 1 else "Mirrored"},
            "trainer": {"data": {**data, "validationSamples": 10000}, "batchSize": 256, "epochs": EPOCHS, "seed": 1,
                        "model": {"layers": [dense, dense, {"type": "Dense", "units": 10}], "metrics": ["Accuracy"]},
                        "optimizer": {"type": "Adam", "learningRate": 0.001}}}}

    def alone(self, data: dict) -> tuple:
        """The result on this machine, without any cluster."""
        text = json.dumps(self.spec(1, 4, data, {}))
        result = subprocess.run([str(fixture.bin_folder() / "lockstep"), "run", "-"], input=text, text=True, capture_output=True,
                                timeout=300, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return printed_result(result.stdout + result.stderr)

    def test_on_two_nodes_it_ends_with_the_accuracy_of_one_machine(self):
        if MNIST.is_dir():
            self.give_volume("mnist", MNIST)
            there, here = ({"format": "IDX", "path": path} for path in ("/data", str(MNIST)))
            template = with_volume("mnist", "/data")
        else:
            there = here = {"format": "Digits", "samples": 60000}
            template = {}
        template["topologySpreadConstraints"] = [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"lockstep.dev/job-name": "mnist"}}}]
        watch = subprocess.Popen([str(binaries.path("kubectl")), f"--kubeconfig={self.plane.kubeconfig}", "-n", self.namespace,
                                  "get", "tjob", "-w"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(watch.wait)
        self.addCleanup(watch.kill)
        self.addCleanup(watch.stdout.close)
        result = self.try_kubectl("apply", "-f", "-", text=json.dumps(self.spec(2, 2, there, template)))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.wait_for_phase("mnist", "Running", 60)
        self.wait_for_phase("mnist", "Succeeded", 300)
        pods = self.pods("mnist")
        self.assertEqual({pod["spec"]["nodeName"] for pod in pods}, {"node-0", "node-1"})
        loss, accuracy = printed_result(self.kubectl("logs", pods[0]["metadata"]["name"]))
        expected = self.alone(here)
        self.assertGreater(accuracy, 0.95)
        self.assertAlmostEqual(accuracy, expected[1], delta=0.003)
        self.assertAlmostEqual(loss, expected[0], delta=0.01)

        watch.kill()
        shown = watch.stdout.read()
        print(shown, end="", flush=True)
        self.assertRegex(shown, r"NAME +PHASE +READY +STEP +PROGRESS +THROUGHPUT +ETA +RESTARTS +AGE")
        steps = [int(step) for step in re.findall(r"mnist +Running +2 +(\d+) +\d+ +\d+ +\d+ +0 ", shown)]
        self.assertTrue(any(0 < step < STEPS for step in steps), shown)
        self.assertRegex(shown, rf"mnist +Succeeded +\S* +{STEPS} +100 ")
        self.assertTrue(self.condition("mnist", "Complete").get("status") == "True")


class JobsTest(JobTestCase):
    side_by_side = True

    def test_a_killed_rank_is_back_in_its_pod(self):
        self.create("ranks", processes=2)
        self.wait_for_steps("ranks")
        before = [pod["metadata"]["uid"] for pod in self.pods("ranks")]
        took = []
        for generation in range(1, 4):
            ranks = self.ranks_of("ranks", 1)
            self.assertEqual(len(ranks), 2)
            killed = time.monotonic()
            os.kill(ranks[0], signal.SIGKILL)
            self.wait_until(lambda: len(set(self.ranks_of("ranks", 1)) - {ranks[0]}) == 2, "its replica has a new rank")
            took.append(time.monotonic() - killed)
            self.assertIn(ranks[1], self.ranks_of("ranks", 1), "the rank beside it goes on in its process")
            self.wait_for_steps("ranks", generation)
        # (From the second on it is the restart policy that waits.)
        print(f"a killed rank is back after {', '.join(f'{each:.2f}' for each in took)} s", flush=True)
        self.assertLess(took[0], 2)
        self.assertEqual([pod["metadata"]["uid"] for pod in self.pods("ranks")], before)
        # The operator hears of it from replica 0.
        self.wait_until(lambda: self.status("ranks").get("restarts") == 3, "its restarts are counted")
        self.assertEqual(self.status("ranks")["attempt"], 0)
        # 11: one that lost it, where its own launcher was too slow to say so.
        self.assertIn(self.status("ranks")["lastFailure"]["exitCode"], (128 + signal.SIGKILL, 11))

    def test_workers_beside_a_server_are_lost_and_replaced_alone(self):
        # The image has no other programs: each process is a job of its own that goes on for as long as it may.
        inner = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "inner"}, "spec": {
            "processesPerReplica": 1, "devices": {"type": "CPU"}, "trainer": {
                "data": {"format": "Digits", "samples": 2000, "testSamples": 500}, "batchSize": 96, "epochs": 1_000_000,
                "model": {"layers": [{"type": "Dense", "units": 10}]}}}}
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "inner"},
                    "data": {"job.json": json.dumps(inner)}})
        template = {"spec": {"volumes": [{"name": "inner", "configMap": {"name": "inner"}}], "containers": [{
            "name": "lockstep", "volumeMounts": [{"name": "inner", "mountPath": "/inner"}],
            "resources": {"limits": {"cpu": "300m"}, "requests": {"cpu": "10m"}}}]}}
        common = {"processesPerReplica": 1, "devices": {"type": "CPU"}, "template": template}
        self.api.create(fixture.PATHS["trainingjob"].format(self.namespace), {
            "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "served"}, "spec": {
                "roles": [{"name": "ps", **common}, {"name": "worker", "replicas": 2, **common}],
                "program": {"command": ["lockstep", "run", "/inner/job.json", "--run-dir", "/tmp/inner", "-q"]},
                # What the test ends counts as done.
                "runPolicy": {"terminationGracePeriodSeconds": 2,
                              "exitCodes": [{"codes": [75, 128 + signal.SIGTERM], "action": "Ignore"}]}}})

        def pods(role: str) -> list:
            return [pod for pod in self.pods("served") if pod["metadata"]["labels"]["lockstep.dev/role"] == role
                    and pod["status"]["phase"] == "Running"]

        def programs(pod: dict) -> list:
            uid = pod["metadata"]["uid"]
            return sorted(pid for pid in self.nodes.processes(node_of(pod), "lockstep")
                          if uid in read(pathlib.Path(f"/proc/{pid}/cgroup"))
                          and "\0run\0" in read(pathlib.Path(f"/proc/{pid}/cmdline")))

        self.wait_for_phase("served", "Running")
        self.wait_until(lambda: all(programs(pod) for pod in pods("ps") + pods("worker")), "all run their program")
        self.assertEqual(self.status("served")["replicas"]["desired"], 3)
        server, (first, second) = pods("ps")[0], pods("worker")
        steady = {pod["metadata"]["uid"]: programs(pod)[0] for pod in (server, first)}
        self.kubectl("delete", "pod", second["metadata"]["name"], "--wait=false")

        def replaced():
            there = pods("worker")
            return len(there) == 2 and second["metadata"]["uid"] not in [pod["metadata"]["uid"] for pod in there] and all(
                programs(pod) for pod in there)

        self.wait_until(replaced, "the lost worker is replaced")
        for pod in (server, first):
            self.assertEqual(programs(pod)[0], steady[pod["metadata"]["uid"]])
        os.kill(programs(first)[0], signal.SIGKILL)
        self.wait_until(lambda: programs(first)[:1] not in ([], [steady[first["metadata"]["uid"]]]),
                        "a killed process is started again alone")
        self.assertEqual(programs(server)[0], steady[server["metadata"]["uid"]])
        self.assertEqual(self.status("served")["attempt"], 0)
        self.wait_until(lambda: self.status("served").get("restarts") == 2, "both are counted")
        self.assertEqual(self.status("served")["phase"], "Running")

        for pod in pods("worker"):
            os.kill(programs(pod)[0], signal.SIGTERM)
        self.wait_for_phase("served", "Succeeded")
        self.assertEqual(self.status("served")["replicas"]["succeeded"], 3)

    def test_a_killed_agent_is_back_in_its_pod_within_two_seconds(self):
        self.create("agents")
        self.wait_for_steps("agents")
        before = [(pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["containerID"]) for pod in self.pods("agents")]
        took = []
        for index in (0, 1):  # the one with the store, and one without
            processes = self.processes_of("agents", index, "lockstep")
            keeper, agent = sorted(processes)[:2]
            generation = self.agent("agents")["generation"]
            killed = time.monotonic()
            os.kill(agent, signal.SIGKILL)
            self.wait_until(lambda: set(self.processes_of("agents", index, "lockstep")) - set(processes), "there is a new agent")
            took.append(time.monotonic() - killed)
            self.assertIn(keeper, self.processes_of("agents", index, "lockstep"))
            self.wait_for_steps("agents", generation + 1)
        print(f"a killed agent is back after {', '.join(f'{each:.2f}' for each in took)} s", flush=True)
        self.assertLess(max(took), 2)
        after = [(pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["containerID"]) for pod in self.pods("agents")]
        self.assertEqual(after, before)
        self.assertEqual(self.status("agents")["attempt"], 0)

    def test_a_deleted_pod_is_replaced_and_the_survivor_goes_on_with_it(self):
        self.create("loses", replicas=3)
        self.wait_for_steps("loses")
        before = {index_of(pod): pod["metadata"]["uid"] for pod in self.pods("loses")}
        self.kubectl("delete", "pod", self.pod("loses", 1)["metadata"]["name"], "--wait=false")
        self.wait_for_phase("loses", "Restarting")
        self.wait_for_phase("loses", "Running")
        self.wait_for_steps("loses", generation=1)
        after = {index_of(pod): pod["metadata"]["uid"] for pod in self.pods("loses") if pod["status"]["phase"] == "Running"}
        self.assertEqual((after[0], after[2]), (before[0], before[2]))
        self.assertNotEqual(after[1], before[1])
        self.assertEqual(self.status("loses")["attempt"], 0)

    def test_a_job_that_is_suspended_gives_up_its_pods_and_goes_on_after_its_checkpoint(self):
        self.give_volume("checkpoints")
        self.create("pauses", template=with_volume("checkpoints", "/checkpoints"),
                    trainer={"checkpoint": {"directory": "/checkpoints/pauses", "every": 20}})
        self.wait_until(lambda: self.steps("pauses") > 40, "two checkpoints are made")
        self.change("pauses", suspend=True)
        self.wait_for_phase("pauses", "Suspended")
        self.wait_until(lambda: not self.list("pod", "lockstep.dev/job-name=pauses"), "its pods are gone", 30)
        self.change("pauses", suspend=False)
        self.wait_for_phase("pauses", "Running", attempt=0, restarts=0)
        self.assertGreaterEqual(self.wait_for_steps("pauses"), 40)

    def test_a_job_is_deleted_when_its_time_to_live_is_over_and_leaves_nothing(self):
        self.create("short", epochs=1, runPolicy={"ttlSecondsAfterFinished": 3})
        self.wait_for_phase("short", "Succeeded")
        self.assertNotEqual(self.children("short"), [])
        self.wait_until(lambda: self.get("trainingjob", "short") is None, "the job is gone")
        self.wait_until(lambda: self.children("short") == [], "so is all that it had")

    def test_a_job_whose_deadline_is_over_ends_its_pods(self):
        self.create("late", runPolicy={"activeDeadlineSeconds": 12})
        self.wait_for_steps("late")
        self.wait_for_phase("late", "Failed")
        self.assertEqual(self.condition("late", "Failed")["reason"], "DeadlineExceeded")
        self.wait_until(lambda: all(pod["status"]["phase"] not in ("Pending", "Running") for pod in self.pods("late")),
                        "its pods have ended", 30)

    def test_a_job_that_is_wrong_fails_at_once(self):
        self.create("wrong", trainer={"data": {"format": "CSV", "path": "/nowhere.csv"}})
        status = self.wait_for_phase("wrong", "Failed", restarts=0)
        self.assertEqual(status["lastFailure"]["exitCode"], 3)
        # The pods' logs may be gone: a Job that fails deletes what it has not seen end.
        self.assertRegex(status["lastFailure"]["message"], "permanent failure: bad data.*; its last line: .*/nowhere.csv")

    def test_a_namespace_is_deleted_while_its_job_runs(self):
        self.create("doomed")
        self.wait_for_steps("doomed")
        self.api.delete(f"/api/v1/namespaces/{self.namespace}")
        spaces = lambda: [each["metadata"]["name"] for each in self.api.get("/api/v1/namespaces")["items"]]  # noqa: E731
        self.wait_until(lambda: self.namespace not in spaces(), "the namespace is gone", 60)

    def test_two_jobs_that_do_not_both_fit_do_not_wait_for_each_other_for_ever(self):
        resource = f"lockstep.dev/{self.namespace}"
        for node in range(fixture.NODES):
            self.offer(node, resource, "1")
            self.addCleanup(self.offer, node, resource, None)
        one = {"schedulingGates": [{"name": GATE}],
               "containers": [{"resources": {"limits": {resource: "1"}, "requests": {"cpu": "10m"}}}]}
        first_let_go = set()

        def goes(pod):
            # Each gets one of two places, and waits for the other's: not by chance.
            if pod["metadata"]["labels"]["lockstep.dev/attempt"] != "0" or len(first_let_go) == 2:
                return ""
            if index_of(pod) == 0:
                first_let_go.add(pod["metadata"]["labels"]["lockstep.dev/job-name"])
                return ""
            return None

        Placer(self, goes)
        for name in ("one", "other"):
            self.create(name, epochs=1, template=one, runPolicy={"scheduleTimeoutSeconds": 4})
        for name in ("one", "other"):
            status = self.wait_for_phase(name, "Succeeded", 180)
            self.assertEqual(status["restarts"], 0)
        attempts = [self.status(name)["attempt"] for name in ("one", "other")]
        self.assertGreaterEqual(max(attempts), 1)
        self.assertIn("ScheduleTimeout", json.dumps(self.list("event")))

    def offer(self, node: int, resource: str, amount: str | None) -> None:
        self.api.merge(f"/api/v1/nodes/node-{node}/status", {"status": {"capacity": {resource: amount}, "allocatable": {resource: amount}}})

    def test_what_a_pod_may_is_what_the_restricted_standard_says(self):
        self.create("restricted")
        self.wait_for_phase("restricted", "Running")
        self.wait_for_steps("restricted")
        for pod in self.pods("restricted"):
            self.assertFalse(pod["spec"]["automountServiceAccountToken"])
            self.assertTrue(pod["spec"]["securityContext"]["runAsNonRoot"])
        process = self.ranks_of("restricted", 0)[0]
        said = dict(re.findall(r"^(\w+):\s*(.*)$", open(f"/proc/{process}/status", encoding="utf-8").read(), re.MULTILINE))
        self.assertEqual(int(said["CapEff"], 16) | int(said["CapBnd"], 16), 0)
        self.assertEqual((said["NoNewPrivs"], said["Seccomp"], said["Uid"].split()[0]), ("1", "2", "65532"))
        # And what asks for more is not let in.
        self.create("asks-for-more", template={"hostNetwork": True})
        self.wait_until(lambda: "violates PodSecurity" in json.dumps(self.list("event")), "its pods are refused")
        self.assertEqual(self.pods("asks-for-more"), [])


if __name__ == "__main__":
    unittest.main()
