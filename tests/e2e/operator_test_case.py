"""The operator as a process on a real control plane, with the rights that manifests/operator gives it; what its pods do is
played."""

import json
import re
import subprocess
import tempfile
import unittest
import urllib.request

import fixture
from api_proxy import ApiProxy
from played_pods import PlayedNode, PlayedPods, end_pods

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

    def address(self) -> str:
        """HOST:PORT where it serves; empty while it does not."""
        return (re.findall(r"shows its jobs at http://([^/]+)/", self.said()) or [""])[-1]

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://{self.address()}/metrics", timeout=5) as answer:
            return answer.read().decode()


class OperatorTestCase(fixture.ClusterTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        crd = subprocess.run([str(fixture.bin_folder() / "lockstep"), "schema", "--crd"], text=True, capture_output=True,
                             check=False)
        if crd.returncode:
            raise unittest.SkipTest("this build makes no CRD")
        api = cls.plane.api
        cls.install("apply", "--server-side", "--force-conflicts", "-f", "-", text=crd.stdout)
        cls.install("apply", "--server-side", "-k", str(fixture.ROOT / "manifests/operator/cluster"))
        # The Deployment's own operator would act as well: the one that is tested is a process that can be killed at will.
        cls.install("delete", "-n", SPACE, "deployment", "lockstep-operator", "--ignore-not-found")
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
        # Not the class's: tests of one class may run side by side.
        self.addCleanup(PlayedNode(self.plane).close)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(end_pods, self.plane, self.namespace)
        self.on_write = lambda before, path: True
        self.on_watch = lambda path: None
        proxy = ApiProxy(self.plane, self.token, lambda before, path: self.on_write(before, path), lambda path: self.on_watch(path))
        self.addCleanup(proxy.close)
        file = f"{folder.name}/kubeconfig"
        with open(file, "w", encoding="utf-8") as stream:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
                       "clusters": [{"name": "k", "cluster": {"server": proxy.address}}],
                       "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}, stream)
        self.kubeconfig = file
        self.operator = Operator(file, self.namespace, "--no-leader-election")
        self.addCleanup(self.operator.kill)
        self.jobs = f"/apis/lockstep.dev/v1alpha1/namespaces/{self.namespace}/trainingjobs"

    @staticmethod
    def trainer(**fields) -> dict:
        return {"model": {"layers": [{"type": "Dense", "units": 10}]}, **fields}

    def create(self, name: str, replicas: int = 2, labels: dict | None = None, template: dict | None = None, **spec) -> PlayedPods:
        # No scheduler's: the nodes that there are would run its pods in earnest.
        pod = {"schedulerName": "played", **(template or {})}
        self.plane.api.create(self.jobs, {
            "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name, "labels": labels or {}},
            "spec": {"replicas": replicas, "processesPerReplica": 1, "devices": {"type": "CPU"}, "trainer": self.trainer(),
                     "template": {"spec": pod}, **spec}})
        return PlayedPods(self.plane, self.namespace, name)

    def create_roles(self, name: str, roles: list, **spec) -> PlayedPods:
        """Programs that are never run."""
        common = {"processesPerReplica": 1, "devices": {"type": "CPU"}, "template": {"spec": {"schedulerName": "played"}}}
        self.plane.api.create(self.jobs, {
            "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"roles": [{**common, **role} for role in roles], "program": {"command": ["true"]}, **spec}})
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

    def condition(self, name: str, kind: str) -> dict:
        """The condition of that type; empty while there is none."""
        return next((each for each in self.status(name).get("conditions", []) if each["type"] == kind), {})

    def wait_for_reason(self, name: str, kind: str, reason: str, meanwhile=lambda: None) -> dict:
        self.wait_until(lambda: (meanwhile(), self.condition(name, kind).get("reason") == reason)[1], f"{name}: {kind} is {reason}")
        return self.condition(name, kind)
