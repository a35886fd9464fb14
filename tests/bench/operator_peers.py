"""The operators that are measured: how each is installed on a bare API server and started, and what a job of two pods is to it.

Each has what its own installation gives it, but webhooks: the API server then calls nobody when a job is created, which
can only be in a peer's favour. What a webhook would have filled in stands in the template.
"""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support/kubernetes"))

import binaries  # noqa: E402
from control_plane import ControlPlane, answers  # noqa: E402
from processes import free_port, wait_until  # noqa: E402

IMAGE = "lockstep.dev/nothing:1"  # there are no nodes that could run it


def install_crd(plane: ControlPlane, name: str, definition: str) -> None:
    """Server-side apply of a CustomResourceDefinition; returns when it is served."""
    subprocess.run([str(binaries.path("kubectl")), f"--kubeconfig={plane.kubeconfig}", "apply", "--server-side", "-f", "-"],
                   input=definition, text=True, check=True, stdout=subprocess.DEVNULL)

    def served() -> bool:
        found = plane.api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
        return any(condition["type"] == "Established" and condition["status"] == "True"
                   for condition in found["status"].get("conditions") or [])

    wait_until(served, f"{name} is served", 60)


def module_folder(program: str) -> pathlib.Path:
    """Where the sources of `program` are: its manifests."""
    folder, module, _ = binaries.PROGRAMS[program]
    listing = subprocess.run(["go", "mod", "download", "-json", module], check=True, text=True, capture_output=True,
                             cwd=binaries.MODULES / folder, env={**os.environ, "GOFLAGS": "", "GOTOOLCHAIN": "local"}).stdout
    return pathlib.Path(json.loads(listing)["Dir"])


class Operator:
    """One operator on one API server: a process that `start` starts and `stop` ends."""

    name = ""
    child = "Job"  # what its first child is

    def __init__(self, plane: ControlPlane, folder: pathlib.Path):
        self.plane = plane
        self.folder = folder
        self.port = free_port()  # of its readiness probe
        # With a token, as in a pod: the API server checks a certificate anew with every request.
        self.kubeconfig = plane.folder / "kubeconfig-token"
        self.process: subprocess.Popen | None = None

    def install(self) -> None:
        raise NotImplementedError

    def command(self) -> list:
        raise NotImplementedError

    def template(self) -> dict:
        raise NotImplementedError

    def environment(self) -> dict:
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def while_starting(self) -> None:
        """Called while it is waited for."""

    def start(self) -> float:
        """Returns the seconds from its start until it says that it is ready."""
        with open(self.folder / f"{self.name}.log", "ab") as log:
            began = time.monotonic()
            self.process = subprocess.Popen([str(word) for word in self.command()], env=self.environment(), cwd=self.folder,
                                            stdout=log, stderr=log)
        while not answers(f"http://127.0.0.1:{self.port}/readyz"):
            if self.process.poll() is not None or time.monotonic() > began + 120:
                raise RuntimeError(f"{self.name} does not start: {self.folder / (self.name + '.log')}")
            self.while_starting()
            time.sleep(0.002)
        return time.monotonic() - began

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()

    def pod(self, container: str, **fields) -> dict:
        return {"containers": [{"name": container, "image": IMAGE, "command": ["true"]}], **fields}


class Lockstep(Operator):
    name = "lockstep"

    def __init__(self, plane: ControlPlane, folder: pathlib.Path, programs: pathlib.Path):
        super().__init__(plane, folder)
        self.program = programs / "lockstep"

    def install(self) -> None:
        crd = subprocess.run([str(self.program), "schema", "--crd"], check=True, text=True, capture_output=True).stdout
        install_crd(self.plane, "trainingjobs.lockstep.dev", crd)

    def command(self) -> list:
        return [self.program, "operator", "--kubeconfig", self.kubeconfig, "--image", IMAGE, "--address", "127.0.0.1",
                "--port", self.port, "--lease-namespace", "default"]

    def template(self) -> dict:
        return {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": ""},
                "spec": {"replicas": 2, "processesPerReplica": 1, "devices": {"type": "CPU"}, "program": {"command": ["true"]}}}

    def writes(self) -> dict:
        """How many requests of each writing method it has sent, by its own account."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        counts = dict.fromkeys(("POST", "PUT", "PATCH", "DELETE"), 0)
        for line in text.splitlines():
            if line.startswith("rest_client_requests_total{"):
                for method in counts:
                    if f'method="{method}"' in line:
                        counts[method] += int(float(line.rsplit(" ", 1)[1]))
        return counts


class JobSet(Operator):
    name = "jobset"

    def install(self) -> None:
        file = module_folder("jobset") / "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"
        install_crd(self.plane, "jobsets.jobset.x-k8s.io", file.read_text())
        (self.folder / "certificates").mkdir(exist_ok=True)
        for file, source in (("tls.crt", "api-server.crt"), ("tls.key", "api-server.key")):
            shutil.copy(self.plane.folder / "pki" / source, self.folder / "certificates" / file)
        (self.folder / "jobset.json").write_text(json.dumps({
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration",
            "leaderElection": {"leaderElect": True, "resourceNamespace": "default"},
            "internalCertManagement": {"enable": False},
            "webhook": {"port": free_port(), "host": "127.0.0.1", "certDir": str(self.folder / "certificates")}}))

    def command(self) -> list:
        return [binaries.path("jobset"), f"--config={self.folder}/jobset.json", "--zap-log-level=info",
                f"--health-probe-bind-address=127.0.0.1:{self.port}", "--metrics-bind-address=0"]

    def template(self) -> dict:
        pod = {"spec": self.pod("worker", restartPolicy="Never")}
        job = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 0, "template": pod}
        return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": ""},
                "spec": {"network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
                         "successPolicy": {"operator": "All"}, "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
                         "replicatedJobs": [{"name": "worker", "replicas": 1, "template": {"spec": job}}]}}


class Kubeflow(Operator):
    name = "training-operator"
    child = "Pod"
    # It reads the certificate of its webhooks there and nowhere else.
    CERTIFICATES = pathlib.Path(tempfile.gettempdir()) / "k8s-webhook-server/serving-certs"
    SECRET = "/api/v1/namespaces/default/secrets/training-operator-webhook-cert"

    def install(self) -> None:
        file = module_folder("training-operator") / "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"
        install_crd(self.plane, "pytorchjobs.kubeflow.org", file.read_text())
        api = self.plane.api
        # No controller manager makes it here, and no pod is admitted without.
        api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        api.create(self.SECRET.rsplit("/", 1)[0], {"metadata": {"name": self.SECRET.rsplit("/", 1)[1]}})
        api.create("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
                   {"metadata": {"name": "validator.training-operator.kubeflow.org"}, "webhooks": []})

    def environment(self) -> dict:
        return {**super().environment(), "MY_POD_NAMESPACE": "default"}

    def command(self) -> list:
        return [binaries.path("training-operator"), "--enable-scheme=pytorchjob", "--zap-log-level=info",
                f"--health-probe-bind-address=127.0.0.1:{self.port}", "--metrics-bind-address=0",
                f"--webhook-server-port={free_port()}"]

    def while_starting(self) -> None:
        # What the kubelet would do: the Secret it has filled, as files.
        kept = self.plane.api.get(self.SECRET).get("data") or {}
        if "tls.crt" not in kept or self.CERTIFICATES.exists():
            return
        self.CERTIFICATES.mkdir(parents=True)
        for name, value in kept.items():
            (self.CERTIFICATES / name).write_bytes(base64.b64decode(value))

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(self.CERTIFICATES.parent, ignore_errors=True)

    def template(self) -> dict:
        replica = {"replicas": 1, "restartPolicy": "OnFailure", "template": {"spec": self.pod("pytorch")}}
        return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": ""},
                "spec": {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}}}


def plain_job() -> dict:
    """A Job of two pods, for a plain client."""
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": ""},
            "spec": {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimit": 0,
                     "template": {"spec": {"restartPolicy": "Never", "containers": [
                         {"name": "worker", "image": IMAGE, "command": ["true"]}]}}}}
