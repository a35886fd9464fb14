"""Kubernetes' programs, compiled from their Go modules and kept under ~/.cache/lockstep.

What is built, and at which version, stands in modules/*/go.mod; go.sum pins every byte of it. A program is built the
first time it is asked for (the API server: about five minutes) and then found in milliseconds; the folder's name says the
version and what else went into it, so that an old one is never taken for a new one.
"""

import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

MODULES = pathlib.Path(__file__).resolve().parent / "modules"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "lockstep"

KUBERNETES = "k8s.io/kubernetes"
# program: its module's folder, the module that has its version, its package
PROGRAMS = {
    "etcd": ("etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": ("kubernetes", KUBERNETES, KUBERNETES + "/cmd/kube-apiserver"),
    "kube-controller-manager": ("kubernetes", KUBERNETES, KUBERNETES + "/cmd/kube-controller-manager"),
    "kube-scheduler": ("kubernetes", KUBERNETES, KUBERNETES + "/cmd/kube-scheduler"),
    "kubelet": ("kubernetes", KUBERNETES, KUBERNETES + "/cmd/kubelet"),
    "kubectl": ("kubernetes", KUBERNETES, KUBERNETES + "/cmd/kubectl"),
    "kubeconform": ("kubeconform", "github.com/yannh/kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform"),
    "coredns": ("coredns", "github.com/coredns/coredns", "."),
    "helm": ("helm", "helm.sh/helm/v3", "helm.sh/helm/v3/cmd/helm"),
    "kwok": ("kwok", "sigs.k8s.io/kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    # Other operators, to be measured beside ours.
    "jobset": ("jobset", "sigs.k8s.io/jobset", "sigs.k8s.io/jobset"),
    "training-operator": ("training-operator", "github.com/kubeflow/training-operator",
                          "github.com/kubeflow/training-operator/cmd/training-operator.v1"),
}


def version(program: str) -> str:
    """The version of `program` that its go.mod asks for, with the v."""
    folder, module, _ = PROGRAMS[program]
    text = (MODULES / folder / "go.mod").read_text()
    return re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", text, re.MULTILINE).group(1)


def linker_flags(program: str) -> str:
    flags = "-s -w"
    if PROGRAMS[program][1] == KUBERNETES:
        number = version(program)
        major, minor = re.match(r"v(\d+)\.(\d+)", number).groups()
        package = "k8s.io/component-base/version"
        flags += f" -X {package}.gitVersion={number} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    return flags


def folder_of(program: str) -> pathlib.Path:
    sources = MODULES / PROGRAMS[program][0]
    digest = hashlib.sha256(linker_flags(program).encode())
    for file in sorted(sources.iterdir()):
        digest.update(file.read_bytes())
    return CACHE / f"{program}-{version(program)}-{digest.hexdigest()[:8]}"


def path(program: str) -> pathlib.Path:
    """Where `program` is, built if it was not there. Safe to call from several processes at once."""
    target = folder_of(program) / program
    if target.exists():
        return target
    if shutil.which("go") is None:
        raise RuntimeError(f"{program} is built from its Go module: Go 1.26 or later must be on the PATH")
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{PROGRAMS[program][0]}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            build(program, target)
    return target


def build(program: str, target: pathlib.Path) -> None:
    folder, _, package = PROGRAMS[program]
    print(f"building {program} {version(program)}", file=sys.stderr, flush=True)
    started = time.monotonic()
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".new")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    subprocess.run(["nice", "-n", "19", "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", linker_flags(program),
                    "-o", str(unfinished), package],
                   cwd=MODULES / folder, env=environment, check=True)
    unfinished.rename(target)
    print(f"built {program} in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:] or PROGRAMS:
        print(path(name))
