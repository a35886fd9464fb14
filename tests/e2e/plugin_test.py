"""`kubectl lockstep` on jobs in real pods: found by kubectl as its plugin, with an administrator's rights and with few."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading

import binaries
import fixture
from job_test_case import JobTestCase


class PluginTest(JobTestCase):
    side_by_side = True

    def plugin(self, *words: str, kubeconfig: str | None = None) -> subprocess.Popen:
        """`kubectl lockstep …`, begun."""
        environment = {**os.environ, "PATH": f"{fixture.bin_folder()}:{os.environ['PATH']}",
                       "KUBECONFIG": kubeconfig or str(self.plane.kubeconfig)}
        process = subprocess.Popen([str(binaries.path("kubectl")), "lockstep", *words, "-n", self.namespace], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_plugin(self, *words: str, kubeconfig: str | None = None) -> str:
        process = self.plugin(*words, kubeconfig=kubeconfig)
        out, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        return out

    def kubeconfig_of(self, role: str) -> str:
        """Of a person who has the cluster's role `role` in the namespace."""
        name = f"{role}-{self.namespace}"
        authority = self.plane.authority
        authority.issue(name, f"/CN={name}")
        self.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={name}")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = pathlib.Path(folder.name) / "kubeconfig"
        file.write_text(authority.kubeconfig(self.plane.server, authority.client(name)))
        return str(file)

    def test_status_is_one_screen_of_all_ranks(self):
        self.create("shown", processes=2)
        self.wait_for_steps("shown")
        os.kill(self.ranks_of("shown", 1)[0], signal.SIGKILL)
        self.wait_for_steps("shown", generation=1)
        # (The operator hears of it from replica 0, within ten seconds.)
        self.wait_for_phase("shown", "Running", restarts=1)

        def all_ranks():
            screen = self.run_plugin("status", "shown")
            return screen if len(re.findall(r"^[0-3] +worker-[01] +node-[01] +Training +CPU +\d+", screen, re.MULTILINE)) == 4 else None

        screen = self.wait_until(all_ranks, "every rank of both pods is on the screen")
        print(screen, flush=True)
        self.assertRegex(screen, rf"^shown in {self.namespace}: Running, attempt 0, 1 restart, for ")
        self.assertRegex(screen, r"(?m)^pods: \d of 2 ready$")
        self.assertRegex(screen, r"(?m)^step \d+ of \d+ ")
        self.assertRegex(screen, r"(?m)^slowest: rank [0-3] \(worker-[01] on node-[01]\): [0-9.]+ ms of its own a step")
        self.assertRegex(screen, r"(?m)^last failure: replica 1, process \d: .*exit code 137")

        # Who may only look gets what the operator wrote, and is told what is missing.
        viewer = self.kubeconfig_of("view")
        screen = self.wait_until(lambda: self.try_status("shown", viewer), "the role view reads TrainingJobs")
        self.assertIn("you may not get pods/proxy", screen)
        self.assertRegex(screen, r"(?m)^step \d+ of \d+ ")
        self.assertIn("[worker-1] ", self.run_plugin("logs", "shown", "--tail=3", kubeconfig=viewer))

    def try_status(self, name: str, kubeconfig: str) -> str:
        process = self.plugin("status", name, kubeconfig=kubeconfig)
        out, _ = process.communicate(timeout=60)
        return out if process.returncode == 0 else ""

    def test_logs_of_all_pods_are_followed_over_a_lost_pod_until_the_job_is_gone(self):
        self.create("told", processes=2)
        self.wait_for_steps("told")
        process = self.plugin("logs", "told", "-f")
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(iter(process.stdout.readline, "")), daemon=True)
        reader.start()
        self.wait_until(lambda: lines, "what was written before is shown")
        before = len(lines)
        self.kubectl("delete", "pod", self.pod("told", 1)["metadata"]["name"], "--wait=false")
        self.wait_for_phase("told", "Restarting")
        self.wait_for_steps("told", generation=1)
        self.wait_until(lambda: any("worker-1" in line for line in lines[before:]), "the new pod's agent is heard")
        self.kubectl("delete", "tjob", "told", "--wait=false")
        self.assertEqual(process.wait(timeout=60), 0, process.stderr.read())
        reader.join(timeout=10)
        self.assertEqual(len(lines), len([line for line in lines if re.match(r"\[(rank \d+|worker-[01])\] ", line)]))

    def test_an_interrupt_ends_it_at_once(self):
        self.create("ends", replicas=1)
        self.wait_for_steps("ends")
        process = self.plugin("logs", "ends", "-f")
        self.assertTrue(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        self.assertNotEqual(process.wait(timeout=5), 0)
