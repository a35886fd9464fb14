#!/usr/bin/env python3
"""Makes Lockstep's images without a container daemon: the programs, the libraries they load, and nothing else.

    image.py rootfs OUT --bin build/release/bin [--operator]     a folder: what the image holds
    image.py rootfs OUT --bin build/cuda/bin --cuda              the same with liblockstep-cuda.so, CUDA, cuDNN and NCCL
    image.py bundle OUT --bin build/release/bin                  what another image may have at /opt/lockstep: the launcher alone
    image.py archive OUT.tar ROOTFS --name NAME [--gzip]         an OCI archive of it: `ctr images import`, `podman load`

The programs are taken as they were compiled on Debian 12, their libraries from the machine that this runs on, as
Debian's packages have them (and NVIDIA's, from PyPI); each package's copyright file and version are kept, which is where
scanners look for them. The user in the image is 65532, who owns nothing. The same input gives the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tarfile

USER = 65532
MULTIARCH = "usr/lib/x86_64-linux-gnu"
LOADER = "ld-linux-x86-64.so.2"
# Where a bundle lies, in every image: a program names its loader by an absolute path. See docs/adr/0013.
BUNDLE = "/opt/lockstep"
# The launcher, and what serves PMIx to the ranks of MPI.
BUNDLED = ("lockstep", "lockstep-pmix")
# Empty since glibc 2.34, and wanted by the driver's library, which is older: an older image's own are of another C library
# than the bundle's, and two of them in a process do not go together.
ONCE_OF_GLIBC = ("libdl.so.2", "libpthread.so.0", "librt.so.1")


def libraries(program: pathlib.Path) -> list:
    """The paths of the shared libraries that `program` loads at its start, its loader among them."""
    listing = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout
    missing = re.findall(r"^\s*(\S+) => not found", listing, re.MULTILINE)
    if missing:
        raise SystemExit(f"image.py: {program.name} needs {', '.join(missing)}, which this machine does not have")
    return [pathlib.Path(path) for path in re.findall(r"(/\S+) \(0x", listing)]


def wheel_of(library: pathlib.Path) -> pathlib.Path | None:
    """The .dist-info of the Python package that `library` is a file of; None if it is of none."""
    real = library.resolve()
    site = next((parent for parent in real.parents if parent.name == "site-packages"), None)
    if site is None:
        return None
    entry = f"{real.relative_to(site)},"
    return next((record.parent for record in sorted(site.glob("*.dist-info/RECORD"))
                 if any(line.startswith(entry) for line in record.read_text().splitlines())), None)


def packages_of(files: set) -> dict:
    """The Debian package of each of `files`. They lie in /usr/lib or, as far as Debian's list knows, in /lib."""
    places = {place: file for file in files for place in (str(file), str(file.resolve()), f"/usr{file}")}
    listing = subprocess.run(["dpkg-query", "-S", *sorted(places)], capture_output=True, text=True, check=False).stdout
    owners = {}
    for line in listing.splitlines():
        package, _, place = line.partition(": ")
        owners[places[place]] = package.split(",")[0]
    missing = sorted(str(file) for file in files if file not in owners)
    if missing:
        raise SystemExit(f"image.py: of no Debian package: {', '.join(missing)}")
    return owners


def add_wheel(out: pathlib.Path, information: pathlib.Path) -> None:
    """What is to be kept of a Python package that a library was taken from: its name, version and licence."""
    metadata = information / "METADATA"
    name = re.search(r"^Name: (\S+)$", metadata.read_text(), re.MULTILINE).group(1)
    documents = out / "usr/share/doc" / name
    documents.mkdir(parents=True)
    shutil.copyfile(metadata, documents / "METADATA")
    shutil.copyfile(next(information.glob("licenses/*")), documents / "copyright")


def add_copyright(documents: pathlib.Path, package: str) -> None:
    """The licence of a Debian package, into a folder of its own."""
    (documents / package).mkdir(parents=True)
    shutil.copyfile(f"/usr/share/doc/{package}/copyright", documents / package / "copyright")


def opened_by_plugin(binaries: pathlib.Path) -> set:
    """The libraries that liblockstep-cuda.so opens when a model has convolutions: cuDNN's, and what these load of others.
    (Some of them load the driver, which comes from the node.)"""
    folder = binaries.resolve().parents[1] / "cuda-toolkit/cudnn/lib"
    return set(folder.glob("libcudnn*.so.9")) | {library for library in libraries(folder / "libcudnn_cnn.so.9")
                                                 if "cudnn" not in library.name}


def make_rootfs(out: pathlib.Path, binaries: pathlib.Path, programs: list, cuda: bool = False) -> None:
    """Fills `out`, which must not exist, with `programs` of the folder `binaries` and what they need; with `cuda` also
    with liblockstep-cuda.so. The driver's own libraries come from the node, by NVIDIA's container toolkit.

    The launcher is a bundle, so that it can be put into other images from here (`lockstep inject`).
    """
    for folder in ("usr/bin", MULTIARCH, "usr/lib64", "etc", "tmp", "var/lib/dpkg/status.d", "home/lockstep"):
        (out / folder).mkdir(parents=True)
    (out / "tmp").chmod(0o1777)
    if os.geteuid() == 0:
        os.chown(out / "home/lockstep", USER, USER)
    (out / "lib").symlink_to("usr/lib")
    (out / "lib64").symlink_to("usr/lib64")
    (out / "bin").symlink_to("usr/bin")
    (out / "etc/passwd").write_text("root:x:0:0:root:/root:/sbin/nologin\n"
                                    f"lockstep:x:{USER}:{USER}:lockstep:/home/lockstep:/sbin/nologin\n")
    (out / "etc/group").write_text(f"root:x:0:\nlockstep:x:{USER}:\n")
    (out / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")

    # The operator alone starts no ranks.
    bundled = BUNDLED if "lockstep-trainer" in programs else BUNDLED[:1]
    owners = make_bundle(out / BUNDLE[1:], binaries, bundled)
    (out / "usr/bin/lockstep").symlink_to("../.." + BUNDLE + "/bin/lockstep")
    needed = set()
    for name in programs:
        if name in bundled:
            continue
        subprocess.run(["strip", "--strip-unneeded", "-o", str(out / "usr/bin" / name), str(binaries / name)], check=True)
        (out / "usr/bin" / name).chmod(0o755)
        needed.update(libraries(binaries / name))
    wheels = {}
    if cuda:
        plugin = binaries / "liblockstep-cuda.so"
        shutil.copyfile(plugin, out / "usr/lib" / plugin.name)
        subprocess.run(["strip", "--strip-unneeded", str(out / "usr/lib" / plugin.name)], check=True)
        # By this the toolkit knows to which folder the driver's libraries go.
        shutil.copyfile("/etc/debian_version", out / "etc/debian_version")
        of_plugin = set(libraries(plugin)) | opened_by_plugin(binaries)
        wheels = {library: wheel for library in of_plugin if (wheel := wheel_of(library))}
        needed |= of_plugin
        for wheel in sorted(set(wheels.values())):
            add_wheel(out, wheel)
    owners |= packages_of(needed - set(wheels))
    for library in sorted(needed):
        target = out / ("usr/lib64" if library.name == LOADER else MULTIARCH) / library.name
        shutil.copyfile(library.resolve(), target)
        target.chmod(0o755)
    for package in sorted(set(owners.values())):
        name = package.split(":")[0]
        (out / "var/lib/dpkg/status.d" / name).write_bytes(
            subprocess.run(["dpkg-query", "-s", package], check=True, capture_output=True).stdout)
        add_copyright(out / "usr/share/doc", name)


def make_bundle(out: pathlib.Path, binaries: pathlib.Path, programs: tuple = BUNDLED) -> dict:
    """Fills `out`, which must not exist, with what goes to BUNDLE: `programs` in bin/, in lib/ all that they load, the C
    library and its loader among them, and their licences. Returns the Debian package of each of these libraries.

    They are found by what is written in the program and not by an environment variable, which the user's program would
    inherit.
    """
    (out / "bin").mkdir(parents=True)
    (out / "lib").mkdir()
    loaded = {library for name in programs for library in libraries(binaries / name)}
    libc = next(library for library in loaded if library.name == "libc.so.6")
    owners = packages_of({*loaded, *(libc.parent / name for name in ONCE_OF_GLIBC)})
    for library in owners:
        shutil.copyfile(library.resolve(), out / "lib" / library.name)
        (out / "lib" / library.name).chmod(0o755)
    # RPATH and not RUNPATH, which holds for a program's own needs only and comes after LD_LIBRARY_PATH. (In two steps:
    # patchelf 0.14 mixes them up.)
    for name in programs:
        program = out / "bin" / name
        subprocess.run(["strip", "--strip-unneeded", "-o", str(program), str(binaries / name)], check=True)
        program.chmod(0o755)
        for changes in ([word for empty in ONCE_OF_GLIBC for word in ("--add-needed", empty)],
                        ["--set-interpreter", f"{BUNDLE}/lib/{LOADER}", "--force-rpath", "--set-rpath", f"{BUNDLE}/lib"]):
            subprocess.run(["patchelf", *changes, str(program)], check=True)
    for package in sorted({package.split(":")[0] for package in owners.values()}):
        add_copyright(out / "share/doc", package)
    return owners


def layer(rootfs: pathlib.Path) -> bytes:
    """`rootfs` as a tar file: sorted, owned by root, without times."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(rootfs.rglob("*")):
            entry = archive.gettarinfo(str(path), str(path.relative_to(rootfs)))
            entry.uid = entry.gid = USER if path.relative_to(rootfs).parts[:2] == ("home", "lockstep") else 0
            entry.uname = entry.gname = ""
            entry.mtime = 0
            if entry.isreg():
                with open(path, "rb") as content:
                    archive.addfile(entry, content)
            else:
                archive.addfile(entry)
    return buffer.getvalue()


def make_archive(out: pathlib.Path, rootfs: pathlib.Path, name: str, entrypoint: list, compress: bool = False,
                 user: str = f"{USER}:{USER}") -> None:
    """Writes an OCI archive of one layer to `out`; `name` is what the image is called once imported."""
    content = layer(rootfs)
    blobs = {}

    def blob(data: bytes, media_type: str) -> dict:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    difference = f"sha256:{hashlib.sha256(content).hexdigest()}"
    kind = "application/vnd.oci.image.layer.v1.tar"
    packed = blob(gzip.compress(content, 9, mtime=0), kind + "+gzip") if compress else blob(content, kind)
    configuration = blob(json.dumps({
        "architecture": "amd64", "os": "linux",
        "config": {"User": user, "Entrypoint": entrypoint, "WorkingDir": "/",
                   "Env": ["PATH=/usr/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [difference]},
    }).encode(), "application/vnd.oci.image.config.v1+json")
    manifest = blob(json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": configuration, "layers": [packed],
    }).encode(), "application/vnd.oci.image.manifest.v1+json")
    manifest["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]}

    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    files |= {f"blobs/sha256/{digest}": data for digest, data in sorted(blobs.items())}
    unfinished = out.with_suffix(".new")
    with tarfile.open(unfinished, "w") as archive:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    unfinished.rename(out)


def size_of(rootfs: pathlib.Path) -> int:
    """The bytes of the files in `rootfs`."""
    return sum(path.lstat().st_size for path in rootfs.rglob("*") if stat.S_ISREG(path.lstat().st_mode))


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    rootfs = commands.add_parser("rootfs")
    rootfs.add_argument("out", type=pathlib.Path)
    rootfs.add_argument("--bin", type=pathlib.Path, required=True, help="where lockstep and lockstep-trainer were compiled to")
    rootfs.add_argument("--operator", action="store_true", help="the launcher alone, which is all that the operator needs")
    rootfs.add_argument("--cuda", action="store_true", help="for GPUs too; --bin is of the preset cuda")
    bundle = commands.add_parser("bundle")
    bundle.add_argument("out", type=pathlib.Path)
    bundle.add_argument("--bin", type=pathlib.Path, required=True)
    archive = commands.add_parser("archive")
    archive.add_argument("out", type=pathlib.Path)
    archive.add_argument("rootfs", type=pathlib.Path)
    archive.add_argument("--name", required=True, help="such as lockstep.dev/lockstep:1.0.0")
    archive.add_argument("--gzip", action="store_true", help="smaller, for a registry; not needed to import it here")
    return parser


def main() -> int:
    arguments = command_line().parse_args()
    os.umask(0o022)
    if arguments.command == "rootfs":
        programs = ["lockstep"] + ([] if arguments.operator else ["lockstep-trainer"])
        make_rootfs(arguments.out, arguments.bin, programs, arguments.cuda)
        print(f"{arguments.out}: {size_of(arguments.out) / 1e6:.1f} MB")
    elif arguments.command == "bundle":
        make_bundle(arguments.out, arguments.bin)
        print(f"{arguments.out}: {size_of(arguments.out) / 1e6:.1f} MB")
    else:
        make_archive(arguments.out, arguments.rootfs, arguments.name, ["/usr/bin/lockstep"], arguments.gzip)
        print(f"{arguments.out}: {arguments.out.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
