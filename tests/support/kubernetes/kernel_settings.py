"""What a kubelet sets for the whole machine, put back when the last cluster's nodes are gone.

Clusters may run side by side: the first one that begins to use nodes writes down how things were, in a folder that all of
this machine's clusters share, and the last one that ends restores it.
"""

import fcntl
import json
import pathlib

SETTINGS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
            "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")


class KernelSettings:
    """`user` is a path that is there as long as the cluster is: what has gone without saying so is known by that."""

    def __init__(self, user: pathlib.Path, folder: pathlib.Path = pathlib.Path("/run/lockstep-test-clusters"),
                 system: pathlib.Path = pathlib.Path("/proc/sys")):
        self._user = str(user)
        self._folder = folder
        self._system = system

    def keep(self) -> None:
        """To be called before the first kubelet starts; more than once does no harm."""
        with self._locked() as file:
            state = read(file)
            users = [user for user in state.get("users", []) if pathlib.Path(user).exists()]
            # Those of a user that was killed are how things were before it.
            if "values" not in state:
                state["values"] = {name: (self._system / name).read_text().strip() for name in SETTINGS}
            write(file, {"values": state["values"], "users": sorted({*users, self._user})})

    def restore(self) -> None:
        """To be called after the last kubelet's end. Does nothing while another cluster has nodes."""
        with self._locked() as file:
            state = read(file)
            users = [user for user in state.get("users", []) if user != self._user and pathlib.Path(user).exists()]
            if users:
                write(file, {**state, "users": users})
                return
            for name, value in state.get("values", {}).items():
                (self._system / name).write_text(value)
            write(file, {})

    def _locked(self):
        self._folder.mkdir(parents=True, exist_ok=True)
        file = open(self._folder / "kernel.json", "a+", encoding="utf-8")
        fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
        return file


def read(file) -> dict:
    file.seek(0)
    text = file.read()
    return json.loads(text) if text else {}


def write(file, state: dict) -> None:
    file.seek(0)
    file.truncate()
    if state:
        json.dump(state, file)
    file.flush()
