"""The operator on a real control plane, with the rights that manifests/operator gives it; what its pods do is played."""

import json
import re
import signal
import subprocess
import tempfile
import unittest
import urllib.request

import fixture
from api_proxy import ApiProxy
from played_pods import NODE, PlayedPods, make_node

SPACE = "lockstep-system"


class Operator:
    """`lockstep operator` as a process of this machine, as the service account of the manifests."""

    def __init__(self, kubeconfig: str, namespace: str, *more: str):
        self.log = tempfile.TemporaryFile()  # closed with this object
        self._command = [str(fixture.bin_folder() / "lockstep"), "operator", "--kubeconfig", kubeconfig, "--namespace", namespace,
                         "--image", fixture.IMAGE, "--address", "127.0.0.1", "--port", "0", *more]
        self._process = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=self.log, stderr=self.log)

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def exit_code(self) -> int:
        return self._process.wait(timeout=60)

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def metrics(self) -> str:
        address = re.findall(r"serves metrics at (\S+)", self.said())[-1]
        with urllib.request.urlopen(address, timeout=5) as answer:
            return answer.read().decode()


class OperatorTest(fixture.ClusterTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        crd = subprocess.run([str(fixture.bin_folder() / "lockstep"), "schema", "--crd"], text=True, capture_output=True,
                             check=False)
        if crd.returncode:
            raise unittest.SkipTest("this build makes no CRD")
        make_node(cls.plane)
        cls.addClassCleanup(cls.plane.api.delete, f"/api/v1/nodes/{NODE}", True)
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        api = cls.plane.api
        cls.install("apply", "--server-side", "-f", "-", text=crd.stdout)
        cls.install("apply", "--server-side", "-k", str(fixture.ROOT / "manifests/operator/cluster"))
        # The Deployment's own operator would act as well: the one that is tested is a process that can be killed at will.
        cls.install("delete", "-n", SPACE, "deployment", "lockstep-operator")
        cls.install("wait", "--for=condition=Established", "crd/trainingjobs.lockstep.dev")
        token = api.create(f"/api/v1/namespaces/{SPACE}/serviceaccounts/lockstep-operator/token",
                           {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}})
        cls.token = token["status"]["token"]

    @classmethod
    def install(cls, *words, text=None):
        command = [str(fixture.binaries.path("kubectl")), f"--kubeconfig={cls.plane.kubeconfig}", *words]
        result = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
        if result.returncode:
            raise AssertionError(f"{' '.join(words)}: {result.stderr}")

    def setUp(self):
        super().setUp()
        self.on_write = lambda before, path: True
        proxy = ApiProxy(self.plane, self.token, lambda before, path: self.on_write(before, path))
        self.addCleanup(proxy.close)
        file = f"{self.folder.name}/{self.namespace}"
        with open(file, "w", encoding="utf-8") as stream:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
                       "clusters": [{"name": "k", "cluster": {"server": proxy.address}}],
                       "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}, stream)
        self.kubeconfig = file
        self.operator = Operator(file, self.namespace, "--no-leader-election")
        self.addCleanup(self.operator.kill)
        self.jobs = f"/apis/lockstep.dev/v1alpha1/namespaces/{self.namespace}/trainingjobs"

    def create(self, name: str, replicas: int = 2, **spec) -> PlayedPods:
        self.plane.api.create(self.jobs, {
            "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"replicas": replicas, "processesPerReplica": 1, "devices": {"type": "CPU"},
                     "trainer": {"model": {"layers": [{"type": "Dense", "units": 10}]}}, **spec}})
        return PlayedPods(self.plane, self.namespace, name)

    def change(self, name: str, **spec) -> None:
        self.plane.api.merge(f"{self.jobs}/{name}", {"spec": spec})

    def status(self, name: str) -> dict:
        return self.plane.api.get(f"{self.jobs}/{name}").get("status", {})

    def wait_for(self, name: str, phase: str, meanwhile=lambda: None, **fields) -> dict:
        def there():
            meanwhile()
            status = self.status(name)
            return status if status.get("phase") == phase and all(status.get(k) == v for k, v in fields.items()) else None

        try:
            return self.wait_until(there, f"{name} is {phase} {fields}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.status(name), indent=1)}\n{self.operator.said()}") from None

    def children(self, name: str) -> list:
        return self.plane.api.get(f"/apis/batch/v1/namespaces/{self.namespace}/jobs?labelSelector=lockstep.dev/job-name={name}")["items"]

    def test_a_job_goes_through_its_life(self):
        self.operator.start()
        pods = self.create("life", runPolicy={"maxRestarts": 2, "ttlSecondsAfterFinished": 1})
        self.wait_for("life", "Running", pods.run, attempt=0)
        self.change("life", suspend=True)
        self.wait_for("life", "Suspended", pods.run)
        self.wait_until(lambda: not pods.alive(), "the pods are given up")
        self.change("life", suspend=False)
        self.wait_for("life", "Running", pods.run, attempt=0, restarts=0)

        pods.end(pods.alive()[0], 137, "OOMKilled")
        self.wait_for("life", "Restarting", attempt=0)
        pods.end(pods.alive()[0], 137, "OOMKilled")
        status = self.wait_for("life", "Running", pods.run, attempt=1, restarts=1)
        self.assertEqual(status["lastFailure"]["reason"], "OOMKilled")
        self.wait_until(lambda: [child["metadata"]["name"] for child in self.children("life")] == ["life-worker-1"],
                        "the first attempt is gone")
        pods.end_all()
        self.wait_until(lambda: not self.plane.api.get(self.jobs)["items"], "it is deleted when its time to live is over")
        self.wait_until(lambda: not self.children("life"), "its children go with it")
        # With exactly the rights that it needs.
        self.assertNotIn('code="403"', self.operator.metrics())

    def test_a_failure_that_the_agents_agree_on_ends_the_job(self):
        self.operator.start()
        pods = self.create("fails")
        self.wait_for("fails", "Running", pods.run)
        pods.fail(pods.alive()[1], replica=1, code=5, message="rank 1: exited with code 5")
        status = self.wait_for("fails", "Failed", restarts=0)
        self.assertEqual(status["lastFailure"]["exitCode"], 5)
        self.assertEqual(status["conditions"][-1]["reason"], "JobFailed")

    def test_a_deadline_and_a_refused_template_end_the_job(self):
        self.operator.start()
        pods = self.create("late", runPolicy={"activeDeadlineSeconds": 2})
        self.wait_for("late", "Failed", pods.run)
        self.wait_until(lambda: (pods.run(), not pods.alive())[1], "its pods are stopped")
        self.create("wrong", template={"spec": {"containers": [{"name": "lockstep", "resources": {"limits": {"cpu": "-1"}}}]}})
        status = self.wait_for("wrong", "Failed")
        self.assertEqual(status["conditions"][-1]["reason"], "InvalidTemplate")

    def test_an_object_of_somebody_else_is_not_adopted(self):
        self.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken-worker"}, "spec": {"clusterIP": "None"}})
        self.operator.start()
        self.create("taken")
        status = self.wait_for("taken", "Pending")
        self.wait_until(lambda: "NameTaken" in json.dumps(self.status("taken")), "it says so")
        self.assertEqual(status["attempt"], 0)
        self.assertEqual(self.children("taken"), [])

    def test_nothing_is_written_at_rest(self):
        writes = []
        self.on_write = lambda before, path: (writes.append(path), True)[1]
        self.operator.start()
        pods = self.create("rests")
        self.wait_for("rests", "Running", pods.run)
        self.operator.kill()
        writes.clear()
        # A new one looks at everything, and so does a change of nothing.
        self.operator.start()
        other = self.create("other")
        self.wait_for("other", "Running", other.run)
        self.assertEqual([path for path in writes if "rests" in path], [])

    def test_a_leader_that_was_paused_for_too_long_gives_way(self):
        first, second = (Operator(self.kubeconfig, self.namespace, "--lease-namespace", SPACE) for _ in range(2))
        for operator in (first, second):
            self.addCleanup(operator.kill)
        first.start()
        self.wait_until(lambda: "leads as" in first.said(), "the first leads")
        second.start()
        pods = self.create("led")
        self.wait_for("led", "Running", pods.run)
        first.signal(signal.SIGSTOP)
        self.wait_until(lambda: "leads as" in second.said(), "the second leads")
        pods.end_all()
        self.wait_for("led", "Succeeded")
        first.signal(signal.SIGCONT)
        self.assertEqual(first.exit_code(), 10, first.said())
        self.assertIn("the lease is lost", first.said())
        # One that is asked to stop gives it back: the next need not wait for it to run out.
        second.signal(signal.SIGTERM)
        self.assertEqual(second.exit_code(), 0, second.said())
        lease = self.plane.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases/lockstep-operator")
        self.assertFalse(lease["spec"].get("holderIdentity"))

    def run_to_the_end(self, name: str) -> dict:
        pods = self.create(name, runPolicy={"maxRestarts": 1})
        self.wait_for(name, "Running", pods.run)
        for _ in range(2):
            before = {pod["metadata"]["uid"] for pod in pods.alive()}
            pods.end(pods.alive()[0], 137)
            self.wait_until(lambda: {pod["metadata"]["uid"] for pod in pods.alive()} != before, "a pod less")
        self.wait_for(name, "Running", pods.run, attempt=1)
        pods.end_all()
        return self.wait_for(name, "Succeeded")

    def test_killed_at_any_write_it_ends_as_if_it_had_not_been(self):
        count = [0]

        def counts(before, path):
            count[0] += before and "/events" not in path
            return True

        self.on_write = counts
        self.operator.start()
        undisturbed = self.run_to_the_end("undisturbed")
        self.operator.kill()
        writes = count[0]
        self.assertGreater(writes, 8)
        for lost in ("request", "answer"):
            for index in range(writes):
                with self.subTest(lost=lost, write=index):
                    self.killed_once(f"{lost}-{index}", lost == "request", index, undisturbed)

    def killed_once(self, name: str, before_it: bool, index: int, undisturbed: dict) -> None:
        state = {"writes": -1, "killed": False}

        def kills(before, path):
            if "/events" in path or state["killed"]:
                return not state["killed"] or "/events" in path or state["restarted"]
            state["writes"] += before
            if state["writes"] == index and before == before_it:
                state.update(killed=True, restarted=False)
                self.operator.kill()
                state["restarted"] = True
                self.operator.start()
                return False
            return True

        self.on_write = kills
        self.operator.start()
        try:
            status = self.run_to_the_end(name)
        finally:
            self.operator.kill()
        self.assertTrue(state["killed"])
        for field in ("phase", "attempt", "restarts", "replicas"):
            self.assertEqual(status[field], undisturbed[field], field)
        self.assertEqual([(c["type"], c["status"], c["reason"]) for c in status["conditions"]],
                         [(c["type"], c["status"], c["reason"]) for c in undisturbed["conditions"]])
        self.assertEqual([child["metadata"]["name"] for child in self.children(name)], [f"{name}-worker-1"])


if __name__ == "__main__":
    unittest.main()
