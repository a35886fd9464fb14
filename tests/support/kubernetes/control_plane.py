"""etcd, the API server, the controller manager and the scheduler, as processes of this machine, in one folder."""

import json
import pathlib
import secrets
import shutil
import ssl
import urllib.error
import urllib.request

import binaries
from api import Api
from certificates import Authority
from network import Network
from processes import Processes, StartError, free_port

# The PodGroups of runPolicy.gang: Workload, which are alpha in 1.36.
WORKLOADS = "--feature-gates=GenericWorkload=true,GangScheduling=true"
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")

# Who uses a service account, and for what: the cluster's own controllers, of which there is nothing to learn, left out.
AUDIT_POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
    {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
    {"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}]}


class ControlPlane:
    """The control plane whose files are in `folder`. Several may run side by side, each in its own folder.

    Started with `only_api` it has etcd and the API server on the loopback interface and needs no right but to start
    processes; nothing then acts on Jobs. Otherwise it makes a bridge, so it needs root. Methods raise StartError.
    """

    def __init__(self, folder: pathlib.Path):
        self.folder = folder.resolve()
        self.processes = Processes(self.folder)
        self.authority = Authority(self.folder / "pki")
        self.kubeconfig = self.folder / "kubeconfig"
        self._settings_file = self.folder / "settings.json"

    def up(self, only_api: bool = False) -> None:
        """Makes a new, empty cluster and returns when it is ready; one that is there already is taken down first."""
        for program in ("etcd", "kube-apiserver") + (() if only_api else CONTROLLERS):
            binaries.path(program)
        self.down()
        self.folder.mkdir(parents=True, exist_ok=True)
        network = None if only_api else Network.create()
        settings = {name: free_port() for name in ("etcd", "etcd-peer", *CONTROLLERS)}
        settings |= {"network": network and network.number, "address": network.api_server if network else "127.0.0.1",
                     "port": 443 if network else free_port(), "token": secrets.token_urlsafe(24)}
        self._settings_file.write_text(json.dumps(settings, indent=1))
        self._make_identities()
        (self.folder / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY))
        self.start("etcd")
        self.start("kube-apiserver")
        if not only_api:
            for name in CONTROLLERS:
                self.start(name)

    def start(self, name: str) -> None:
        """Starts one program again, after `stop`; returns when it is ready."""
        command, ready = {
            "etcd": (self._etcd, self._etcd_ready),
            "kube-apiserver": (self._api_server, self._api_server_ready),
            "kube-controller-manager": (self._controller_manager, lambda: self._healthy("kube-controller-manager")),
            "kube-scheduler": (self._scheduler, lambda: self._healthy("kube-scheduler")),
        }[name]
        self.processes.start(name, command(), ready)

    def stop(self, name: str, grace: float = 0) -> None:
        """Ends one program as a crash does, or with SIGTERM and `grace` seconds. Its data stays."""
        self.processes.stop(name, grace)

    def down(self) -> None:
        """Ends what runs and removes the data and the network; logs stay. Does nothing where nothing runs."""
        for name in reversed(self.processes.names()):
            self.stop(name)
        if self.up_now:
            if self.network:
                self.network.remove()
            self._settings_file.unlink()
        for name in ("etcd", "pki"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for file in self.folder.glob("kubeconfig*"):
            file.unlink()

    @property
    def up_now(self) -> bool:
        """Whether `up` was called and `down` was not."""
        return self._settings_file.exists()

    @property
    def settings(self) -> dict:
        if not self.up_now:
            raise StartError(f"no control plane is up in {self.folder}")
        return json.loads(self._settings_file.read_text())

    @property
    def network(self) -> Network | None:
        number = self.settings["network"]
        return None if number is None else Network(number)

    @property
    def api(self) -> Api:
        """The API server as an administrator sees it."""
        return Api(self.server, self.folder / "pki" / "ca.crt", self.settings["token"])

    @property
    def server(self) -> str:
        return f"https://{self.settings['address']}:{self.settings['port']}"

    @property
    def audit_log(self) -> pathlib.Path:
        """One JSON object a line for each request of a service account; with --only-api there is none."""
        return self.folder / "log" / "audit.log"

    def _make_identities(self) -> None:
        settings, issue = self.settings, self.authority.issue
        self.authority.create()
        names = ["DNS:localhost", "DNS:kubernetes.default.svc", "DNS:kubernetes.default", "IP:127.0.0.1"]
        if settings["address"] != "127.0.0.1":
            names.append(f"IP:{settings['address']}")
        issue("api-server", "/CN=kube-apiserver", tuple(names))
        issue("kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client")
        issue("admin", "/O=system:masters/CN=admin")
        issue("kube-controller-manager", "/CN=system:kube-controller-manager")
        issue("kube-scheduler", "/CN=system:kube-scheduler")
        (self.folder / "pki" / "tokens.csv").write_text(f'{settings["token"]},token-admin,1,"system:masters"\n')
        users = {name: self.authority.client(name) for name in ("admin", *CONTROLLERS)}
        users["token"] = {"token": settings["token"]}
        for name, user in users.items():
            file = self.folder / ("kubeconfig" if name == "admin" else f"kubeconfig-{name}")
            file.touch(0o600)
            file.write_text(self.authority.kubeconfig(self.server, user))

    def _etcd(self) -> list:
        client, peer = (f"http://127.0.0.1:{self.settings[name]}" for name in ("etcd", "etcd-peer"))
        return [binaries.path("etcd"), "--data-dir", self.folder / "etcd", "--unsafe-no-fsync=true", "--log-level=warn",
                "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]

    def _api_server(self) -> list:
        settings, pki = self.settings, self.folder / "pki"
        services = self.network.services if self.network else "10.96.0.0/16"
        command = [
            binaries.path("kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{settings['etcd']}",
            f"--bind-address={settings['address']}", f"--secure-port={settings['port']}",
            f"--tls-cert-file={pki}/api-server.crt", f"--tls-private-key-file={pki}/api-server.key",
            f"--client-ca-file={pki}/ca.crt", f"--token-auth-file={pki}/tokens.csv",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki}/service-accounts.pub",
            f"--service-account-signing-key-file={pki}/service-accounts.key",
            f"--service-cluster-ip-range={services}",
            f"--kubelet-client-certificate={pki}/kubelet-client.crt", f"--kubelet-client-key={pki}/kubelet-client.key",
            "--kubelet-preferred-address-types=InternalIP",
            "--default-not-ready-toleration-seconds=3", "--default-unreachable-toleration-seconds=3",
            "--runtime-config=scheduling.k8s.io/v1alpha2=true", WORKLOADS,
        ]
        if self.network:
            command += [f"--advertise-address={settings['address']}",
                        f"--audit-policy-file={self.folder}/audit-policy.json", f"--audit-log-path={self.audit_log}"]
        else:
            command.append("--endpoint-reconciler-type=none")
        return command

    def _controller_manager(self) -> list:
        pki = self.folder / "pki"
        return [*self._controller("kube-controller-manager"), "--use-service-account-credentials=true",
                f"--service-account-private-key-file={pki}/service-accounts.key", f"--root-ca-file={pki}/ca.crt",
                "--node-monitor-period=1s", "--node-monitor-grace-period=8s",
                # Several tests make a node fail at once: of five nodes three would otherwise be too many for any eviction,
                # and two would be ten seconds apart.
                "--unhealthy-zone-threshold=1", "--node-eviction-rate=10"]

    def _scheduler(self) -> list:
        return self._controller("kube-scheduler")

    def _controller(self, name: str) -> list:
        # Its own limit of requests is what makes a test cluster slow, ten times over.
        return [binaries.path(name), f"--kubeconfig={self.folder}/kubeconfig-{name}", "--leader-elect=false",
                "--bind-address=127.0.0.1", f"--secure-port={self.settings[name]}",
                "--kube-api-qps=500", "--kube-api-burst=1000", WORKLOADS]

    def _etcd_ready(self) -> bool:
        return answers(f"http://127.0.0.1:{self.settings['etcd']}/readyz")

    def _api_server_ready(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.folder / "pki" / "ca.crt"))
        return answers(f"{self.server}/readyz", context, {"Authorization": f"Bearer {self.settings['token']}"})

    def _healthy(self, name: str) -> bool:
        # These make a certificate for themselves at each start: nothing to check it against.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return answers(f"https://127.0.0.1:{self.settings[name]}/healthz", context)


def answers(url: str, context: ssl.SSLContext | None = None, headers: dict | None = None) -> bool:
    """Whether `url` is answered with 200 within two seconds."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(urllib.request.Request(url, headers=headers or {}), timeout=2) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False
