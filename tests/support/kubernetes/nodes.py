"""Real nodes on this machine: containerd, runc and a kubelet each, in namespaces of their own.

A node has its own processes, mounts and network, so that it can be cut off as a machine can: power (SIGKILL of its first
process, and all that runs in it is gone), the kubelet alone, or the cable. Its disk is a folder of the cluster's and stays.
"""

import concurrent.futures
import errno
import json
import pathlib
import shutil
import subprocess
import sys

import binaries
from control_plane import ControlPlane, answers
from kernel_settings import KernelSettings
from network import ip
from processes import child_of, wait_until

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "containers"))
import image  # noqa: E402  (containers/image.py)

PAUSE = "lockstep.dev/pause:1"


class Nodes:
    """The nodes of one control plane: node-0, node-1 and so on. Root only. Methods raise StartError or RuntimeError."""

    def __init__(self, plane: ControlPlane):
        self.plane = plane
        self.folder = plane.folder / "nodes"
        self._processes = plane.processes
        if plane.network is None:
            raise RuntimeError("nodes need a control plane that was not started with --only-api")
        self._network = plane.network
        self._kernel_settings = KernelSettings(plane.folder / "settings.json")

    def up(self, count: int) -> None:
        """Adds nodes until there are `count`, and the cluster's DNS; returns when all are Ready."""
        for program in ("kubelet", "coredns"):
            binaries.path(program)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._kernel_settings.keep()
        self._start_dns()
        pause = self._pause_image()
        indices = [index for index in range(count) if not self._of(index).exists()]
        for index in indices:
            self._plug_in(index, count)
            self._install(index)

        def begin(index: int) -> None:
            self.power_on(index)
            self.load(index, pause)

        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(begin, indices))
        wait_until(lambda: all(self.ready(index) for index in indices), "the nodes are Ready", 120)

    def down(self) -> None:
        """Takes every node down and removes what it left; their Node objects too, if the API server still answers."""
        for index in self.indices():
            self.power_off(index)
            network = f"{self._network.bridge}-{index}"
            # The namespace outlives its name while a process in it is dying, and the cable with it.
            subprocess.run(["ip", "link", "delete", f"ls{self._network.number}-{index}"], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "delete", network], capture_output=True, check=False)
            subprocess.run(["ip", "route", "delete", self._network.pods(index)], capture_output=True, check=False)
            # runc makes one in version 2's hierarchy too, where there is one beside version 1's.
            for root in control_group_roots("cgroup") + control_group_roots("cgroup2"):
                remove_control_group(root / network)
            shutil.rmtree(self._of(index))
            if self._processes.pid("kube-apiserver"):
                self.plane.api.delete(f"/api/v1/nodes/node-{index}", missing_is_fine=True)
        self._processes.stop("coredns")
        self._kernel_settings.restore()

    def indices(self) -> list:
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit()) if self.folder.exists() else []

    def power_on(self, index: int) -> None:
        """Starts the node's first process, containerd and the kubelet. The node is Ready a few seconds later."""
        booted = self._of(index) / "booted"
        booted.unlink(missing_ok=True)
        self._processes.start(
            f"node-{index}",
            ["nsenter", f"--net=/run/netns/{self._network.bridge}-{index}", "unshare", "--mount", "--pid", "--fork", "--kill-child",
             "--mount-proc", "--propagation", "private", HERE / "node.sh", self._of(index)], booted.exists)
        self._processes.start(f"node-{index}-containerd", self._inside(index, "containerd", "--config", self._of(index) / "containerd.toml"),
                              lambda: self._containerd_answers(index), inner=True)
        self.start_kubelet(index)

    def power_off(self, index: int) -> None:
        """Everything that runs on the node is gone at once, as after a power cut."""
        self._processes.stop(f"node-{index}", 0)
        for name in ("kubelet", "containerd"):
            self._processes.stop(f"node-{index}-{name}", 0)

    def start_kubelet(self, index: int) -> None:
        folder = self._of(index)
        self._processes.start(f"node-{index}-kubelet", self._inside(
            index, binaries.path("kubelet"), f"--config={folder}/kubelet.json", f"--kubeconfig={folder}/kubeconfig",
            f"--cert-dir={folder}/certificates", f"--hostname-override=node-{index}",
            f"--node-ip={self._network.node(index)}"),
            lambda: answers(f"http://{self._network.node(index)}:10248/healthz"), inner=True)

    def stop_kubelet(self, index: int) -> None:
        """The kubelet crashes; the node's pods run on."""
        self._processes.stop(f"node-{index}-kubelet", 0)

    def pull_cable(self, index: int) -> None:
        """The node runs on, cut off from everybody."""
        ip("link", "set", f"ls{self._network.number}-{index}", "down")

    def plug_cable(self, index: int) -> None:
        ip("link", "set", f"ls{self._network.number}-{index}", "up")

    def processes(self, index: int, program: str) -> list:
        """The pids, as this machine has them, of what runs `program` in the node's pods."""
        # The kernel keeps fifteen characters of a program's name.
        return [int(path.parent.name) for path in pathlib.Path("/proc").glob("[0-9]*/comm")
                if read(path).strip() == program[:15]
                and f"/{self._network.bridge}-{index}/" in read(path.parent / "cgroup")]

    def ready(self, index: int) -> bool:
        """Whether the API server has the node as Ready."""
        nodes = self.plane.api.get("/api/v1/nodes")["items"]
        return any(condition["type"] == "Ready" and condition["status"] == "True"
                   for node in nodes if node["metadata"]["name"] == f"node-{index}"
                   for condition in node["status"].get("conditions", []))

    def load(self, index: int, archive: pathlib.Path) -> None:
        """Gives the node the image in the OCI archive `archive`."""
        subprocess.run(self._inside(index, "ctr", "--namespace", "k8s.io", "images", "import", archive), check=True,
                       capture_output=True, timeout=120)

    def _of(self, index: int) -> pathlib.Path:
        return self.folder / str(index)

    def _inside(self, index: int, *command) -> list:
        first = child_of(self._processes.pid(f"node-{index}"))
        return ["nsenter", "--target", str(first), "--mount", "--net", "--pid", *map(str, command)]

    def _containerd_answers(self, index: int) -> bool:
        return subprocess.run(self._inside(index, "ctr", "version"), capture_output=True, check=False, timeout=30).returncode == 0

    def _plug_in(self, index: int, count: int) -> None:
        network, name, cable = self._network, f"{self._network.bridge}-{index}", f"ls{self._network.number}-{index}"
        ip("netns", "add", name)
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", cable, "master", network.bridge, "up")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "address", "add", f"{network.node(index)}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "route", "add", "default", "via", network.host)
        for other in range(count):
            if other != index:
                ip("-n", name, "route", "add", network.pods(other), "via", network.node(other))
        ip("route", "add", network.pods(index), "via", network.node(index))
        subprocess.run(["nsenter", f"--net=/run/netns/{name}", "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"], check=True)

    def _install(self, index: int) -> None:
        folder, network, authority = self._of(index), self._network, self.plane.authority
        (folder / "cni").mkdir(parents=True)
        authority.issue(f"node-{index}", f"/O=system:nodes/CN=system:node:node-{index}")
        (folder / "kubeconfig").write_text(authority.kubeconfig(self.plane.server, authority.client(f"node-{index}")))
        (folder / "resolv.conf").write_text(f"nameserver {network.host}\n")
        (folder / "cni" / "10-bridge.conflist").write_text(json.dumps({
            "cniVersion": "1.0.0", "name": "pods", "plugins": [
                {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True,
                 "ipam": {"type": "host-local", "ranges": [[{"subnet": network.pods(index)}]], "routes": [{"dst": "0.0.0.0/0"}]}},
            ]}))
        # A negative oom_score_adj needs a right that root does not have in every virtual machine.
        (folder / "containerd.toml").write_text(f"""version = 2
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
""")
        # A kubelet removes the pods' control groups that it does not know: a root of its own for each.
        group = f"{network.bridge}-{index}"
        for root in control_group_roots("cgroup"):
            (root / group).mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):
                if (root / file).exists():
                    (root / group / file).write_text((root / file).read_text())
        (folder / "kubelet.json").write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "failCgroupV1": False, "failSwapOn": False, "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{group}",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "clusterDNS": [network.host], "clusterDomain": "cluster.local", "resolvConf": f"{folder}/resolv.conf",
            "makeIPTablesUtilChains": False, "healthzBindAddress": network.node(index),
            "authentication": {"x509": {"clientCAFile": f"{authority.folder}/ca.crt"}, "anonymous": {"enabled": False}},
            "authorization": {"mode": "Webhook"},
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "nodeLeaseDurationSeconds": 8, "nodeStatusUpdateFrequency": "4s",
        }))

    def _pause_image(self) -> pathlib.Path:
        """An image whose program sleeps for ever: every pod has one, it holds the pod's namespaces."""
        archive, rootfs = self.folder / "pause.tar", self.folder / "pause"
        if not archive.exists():
            rootfs.mkdir(parents=True, exist_ok=True)
            subprocess.run(["gcc", "-static", "-Os", "-s", "-o", str(rootfs / "pause"), str(HERE / "pause.c")], check=True)
            image.make_archive(archive, rootfs, PAUSE, ["/pause"])
        return archive

    def _start_dns(self) -> None:
        if self._processes.pid("coredns"):
            return
        # Two blocks: in one, the template would answer before the cluster does.
        configuration = self.plane.folder / "Corefile"
        configuration.write_text(f"""cluster.local in-addr.arpa {{
  bind {self._network.host}
  errors
  ready {self._network.host}:8181
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {self.plane.kubeconfig}
    pods insecure
    ttl 5
  }}
}}
. {{
  bind {self._network.host}
  template ANY ANY . {{
    rcode NXDOMAIN
  }}
}}
""")
        self._processes.start("coredns", [binaries.path("coredns"), "-conf", configuration],
                              lambda: answers(f"http://{self._network.host}:8181/ready"))


def read(path: pathlib.Path) -> str:
    """What is in a file of /proc; nothing, if its process has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def control_group_roots(kind: str) -> list:
    """Where each hierarchy of control groups is mounted: `cgroup`, version 1 (one for each controller), or `cgroup2`."""
    mounts = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    return [pathlib.Path(fields[1]) for fields in mounts if fields[2] == kind]


def remove_control_group(group: pathlib.Path) -> None:
    """Removes a control group and those in it. Their processes have been killed, but may not be gone yet."""
    if not group.exists():
        return
    for child in group.iterdir():
        if child.is_dir():
            remove_control_group(child)

    def removed() -> bool:
        try:
            group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True

    wait_until(removed, f"{group} can be removed", 10)
