"""The .deb in a Debian that has nothing else: installed by apt with what it needs, used, and removed."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import bare_roots
import fixture

JOB = json.dumps({"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "installed"}, "spec": {
    "processesPerReplica": 2, "devices": {"type": "CPU"}, "trainer": {
        "data": {"format": "Digits", "samples": 512},
        "model": {"layers": [{"type": "Dense", "units": 10}], "loss": "SparseCategoricalCrossentropy"},
        "optimizer": {"type": "SGD", "learningRate": 0.1}, "batchSize": 64, "epochs": 1}}})

# In a mount namespace of its own: what is installed goes with it.
ENTER = """
lower=$1; package=$2; scratch=$3; script=$4
mount -t tmpfs tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
cd "$scratch/root"
cp "$package" lockstep.deb
cp /etc/resolv.conf etc/resolv.conf
mount -t proc proc proc
mount --rbind /dev dev
exec chroot . sh -ec "$script"
"""


@unittest.skipUnless(os.geteuid() == 0, "only root changes its root")
class PackageTest(unittest.TestCase):
    def test_it_is_installed_used_and_removed(self):
        for tool in ("cpack", "dpkg-shlibdeps", "debootstrap"):
            if shutil.which(tool) is None:
                self.skipTest(f"{tool} is not installed")
        lower = bare_roots.installed_debian("bookworm")
        with tempfile.TemporaryDirectory() as folder:
            build = fixture.bin_folder().parent
            subprocess.run(["cpack", "-G", "DEB", "--config", build / "CPackConfig.cmake", "-B", folder], check=True, capture_output=True)
            package, = pathlib.Path(folder).glob("*.deb")
            scratch = pathlib.Path(folder) / "scratch"
            scratch.mkdir()

            def run(script: str) -> subprocess.CompletedProcess:
                return subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-ec",
                                       ENTER, "sh", str(lower), str(package), str(scratch), script],
                                      env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root"},
                                      input=JOB, text=True, capture_output=True, check=False, timeout=600)

            if run("apt-get update -q").returncode != 0:
                self.skipTest("Debian's mirror is not to be had")
            done = run("""
                exec 3>&1 >/dev/null
                find / -xdev -path /proc -prune -o -type f -print | sort > /before
                apt-get update -q
                apt-get install -q -y --no-install-recommends /lockstep.deb </dev/null
                lockstep version >&3
                lockstep run - --run-dir /tmp/run >&3
                kubectl-lockstep --help >&3
                test -e /usr/share/man/man1/lockstep-run.1.gz -o -e /usr/share/man/man1/lockstep-run.1
                test -x /usr/bin/lockstep-pmix
                apt-get remove -q -y lockstep </dev/null
                find / -xdev -path /proc -prune -o -type f -print | sort > /after
                comm -13 /before /after | grep -i lockstep | grep -v '^/tmp/run/' | sed 's/^/left behind: /' >&3 || true
            """)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^lockstep [0-9.]+$")
        self.assertIn("test: loss", done.stdout)
        self.assertIn("kubectl lockstep", done.stdout)
        left = [line for line in done.stdout.splitlines() if line.startswith("left behind: ")]
        self.assertEqual([line for line in left if "/var/lib/" not in line and "/var/log/" not in line], [])


if __name__ == "__main__":
    unittest.main()
