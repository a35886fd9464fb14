"""Long-lived processes of a cluster: started detached, found again by a later command, ended by pid and nothing else."""

import fcntl
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import time


class StartError(Exception):
    """A program ended, or was not ready in time; the message carries the end of its log."""


def start_time(pid: int) -> str | None:
    """When `pid` was started, in the kernel's ticks: with it a pid names one process for ever. None: no such process."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        # A killed process keeps its sockets until its last thread is gone.
        over = fields[0] == "Z" and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if over else fields[19]


def child_of(pid: int) -> int | None:
    """The only child of `pid`, once it has one."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else None


def free_port() -> int:
    """A TCP port nobody listens on, outside the range that outgoing connections take theirs from."""
    for _ in range(200):
        port = random.SystemRandom().randrange(15000, 29000)
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
                return port
            except OSError:
                continue
    raise StartError("no free port between 15000 and 29000")


def wait_until(ready, what: str, seconds: float, interval: float = 0.05) -> None:
    """Calls `ready` until it is true. StartError, naming `what`, after `seconds`."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise StartError(f"{what}: not so after {seconds:.0f} s")
        time.sleep(interval)


class Processes:
    """The processes of one folder: their logs in `folder`/log, who they are in `folder`/processes.json.

    Several commands and threads may use one folder at once, each a process of its own.
    """

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._file = folder / "processes.json"

    def start(self, name: str, command: list, ready, seconds: float = 60, inner: bool = False) -> None:
        """Starts `command` as `name` and returns as soon as `ready()` is true.

        With `inner` it is the command's child that is meant: what nsenter starts in another pid namespace.
        StartError if the program ends first or is not ready in time; it is not left behind.
        """
        log = self._folder / "log" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as output:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        self._remember(name, process.pid)

        def ready_or_ended() -> bool:
            if process.poll() is not None:
                raise StartError(f"{name} ended with {process.returncode}:\n{tail(log)}")
            return ready()

        try:
            if inner:
                wait_until(lambda: process.poll() is not None or child_of(process.pid), f"{name} has a process", 10)
                self._remember(name, child_of(process.pid) or process.pid)
            wait_until(ready_or_ended, f"{name} is ready", seconds)
        except StartError as error:
            self.stop(name, 0)
            raise StartError(f"{error}\n{tail(log)}") from None

    def pid(self, name: str) -> int | None:
        """The pid of `name` if it runs."""
        entry = self._read().get(name)
        return entry["pid"] if entry and start_time(entry["pid"]) == entry["started"] else None

    def names(self) -> list:
        return list(self._read())

    def signal(self, name: str, number: int) -> None:
        pid = self.pid(name)
        if pid is not None:
            os.kill(pid, number)

    def stop(self, name: str, grace: float = 10) -> None:
        """SIGTERM, and SIGKILL after `grace` seconds (0: at once). Returns when the process is gone."""
        self.signal(name, signal.SIGTERM if grace > 0 else signal.SIGKILL)
        try:
            wait_until(lambda: self._gone(name), f"{name} ended", grace)
        except StartError:
            self.signal(name, signal.SIGKILL)
            wait_until(lambda: self._gone(name), f"{name} ended after SIGKILL", 30)
        self._change(lambda entries: entries.pop(name, None))

    def _gone(self, name: str) -> bool:
        pid = self.pid(name)
        if pid is None:
            return True
        try:  # reaps it where it is our own child
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass
        return self.pid(name) is None

    def _remember(self, name: str, pid: int) -> None:
        self._change(lambda entries: entries.update({name: {"pid": pid, "started": start_time(pid)}}))

    def _read(self) -> dict:
        return json.loads(self._file.read_text()) if self._file.exists() else {}

    def _change(self, change) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with open(self._file.with_suffix(".lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
            entries = self._read()
            change(entries)
            unfinished = self._file.with_suffix(".new")
            unfinished.write_text(json.dumps(entries, indent=1))
            unfinished.rename(self._file)


def tail(log: pathlib.Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
