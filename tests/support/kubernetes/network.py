"""The network of one test cluster: a bridge on this machine, to which nodes are plugged, and its addresses.

Everything lies in 10.N.0.0/16, where N is one that nobody here uses: the bridge itself says so, since a second one of its
name cannot be made. The host is 10.N.0.1 and node I is 10.N.0.(10+I), its pods 10.N.(I+1).0/24, and services
10.N.128.0/17. No address is translated: the host and pods reach each other directly.

The API server listens on the first service address, so that pods find it where they look for it, without kube-proxy. Other
ClusterIPs lead nowhere; headless services are what Lockstep makes.
"""

import dataclasses
import ipaddress
import json
import pathlib
import subprocess

NUMBERS = range(100, 220)


def ip(*words: str) -> None:
    result = subprocess.run(["ip", *words], capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {result.stderr.strip()}")


def routed() -> list:
    """The networks that this machine has a route to, the default one left out."""
    routes = json.loads(subprocess.run(["ip", "-json", "route"], check=True, capture_output=True, text=True).stdout or "[]")
    return [ipaddress.ip_network(route["dst"]) for route in routes if route["dst"] != "default"]


@dataclasses.dataclass(frozen=True)
class Network:
    number: int

    @property
    def bridge(self) -> str:
        return f"lockstep{self.number}"

    @property
    def host(self) -> str:
        return f"10.{self.number}.0.1"

    @property
    def services(self) -> str:
        return f"10.{self.number}.128.0/17"

    @property
    def api_server(self) -> str:
        return f"10.{self.number}.128.1"

    def node(self, index: int) -> str:
        return f"10.{self.number}.0.{10 + index}"

    def pods(self, index: int) -> str:
        return f"10.{self.number}.{index + 1}.0/24"

    @classmethod
    def create(cls) -> "Network":
        """Takes a free number and makes its bridge. RuntimeError where this user may not."""
        for number in NUMBERS:
            network = cls(number)
            everything = ipaddress.ip_network(f"10.{number}.0.0/16")
            if any(everything.overlaps(other) for other in routed()):
                continue
            try:
                ip("link", "add", network.bridge, "type", "bridge")
            except RuntimeError as error:
                if "File exists" in str(error):
                    continue
                raise
            ip("address", "add", f"{network.host}/24", "dev", network.bridge)
            ip("address", "add", f"{network.api_server}/32", "dev", network.bridge)
            ip("link", "set", network.bridge, "up")
            return network
        raise RuntimeError("every number for a cluster's network is in use: ip link show type bridge")

    def remove(self) -> None:
        if pathlib.Path(f"/sys/class/net/{self.bridge}").exists():
            ip("link", "delete", self.bridge)
