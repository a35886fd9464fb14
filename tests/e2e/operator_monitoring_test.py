"""A real Prometheus scrapes an operator that runs jobs on a real control plane: every panel and rule about it has data.

With LOCKSTEP_PICTURES=FOLDER its dashboard is drawn there.
"""

import itertools
import os
import pathlib
import sys
import tempfile
import time
import unittest

import fixture
import operator_test_case

sys.path.insert(0, str(fixture.ROOT / "tests/support/monitoring"))

import prometheus  # noqa: E402

LABELS = {"namespace": operator_test_case.SPACE, "job": "lockstep-operator"}  # as the service monitor's


class OperatorMonitoringTest(operator_test_case.OperatorTestCase):
    @unittest.skipIf(prometheus.missing(), prometheus.missing())
    def test_every_panel_and_rule_has_data(self):
        writes = itertools.count(1)
        # Some of what the operator wants is refused.
        self.on_write = lambda before, path: 503 if before and next(writes) % 7 == 0 else True
        self.operator.start()
        address = self.wait_until(self.operator.address, "the operator serves")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        scraper = prometheus.Prometheus(pathlib.Path(folder.name), [(address, LABELS)])
        self.addCleanup(scraper.close)
        jobs = []

        def more_jobs():
            jobs.append(self.create(f"job-{len(jobs)}", replicas=1))
            for pods in jobs[-5:]:
                pods.run()

        rules = [rule for rule in scraper.rules() if "operator" in rule["group"]]
        self.assertGreater(len(rules), 4)
        expressions = prometheus.of_panels("operator", LABELS["namespace"], LABELS["job"]) | prometheus.of_rules(rules)
        self.assertEqual(scraper.wait_for_data(expressions, 60, more_jobs), [])
        self.assertEqual([target["lastError"] for target in scraper.get("targets")["activeTargets"]], [""])
        self.assertEqual(prometheus.check_metrics(self.operator.metrics()), "")
        if os.environ.get("LOCKSTEP_PICTURES"):
            until = time.monotonic() + 70
            while time.monotonic() < until:
                more_jobs()
                time.sleep(1)
            prometheus.draw(scraper, "operator", LABELS["namespace"], LABELS["job"],
                            pathlib.Path(os.environ["LOCKSTEP_PICTURES"]) / "operator.png")
