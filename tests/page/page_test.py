#!/usr/bin/env python3
"""The pages at / in a real browser, of real jobs: page_test.py FOLDER-OF-PROGRAMS. Skipped where there is no Chromium."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import browser
from browser import Browser
from played_cluster import PlayedCluster, training_job

BIN = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
PATIENCE = browser.PATIENCE

ARROW_LEFT, END = "\ue012", "\ue010"
LAST_STEP = "document.querySelectorAll('#figures dd')[0].textContent"

DIGITS = {"processesPerReplica": 2, "devices": {"type": "CPU"}, "runPolicy": {"maxRestarts": 3}, "trainer": {
    "data": {"format": "Digits", "samples": 2000}, "model": {"layers": [{"type": "Dense", "units": 10}]},
    "batchSize": 64, "epochs": 100_000, "seed": 1}}


def program(processes: int, script: str, **policy) -> dict:
    return {"processesPerReplica": processes, "devices": {"type": "CPU"}, "program": {"command": ["sh", "-c", script]},
            "runPolicy": {"maxRestarts": 0, **policy}}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Job:
    """A `lockstep run` in a folder of its own."""

    def __init__(self, test: unittest.TestCase, spec: dict, port: int = 0):
        folder = tempfile.TemporaryDirectory(prefix="lockstep-page-job-")
        test.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.port = port or free_port()
        manifest = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "page-test"},
                    "spec": {**spec, "http": {"port": self.port}}}
        (self.folder / "job.json").write_text(json.dumps(manifest), encoding="utf-8")
        self.process = subprocess.Popen([str(BIN / "lockstep"), "run", "-q", str(self.folder / "job.json"), "--run-dir",
                                         str(self.folder / "run")], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={**os.environ, "OMP_NUM_THREADS": "1"})
        test.addCleanup(self._end)
        deadline = time.monotonic() + PATIENCE
        while not (self.folder / "run/http-address").exists():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError("the launcher does not start")
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{self.port}/"

    def _end(self):
        # Once more: at once.
        for end in (self.process.terminate, self.process.terminate, self.process.kill):
            if self.process.poll() is None:
                end()
                try:
                    self.process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    pass


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not browser.is_installed():
            raise unittest.SkipTest("chromium and chromium-driver are not installed")
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        # Away from the page of the test before, which would go on asking.
        self.browser.open("about:blank")
        self.browser.look_like(1280, 1000)
        self.browser.console()

    def open(self, url: str) -> None:
        self.browser.open(url)
        # A page must not break its own policy; the console is looked at too.
        self.browser.run("window.broken = []; addEventListener('securitypolicyviolation', (e) => broken.push(e.violatedDirective))")

    def check_nothing_was_wrong(self, server_went_away: bool = False) -> None:
        self.assertEqual(self.browser.run("return window.broken"), [])
        said = self.browser.console()
        if server_went_away:
            said = [line for line in said if not re.search(r"/status\?curves=1.*net::ERR_", line)]
        self.assertEqual(said, [])

    def wait_for_text(self, selector: str, pattern: str) -> str:
        return self.browser.wait_for("const text = document.querySelector(arguments[0])?.textContent || '';"
                                     "return new RegExp(arguments[1]).test(text) && text", selector, pattern)

    def test_it_follows_a_job_through_a_killed_rank_and_its_end(self):
        job = Job(self, DIGITS)
        self.open(job.url)
        self.wait_for_text("#phase", "^Running$")
        self.wait_for_text("#rank-rows tr:nth-child(2)", "Training")
        step = self.browser.wait_for(f"return document.querySelector('#figures dd') && {LAST_STEP}")
        self.browser.wait_for(f"return {LAST_STEP} !== arguments[0]", step)
        self.browser.wait_for("return document.querySelectorAll('.chart .curve[d*=L]').length === 2")
        self.assertEqual(self.browser.text("#placement-said"), "2 devices")

        # The moment at which the page shows it, by the page's own clock.
        self.browser.run("""
            window.shownAt = 0;
            new MutationObserver(() => {
              const said = document.getElementById('failure-message').textContent;
              if (!shownAt && /^rank 1: killed by signal 9/.test(said)) shownAt = performance.timeOrigin + performance.now();
            }).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});""")
        pid = int(self.browser.text("#rank-rows tr[data-rank='1'] td:last-child"))
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        shown = self.browser.wait_for("return shownAt") / 1e3
        self.assertGreater(shown, killed)
        self.assertLess(shown - killed, 1)
        print(f"a killed rank was shown after {(shown - killed) * 1e3:.0f} ms", flush=True)

        self.wait_for_text("#generations li:nth-child(1)", "Generation 1.*running")
        self.wait_for_text("#generations li:nth-child(2)", "Generation 0.*ended: Signal.*rank 1: killed by signal 9")
        self.wait_for_text("#rank-rows tr[data-rank='1'] td:nth-child(8)", "^1$")
        self.wait_for_text("#phase", "^Running$")
        self.wait_for_text("#summary", "1 restart")
        self.browser.wait_for("return document.querySelectorAll('#loss .mark').length === 1")

        # A curve is read with the keyboard.
        self.browser.run("document.getElementById('loss').focus()")
        self.browser.press(END)
        last = int(self.browser.run("return document.getElementById('loss').getAttribute('aria-valuenow')"))
        self.browser.press(ARROW_LEFT, ARROW_LEFT)
        self.browser.wait_for("return document.getElementById('loss').getAttribute('aria-valuenow') === arguments[0]", str(last - 2))
        self.assertRegex(self.browser.text("#loss-said"), r" at step [\d,]+, ")
        self.check_nothing_was_wrong()

        # The last picture stays, with how it ended; and a launcher that takes the place is followed.
        job.process.terminate()
        job.process.wait(timeout=PATIENCE)
        self.wait_for_text("#lost", "The job is over and its launcher has ended")
        self.assertEqual(self.browser.text("#phase"), "Failed")
        self.assertEqual(self.browser.run("return document.querySelectorAll('#rank-rows tr').length"), 2)
        Job(self, program(3, "sleep 60"), job.port)
        self.wait_for_text("#ranks-said", "3 of 3 running")
        self.assertTrue(self.browser.run("return document.getElementById('lost').hidden"))
        self.wait_for_text("#no-steps", "a program need not report any")
        self.check_nothing_was_wrong(server_went_away=True)

    def test_a_failed_job_is_shown_with_its_last_lines_as_text(self):
        hostile = "<img src=x onerror=hacked=1><script>hacked=1</script>"
        job = Job(self, program(2, f"while [ ! -e go ]; do sleep 0.05; done; [ $RANK = 0 ] && exec sleep 60; "
                                   f"echo '\033[31m{hostile}\033[0m'; printf 'bad \\377 byte\\n'; exit 7"))
        self.open(job.url)
        self.wait_for_text("#ranks-said", "2 of 2 running")
        (job.folder / "go").touch()
        self.wait_for_text("#phase", "^Failed$")
        self.wait_for_text("#failure-message", "rank 1: exit code 7")
        self.assertEqual(self.browser.text("#failure-lines"), f"{hostile}\nbad \ufffd byte")
        self.assertEqual(self.browser.run("return [typeof hacked, document.images.length]"), ["undefined", 0])
        self.assertEqual(job.process.wait(timeout=PATIENCE), 7)
        self.check_nothing_was_wrong(server_went_away=True)

    def test_many_ranks_fit_a_phone_and_are_sorted(self):
        job = Job(self, program(64, "[ $RANK = 40 ] && exit 0; sleep 60"))
        self.browser.look_like(390, 844)
        self.open(job.url)
        self.wait_for_text("#ranks-said", "63 of 64 running")
        self.assertEqual(self.browser.run("return document.querySelectorAll('#rank-rows tr').length"), 64)
        self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth"), 390)
        self.assertEqual(self.browser.text("#rank-rows tr:first-child td"), "0")
        self.browser.click("#rank-heads th:nth-child(3) button")
        self.wait_for_text("#rank-rows tr:first-child td", "^40$")
        self.assertEqual(self.browser.run("return document.querySelector('th[aria-sort]').ariaSort"), "ascending")
        self.check_nothing_was_wrong()

    # Twice what fills its curves and lists.
    def test_a_page_that_stays_open_does_not_grow(self):
        job = Job(self, program(4, "sleep 60"))
        self.open(job.url)
        self.wait_for_text("#ranks-said", "4 of 4 running")
        grown = self.browser.run("""
            const looks = (from, to) => {
              for (let look = from; look < to; ++look) {
                const points = Array.from({length: look * 8 % 400 + 1}, (_, index) => index);
                const generations = Array.from({length: look * 2 % 100 + 1}, (_, index) => ({generation: index, worldSize: 4,
                  startSeconds: String(index), endSeconds: String(index + 1), reason: "Signal", message: "m" + look}));
                show({...shown, elapsedSeconds: "4400", restarts: look, generations,
                  lastFailure: {rank: 1, reason: "Signal", message: "look " + look, lastLines: ["line " + look]},
                  progress: {step: look, epoch: 0, loss: "0.5"},
                  ranks: shown.ranks.map((rank) => ({...rank, restarts: look, step: look})),
                  curves: {seconds: points, step: points, loss: points.map((p) => 1 / (p + 1)), samplesPerSecond: points}});
              }
              return document.getElementsByTagName('*').length;
            };
            return [looks(0, 100), looks(100, 200)];""")
        self.assertEqual(grown[0], grown[1])
        self.check_nothing_was_wrong()

    def test_the_operators_page_finds_jobs(self):
        phases = ["Succeeded", "Failed", "Suspended", "Succeeded"]
        cluster = PlayedCluster([training_job(number, phases[number % 4]) for number in range(1000)])
        self.addCleanup(cluster.close)
        folder = tempfile.TemporaryDirectory(prefix="lockstep-page-operator-")
        self.addCleanup(folder.cleanup)
        cluster.write_kubeconfig(pathlib.Path(folder.name) / "kubeconfig")
        with open(f"{folder.name}/log", "w", encoding="utf-8") as log:
            operator = subprocess.Popen([str(BIN / "lockstep"), "operator", "--kubeconfig", f"{folder.name}/kubeconfig", "--address",
                                         "127.0.0.1", "--port", "0", "--no-leader-election"], stdout=log, stderr=log)
        self.addCleanup(operator.wait)
        self.addCleanup(operator.kill)
        deadline = time.monotonic() + PATIENCE
        found = None
        while not found and time.monotonic() < deadline:
            found = re.search(r"shows its jobs at (\S+)", pathlib.Path(f"{folder.name}/log").read_text(encoding="utf-8"))
            time.sleep(0.01)
        self.open(found[1])
        self.wait_for_text("#said", "The newest 200 of 1,000; search for the others")
        self.assertEqual(self.browser.run("return document.querySelectorAll('#rows tr').length"), 200)
        self.wait_for_text("#phases", "All 1,000.*Suspended 250.*Succeeded 500.*Failed 250")
        self.browser.run("document.getElementById('search').focus()")
        self.browser.press(*"0421")
        self.wait_for_text("#said", "^1 job,")
        self.assertRegex(self.browser.text("#rows tr"), r"^team-1/job-0421Failed.*<b>rank 3</b>: killed by signal 9$")
        self.browser.press(*["\ue003"] * 4)  # backspace
        self.browser.wait_for("return document.querySelectorAll('#rows tr').length === 200")
        self.browser.click("#phases [data-phase=Failed]")
        self.wait_for_text("#said", "The newest 200 of 250")
        self.assertEqual(self.browser.run("return document.querySelector('#phases [aria-pressed=true]').dataset.phase"), "Failed")
        self.check_nothing_was_wrong()


if __name__ == "__main__":
    unittest.main(verbosity=2)
