"""Virtual environments with packages from PyPI, made once and kept, for tests that ask a program of others."""

import fcntl
import os
import pathlib
import subprocess
import sys


def python_with(name: str, version: str, *more: str, limit: float = 240) -> pathlib.Path | None:
    """The interpreter of one that has NAME==VERSION and what else is said; None where it cannot be installed in `limit` seconds."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "lockstep"
    cache.mkdir(parents=True, exist_ok=True)
    environment = cache / f"{name}-{version}"
    with open(f"{environment}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = environment / "complete"
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
            install = [environment / "bin/pip", "install", "-q", "--disable-pip-version-check", f"{name}=={version}", *more]
            try:
                subprocess.run(install, timeout=limit, check=True)
            except subprocess.SubprocessError:
                return None
            done.touch()
    return environment / "bin/python3"
