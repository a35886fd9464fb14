"""The operator's page in a real browser, with jobs of a real API server."""

import sys
import unittest

import fixture
import operator_test_case

sys.path.insert(0, str(fixture.ROOT / "tests/page"))

import browser  # noqa: E402

ROW = """return [...document.querySelectorAll('#rows tr')].map((row) => row.textContent)
                   .find((text) => text.includes(arguments[0]) && new RegExp(arguments[1]).test(text))"""


class OperatorPageTest(operator_test_case.OperatorTestCase):
    @unittest.skipUnless(browser.is_installed(), "chromium and chromium-driver are not installed")
    def test_it_follows_jobs_and_finds_them(self):
        self.operator.start()
        address = self.wait_until(self.operator.address, "the operator serves")
        with browser.Browser() as window:
            window.open(f"http://{address}/")
            pods = self.create("red", replicas=1)
            window.wait_for(ROW, "/red", "Pending")
            self.wait_until(lambda: (pods.run(), self.status("red").get("phase") == "Running")[1], "red runs")
            window.wait_for(ROW, "/red", "Running")
            self.create("blue", replicas=1, suspend=True)
            window.wait_for(ROW, "/blue", "Suspended")
            window.run("document.getElementById('search').focus()")
            window.press(*"blu")
            window.wait_for("return document.querySelectorAll('#rows tr').length === 1")
            self.assertTrue(window.run(ROW, "/blue", "Suspended"))
            # Only then is it gone from the page too.
            self.plane.api.delete(f"{self.jobs}/blue")
            window.wait_for("return document.querySelectorAll('#rows tr').length === 0")
            self.assertEqual(window.console(), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
