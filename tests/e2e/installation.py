"""The operator in the cluster, put there by Helm as its users do."""

import datetime
import json
import pathlib
import subprocess
import time

import binaries
import fixture
from control_plane import ControlPlane

RELEASE = "lockstep"
CHART = fixture.ROOT / "helm/lockstep"
SELECTOR = "app.kubernetes.io/part-of=lockstep"


def image(name: str) -> dict:
    repository, tag = name.rsplit(":", 1)
    return {"repository": repository, "tag": tag, "pullPolicy": "Never"}


class Installation:
    """The release `lockstep` in the namespace lockstep-system of one cluster. Methods raise AssertionError with what Helm says."""

    def __init__(self, plane: ControlPlane):
        self._plane = plane
        self._restarts = []  # of the API server, from … until it was ready, as it writes times

    def up(self, **values) -> None:
        """Installs or upgrades; returns when the operator is ready. `values` are the chart's, beside the tests' own."""
        given = {"image": image(fixture.OPERATOR_IMAGE), "jobs": {"image": image(fixture.IMAGE)},
                 # Not where a test makes a node fail.
                 "nodeSelector": {"kubernetes.io/hostname": "node-0"}, **values}
        self._make_namespace()
        self._helm("upgrade", "--install", RELEASE, str(CHART), "--wait", "--timeout=120s", "--values=-", text=json.dumps(given))

    def down(self) -> None:
        """Returns when Helm says that all is gone. The CustomResourceDefinition stays, and with it the jobs."""
        self._helm("uninstall", RELEASE, "--wait", "--timeout=60s")

    def pods(self) -> list:
        """The operator's pods that are not being deleted."""
        items = self._plane.api.get(f"/api/v1/namespaces/{fixture.OPERATOR_NAMESPACE}/pods?labelSelector={SELECTOR}")["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def leader(self) -> str:
        """The identity of the operator that acts: its pod's name comes first. Empty: nobody."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{fixture.OPERATOR_NAMESPACE}/leases/lockstep-operator"
        return self._plane.api.get(path)["spec"].get("holderIdentity") or ""

    def refused(self) -> list:
        """What the API server has refused a service account for want of a right, as METHOD URI."""
        entries = self._audit()
        return [f'{entry["user"]["username"]}: {entry["verb"]} {entry["requestURI"]}' for entry in entries
                if entry.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
                and not any(begin <= entry["requestReceivedTimestamp"] <= end for begin, end in self._restarts)]

    def server_restarted(self, since: datetime.datetime) -> None:
        """What it refused from then until now does not count: until it is ready it does not know the roles."""
        self._restarts.append(tuple(moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                                    for moment in (since, datetime.datetime.now(datetime.timezone.utc))))

    def requests(self) -> int:
        """How many requests of service accounts were looked at."""
        return len(self._audit())

    def wait_until_gone(self, seconds: float = 40) -> list:
        """Returns when nothing is left behind, or what is after so long: pods take a moment."""
        deadline = time.monotonic() + seconds
        while (left := self.left_behind()) and time.monotonic() < deadline:
            time.sleep(0.5)
        return left

    def left_behind(self) -> list:
        """What there is of the operator in the cluster, but for the CustomResourceDefinition: all that would be an orphan
        once it is uninstalled."""
        own = {"configmap/kube-root-ca.crt", "serviceaccount/default"}  # every namespace's
        found = self._names("--namespaced=true", f"--namespace={fixture.OPERATOR_NAMESPACE}") - own
        return sorted(found | self._names("--namespaced=false", f"--selector={SELECTOR}"))

    def _names(self, scope: str, which: str) -> set:
        def kubectl(*words):
            return subprocess.run([str(binaries.path("kubectl")), f"--kubeconfig={self._plane.kubeconfig}", *words], check=True,
                                  text=True, capture_output=True).stdout.split()

        kinds = [kind for kind in kubectl("api-resources", scope, "--verbs=list,delete", "-o", "name") if not kind.startswith("events")]
        return set(kubectl("get", ",".join(kinds), which, "-o", "name", "--ignore-not-found"))

    def _audit(self) -> list:
        files = sorted(self._plane.audit_log.parent.glob("audit*.log"))
        return [json.loads(line) for file in files for line in pathlib.Path(file).read_text().splitlines()]

    def _make_namespace(self) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        spaces = self._plane.api.get("/api/v1/namespaces")["items"]
        if all(space["metadata"]["name"] != fixture.OPERATOR_NAMESPACE for space in spaces):
            self._plane.api.create("/api/v1/namespaces", {"metadata": {"name": fixture.OPERATOR_NAMESPACE, "labels": labels}})

    def _helm(self, *words: str, text: str | None = None) -> str:
        command = [str(binaries.path("helm")), f"--kubeconfig={self._plane.kubeconfig}",
                   f"--namespace={fixture.OPERATOR_NAMESPACE}", *words]
        result = subprocess.run(command, input=text, text=True, capture_output=True, check=False, timeout=180)
        if result.returncode:
            raise AssertionError(f"helm {' '.join(words)}: {result.stderr}")
        return result.stdout
