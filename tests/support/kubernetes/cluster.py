#!/usr/bin/env python3
"""A real Kubernetes on this machine, for tests and for trying things out: every program from its Go module or from Debian.

    cluster.py control-plane up [--only-api]    etcd, API server, controller manager, scheduler; prints the kubeconfig's path
    cluster.py control-plane down
    cluster.py nodes up N                       real nodes: containerd and a kubelet each, in namespaces; and DNS. Needs root
    cluster.py nodes down
    cluster.py nodes power-off|power-on|stop-kubelet|start-kubelet|pull-cable|plug-cable NODE
    cluster.py load ARCHIVE…                    gives an image (an OCI archive) to every node
    cluster.py kubeconfig                       the path of an administrator's kubeconfig
    cluster.py crash PROGRAM | start PROGRAM    ends a program of the control plane with SIGKILL; starts it again

Clusters in different folders (--dir) run side by side. What is not compiled yet is compiled first, which takes minutes.
"""

import argparse
import pathlib
import sys
import time

from control_plane import CONTROLLERS, ControlPlane
from nodes import Nodes
from processes import StartError

NODE_ACTIONS = {"power-off": Nodes.power_off, "power-on": Nodes.power_on, "stop-kubelet": Nodes.stop_kubelet,
                "start-kubelet": Nodes.start_kubelet, "pull-cable": Nodes.pull_cable, "plug-cable": Nodes.plug_cable}


def act(plane: ControlPlane, arguments: argparse.Namespace) -> None:
    if arguments.command == "control-plane":
        if arguments.action == "down":
            if plane.up_now and plane.network:
                Nodes(plane).down()
            plane.down()
        else:
            plane.up(arguments.only_api)
            print(plane.kubeconfig)
    elif arguments.command == "kubeconfig":
        print(plane.kubeconfig)
    elif arguments.command == "crash":
        plane.stop(arguments.program)
    elif arguments.command == "start":
        plane.start(arguments.program)
    elif arguments.command == "load":
        nodes = Nodes(plane)
        for archive in arguments.archives:
            for index in nodes.indices():
                nodes.load(index, archive)
    elif arguments.action == "up":
        Nodes(plane).up(arguments.number)
    elif arguments.action == "down":
        Nodes(plane).down()
    else:
        NODE_ACTIONS[arguments.action](Nodes(plane), arguments.number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("/tmp/lockstep-cluster"),
                        help="the cluster's folder (default: %(default)s)")
    commands = parser.add_subparsers(dest="command", required=True)
    control_plane = commands.add_parser("control-plane", parents=[folder])
    control_plane.add_argument("--only-api", action="store_true", help="etcd and the API server on loopback, no root needed")
    control_plane.add_argument("action", choices=["up", "down"])
    nodes = commands.add_parser("nodes", parents=[folder])
    nodes.add_argument("action", choices=["up", "down", *NODE_ACTIONS])
    nodes.add_argument("number", type=int, nargs="?", default=0)
    commands.add_parser("load", parents=[folder]).add_argument("archives", type=pathlib.Path, nargs="+")
    commands.add_parser("kubeconfig", parents=[folder])
    for name in ("crash", "start"):
        commands.add_parser(name, parents=[folder]).add_argument("program", choices=["etcd", "kube-apiserver", *CONTROLLERS])
    arguments = parser.parse_args()

    started = time.monotonic()
    try:
        act(ControlPlane(arguments.dir), arguments)
        if arguments.command != "kubeconfig":
            print(f"done after {time.monotonic() - started:.1f} s", file=sys.stderr)
    except (StartError, RuntimeError) as error:
        print(f"cluster.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
