"""Root file systems of other images, to run the launcher in without a container: with nothing in them, with musl, of a
Debian release. What comes from Debian's mirror stays in ~/.cache/lockstep; a test is skipped where it cannot be had."""

import contextlib
import fcntl
import pathlib
import shutil
import subprocess
import unittest

import fixture  # for the paths of what follows
import binaries
import image

HERE = pathlib.Path(__file__).resolve().parent
MIRROR = "http://deb.debian.org/debian"

# In a mount namespace of its own, so that nothing is to be taken down; the bundle is read-only, as in a pod.
ENTER = f"""
cd "$1"; bundle=$2; shift 2
mkdir -p .{image.BUNDLE} proc dev tmp
mount --bind "$bundle" .{image.BUNDLE}
mount -o remount,bind,ro .{image.BUNDLE}
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs tmpfs tmp
exec chroot . "$@"
"""


def run(root: pathlib.Path, bundle: pathlib.Path, *command: str, text: str = "", **environment: str) -> subprocess.CompletedProcess:
    """What `command`, a program of `bundle` and its arguments, does in the image `root`."""
    return subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
                           "sh", "-ec", ENTER, "sh", str(root), str(bundle), f"{image.BUNDLE}/{command[0]}", *command[1:]],
                          env={"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **environment}, input=text, text=True,
                          capture_output=True, check=False, timeout=120)


def compile_program(out: pathlib.Path, *options: str) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-Os", str(HERE / "rank.c"), "-o", str(out), *options], check=True)


def nothing(root: pathlib.Path) -> None:
    """Fills `root`: a program without a C library, which is all that there is."""
    compile_program(root / "usr/bin/rank", "-static")


def musl(root: pathlib.Path) -> None:
    """Fills `root`: musl and a program that loads it."""
    packages = kept("debian-musl", unpack_musl)
    libraries = packages / "usr/lib/x86_64-linux-musl"
    (root / "lib").mkdir(parents=True)
    shutil.copyfile(libraries / "libc.so", root / "lib/ld-musl-x86_64.so.1")
    (root / "lib/ld-musl-x86_64.so.1").chmod(0o755)
    compile_program(root / "usr/bin/rank", "-nostdinc", "-isystem", str(packages / "usr/include/x86_64-linux-musl"), "-nostdlib",
                    "-no-pie", "-fno-stack-protector", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1", str(libraries / "crt1.o"),
                    str(libraries / "crti.o"), f"-L{libraries}", "-lc", str(libraries / "crtn.o"))


def debian(release: str) -> pathlib.Path:
    """The packages of a minimal Debian `release`, unpacked."""
    def bootstrap(out: pathlib.Path) -> None:
        succeed("debootstrap", "--foreign", "--variant=minbase", release, str(out), MIRROR)
        if (out / "proc").is_symlink():  # what debootstrap makes where it may mount nothing
            (out / "proc").unlink()

    return kept(f"debian-{release}", bootstrap)


def installed_debian(release: str) -> pathlib.Path:
    """A minimal Debian `release` as it is after its installation."""
    return kept(f"debian-{release}-installed", lambda out: succeed("debootstrap", "--variant=minbase", release, str(out), MIRROR))


def unpack_musl(out: pathlib.Path) -> None:
    out.mkdir()
    succeed("apt-get", "download", "-q", "musl", "musl-dev", cwd=out)
    for package in out.glob("*.deb"):
        succeed("dpkg-deb", "--extract", str(package), str(out))
    # Debian's package has it in both places' names: the loader is the library.
    library = out / "usr/lib/x86_64-linux-musl/libc.so"
    if not library.exists():
        shutil.copyfile(out / "lib/x86_64-linux-musl/libc.so", library)


def kept(name: str, make) -> pathlib.Path:
    """The folder `name` of the cache, which `make` fills where it is not there."""
    folder = binaries.CACHE / name
    binaries.CACHE.mkdir(parents=True, exist_ok=True)
    with open(binaries.CACHE / f"{name}.lock", "w", encoding="utf-8") as lock, contextlib.closing(lock):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_suffix(".new")
            shutil.rmtree(unfinished, ignore_errors=True)
            make(unfinished)
            unfinished.rename(folder)
    return folder


def succeed(*command: str, cwd: pathlib.Path | None = None) -> None:
    """Runs what needs Debian's mirror; the test is skipped where it fails."""
    if shutil.which(command[0]) is None:
        raise unittest.SkipTest(f"{command[0]} is not installed")
    result = subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=600)
    if result.returncode != 0:
        said = result.stdout.strip().splitlines() or [f"exit code {result.returncode}"]
        raise unittest.SkipTest(f"{' '.join(command)}: {said[-1]}")
