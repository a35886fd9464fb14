#!/usr/bin/env python3
"""A real Prometheus scrapes real jobs, and every panel and rule has data; what promtool and the texts themselves say.

One job trains with two ranks, writes checkpoints and loses a rank. The other is a program on a recorded GPU
(tests/testdata/nvml) that reports what goes wrong. With LOCKSTEP_PICTURES=FOLDER the dashboard is drawn there.
"""

import gzip
import http.server
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support/monitoring"))

import prometheus  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ROOT / "build/release")
NVML = BUILD / "tests/unit/placement/one_t4/libnvidia-ml.so.1"
RUNBOOKS = ROOT / "docs/runbooks"
SKIPPED = 77

TRAINING = {
    "processesPerReplica": 2, "devices": {"type": "CPU"},
    "trainer": {"data": {"format": "Digits", "validationSamples": 500}, "batchSize": 200, "epochs": 100000, "seed": 1,
                "model": {"layers": [{"type": "Dense", "units": 32, "activation": "ReLU"}, {"type": "Dense", "units": 10}],
                          "metrics": ["Accuracy"]},
                "checkpoint": {"every": 300}}}
# Steps of a tenth of a second whose numbers are made up, a checkpoint that fails, and a line that is none.
PROGRAM = """
import json, os, time
out = os.fdopen(int(os.environ["LOCKSTEP_EVENTS_FD"]), "w", buffering=1)
for step in range(1, 10**6):
    print(json.dumps({"event": "step", "step": step, "samples": 64, "loss": 1 / step, "loss_average": 1 / step,
                      "learning_rate": 0.1, "seconds": 0.1, "collective_seconds": 0.01, "data_wait_seconds": 0.02,
                      "collective_bytes": 1000, "flops": 1e9}), file=out)
    if step % 20 == 1:
        print("no event", file=out)
        print(json.dumps({"event": "checkpoint", "step": step, "seconds": 0.1, "ok": False, "message": "full"}), file=out)
        print(json.dumps({"event": "memory", "kind": "used", "bytes": 123456789}), file=out)
    time.sleep(0.1)
"""
ON_GPU = {"devices": {"type": "GPU"}, "program": {"command": ["python3", "-c", PROGRAM]}}


class Job:
    """One `lockstep run` in a folder of its own."""

    def __init__(self, folder: pathlib.Path, name: str, spec: dict, **environment):
        self._folder = folder / name
        self._folder.mkdir()
        if "trainer" in spec:
            spec["trainer"]["checkpoint"]["directory"] = str(self._folder / "checkpoints")
        manifest = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}
        (self._folder / "job.yaml").write_text(json.dumps(manifest))
        self.log = self._folder / "log"
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                [str(BUILD / "bin/lockstep"), "run", "--run-dir", str(self._folder / "run"), str(self._folder / "job.yaml")],
                stdout=log, stderr=log, env={**os.environ, "NO_COLOR": "1", "OMP_NUM_THREADS": "1", **environment})
        deadline = time.monotonic() + 20
        file = self._folder / "run/http-address"
        while not file.exists() or not file.read_text().endswith("\n"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise AssertionError(self.log.read_text())
            time.sleep(0.01)
        self.address = file.read_text().strip()

    def close(self) -> None:
        """Asked to stop, so that no rank is left."""
        for end in (self._process.terminate, self._process.terminate, self._process.kill):
            if self._process.poll() is None:
                end()
                try:
                    self._process.wait(timeout=15)
                except subprocess.TimeoutExpired:
                    pass

    def get(self, path: str, **headers) -> tuple:
        """Body and headers of an answer."""
        request = urllib.request.Request(f"http://{self.address}{path}", headers={k.replace("_", "-"): v for k, v in headers.items()})
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.read(), answer.headers

    def status(self) -> dict:
        return json.loads(self.get("/status")[0])


class Exporter(http.server.ThreadingHTTPServer):
    """Stands in for NVIDIA's dcgm-exporter, which names a GPU's pod."""

    TEXT = ('# HELP DCGM_FI_PROF_PIPE_TENSOR_ACTIVE Ratio of cycles the tensor pipe is active.\n'
            '# TYPE DCGM_FI_PROF_PIPE_TENSOR_ACTIVE gauge\n'
            'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",namespace="default",pod="gpu-0"} 0.25\n')

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802, the library's name
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(Exporter.TEXT.encode())

        def log_message(self, *_):
            pass

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class ScrapedJobsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lockstep-monitoring-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.xids = cls.folder / "xids"
        cls.xids.touch()
        cls.training = Job(cls.folder, "train", TRAINING)
        cls.addClassCleanup(cls.training.close)
        cls.gpu = Job(cls.folder, "gpu", ON_GPU, LOCKSTEP_NVML_LIBRARY=str(NVML), FAKE_NVML_EVENTS=str(cls.xids),
                      LOCKSTEP_DEVICE_LEDGER=str(cls.folder / "ledger"))
        cls.addClassCleanup(cls.gpu.close)
        exporter = Exporter()
        cls.addClassCleanup(exporter.close)
        # As the pod monitors label them.
        cls.prometheus = prometheus.Prometheus(cls.folder / "prometheus", [
            (cls.training.address, {"namespace": "default", "job": "train", "pod": "train-0"}),
            (cls.gpu.address, {"namespace": "default", "job": "gpu", "pod": "gpu-0"}),
            (exporter.address, {"namespace": "gpu-operator", "job": "dcgm-exporter", "pod": "dcgm-exporter-0"})])
        cls.addClassCleanup(cls.prometheus.close)

    def wait_until(self, condition, what: str, seconds: float = 20):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f"{what}: not so after {seconds} s\n{self.training.log.read_text()}\n{self.gpu.log.read_text()}")
            time.sleep(0.05)

    def lose_a_rank(self) -> None:
        self.wait_until(lambda: self.training.status().get("progress", {}).get("step", 0) > 600, "there is a checkpoint")
        # What happens before the first scrape is no change.
        for at_first in ('lockstep_restarts_total{job="train"} == 0', "lockstep_device_xid_errors_total == 0"):
            self.wait_until(lambda query=at_first: self.prometheus.values(query), f"scraped: {at_first}")
        os.kill(self.training.status()["ranks"][1]["pid"], signal.SIGKILL)
        self.xids.write_text("0 xid 31\n")
        self.wait_until(lambda: self.prometheus.values('lockstep_restarts_total{job="train"} > 0'), "the restart was scraped")

    def test_every_panel_and_rule_has_data(self):
        self.lose_a_rank()
        rules = [rule for rule in self.prometheus.rules() if "operator" not in rule["group"]]
        self.assertGreater(len(rules), 15)
        expressions = prometheus.of_panels("jobs", "default", "train|gpu") | prometheus.of_rules(rules)
        self.assertEqual(self.prometheus.wait_for_data(expressions, 30), [])
        self.assertEqual({target["lastError"] for target in self.prometheus.get("targets")["activeTargets"]}, {""})
        for rule in self.prometheus.rules():
            self.assertEqual((rule["name"], rule["health"]), (rule["name"], "ok"), rule.get("lastError"))
        wrong = {"LockstepCheckpointFails", "LockstepMalformedEvents", "LockstepDeviceXidError"}
        self.wait_until(lambda: wrong <= {alert["labels"]["alertname"] for alert in self.prometheus.get("alerts")["alerts"]},
                        "what goes wrong is told")
        if os.environ.get("LOCKSTEP_PICTURES"):
            time.sleep(40)
            os.kill(self.training.status()["ranks"][1]["pid"], signal.SIGKILL)
            time.sleep(25)
            prometheus.draw(self.prometheus, "jobs", "default", "train", pathlib.Path(os.environ["LOCKSTEP_PICTURES"]) / "jobs.png")

    def test_both_formats_are_those_that_are_asked_for(self):
        for job in (self.training, self.gpu):
            text, headers = job.get("/metrics", Accept_Encoding="gzip")
            self.assertEqual(headers["Content-Encoding"], "gzip")
            self.assertEqual(prometheus.check_metrics(gzip.decompress(text).decode()), "")
        # (promtool knows the text format alone; OpenMetrics is what Prometheus itself asks for and has read.)
        text, headers = self.training.get("/metrics", Accept="application/openmetrics-text;version=1.0.0")
        self.assertIn("application/openmetrics-text", headers["Content-Type"])
        self.assertTrue(text.endswith(b"# EOF\n"))
        self.assertEqual(json.loads(gzip.decompress(self.gpu.get("/status", Accept_Encoding="gzip")[0]))["name"], "gpu")

    def test_productive_time_and_losses_are_the_jobs_whole_time(self):
        for job in (self.training, self.gpu):
            text = job.get("/metrics")[0].decode()
            now = time.time()

            def values(name, text=text):
                return [float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)]

            whole = sum(values("lockstep_productive_seconds")) + sum(values("lockstep_lost_work_seconds_total"))
            self.assertAlmostEqual(whole, now - values("process_start_time_seconds")[0], delta=1)


class TextsTest(unittest.TestCase):
    """What is said beside the numbers."""

    def promtool(self, *words) -> None:
        result = subprocess.run(["promtool", *map(str, words)], text=True, capture_output=True, timeout=30, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_the_rules_pass_the_linter_and_their_own_tests(self):
        self.promtool("check", "rules", "--lint=all", "--lint-fatal", prometheus.RULES)
        self.promtool("test", "rules", ROOT / "tests/testdata/monitoring/rules_test.yaml")

    def test_what_is_made_of_other_files_is_up_to_date(self):
        result = subprocess.run([sys.executable, str(ROOT / "tools/monitoring.py"), "--check"], text=True, capture_output=True, check=False)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_every_alert_has_a_severity_words_and_a_runbook_and_a_test(self):
        rules = prometheus.RULES.read_text().split("  - alert: ")[1:]
        tested = (ROOT / "tests/testdata/monitoring/rules_test.yaml").read_text()
        names = []
        for rule in rules:
            name = rule.split("\n", 1)[0]
            names.append(name)
            self.assertRegex(name, r"^Lockstep([A-Z][a-z]+)+$")
            self.assertRegex(rule, r"labels: {severity: (critical|warning|info)}")
            for key in ("summary", "description"):
                self.assertRegex(rule, rf"\n      {key}: .+[.\"]\n")
            self.assertIn(f"runbook_url: https://lockstep.dev/docs/runbooks/{name}\n", rule + "\n")
            self.assertIn(f"alertname: {name}\n", tested)
        self.assertEqual(sorted(names), sorted(path.stem for path in RUNBOOKS.glob("*.md")))

    def test_the_dashboards_are_what_grafana_takes(self):
        for name, uid in (("jobs", "lockstep-jobs"), ("operator", "lockstep-operator")):
            board = json.loads((prometheus.DASHBOARDS / f"{name}.json").read_text())
            self.assertEqual((board["uid"], board["id"]), (uid, None))
            self.assertEqual([variable["name"] for variable in board["templating"]["list"]], ["datasource", "namespace", "job"])
            ids = [panel["id"] for panel in board["panels"]]
            self.assertEqual(len(ids), len(set(ids)))
            places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
            self.assertEqual(len(places), len(set(places)))
            for panel in prometheus.panels(name):
                self.assertTrue(panel["title"] and panel["description"].endswith("."), panel["title"])
                self.assertTrue(panel["fieldConfig"]["defaults"]["unit"], panel["title"])
                self.assertEqual(panel["datasource"]["uid"], "${datasource}")
                for target in panel["targets"]:
                    self.assertNotRegex(target["expr"], r"\[\d|le=", panel["title"])


if __name__ == "__main__":
    if prometheus.missing():
        print(prometheus.missing())
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
