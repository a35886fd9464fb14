"""Runs unittest's tests side by side: most of what a test on a cluster does is wait.

A class's tests run one after another, several classes at once. What a class says about itself:

    side_by_side = True   its tests are independent of each other as well: each in a thread, setUpClass before each
    alone = True          nothing else runs meanwhile: it takes away what all others stand on
    slow = True           begun before the others, since it takes the longest
"""

import concurrent.futures
import itertools
import time
import traceback
import unittest


class Results:
    """What became of the tests; prints a line for each as it ends. Several threads may use it."""

    def __init__(self):
        self.passed, self.skipped, self.failed = [], [], []

    @property
    def successful(self) -> bool:
        return not self.failed

    def summary(self) -> str:
        lines = [f"{len(self.passed)} passed, {len(self.skipped)} skipped, {len(self.failed)} failed"]
        return "\n".join(lines + [f"  FAILED {name}" for name in self.failed])


class OneResult(unittest.TestResult):
    """unittest's own, which is of one thread."""

    def __init__(self, results: Results):
        super().__init__()
        self._results = results
        self._begun = time.monotonic()
        self._failed = False

    def startTest(self, test):
        super().startTest(test)
        self._begun, self._failed = time.monotonic(), False

    def stopTest(self, test):
        super().stopTest(test)
        if not self._failed:
            self._results.passed.append(test.id())
            self._say("ok", test)

    def addError(self, test, err):
        self._fail(test, err)

    def addFailure(self, test, err):
        self._fail(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._fail(subtest, err)

    def addSkip(self, test, reason):
        self._failed = True  # nor has it passed
        self._results.skipped.append(test.id())
        self._say(f"skipped ({reason})", test)

    def _fail(self, test, err):
        self._failed = True
        self._results.failed.append(test.id())
        self._say("FAILED", test, "".join(traceback.format_exception(*err)))

    def _say(self, what, test, more=""):
        # In one piece: others print too.
        print(f"{what:7} {test.id()} ({time.monotonic() - self._begun:.1f} s)\n{more}", end="", flush=True)


def tests_of(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from tests_of(each)
        else:
            yield each


def says(test, what: str) -> bool:
    return getattr(type(test), what, False)


def units(suite: unittest.TestSuite) -> list:
    """Lists of tests, each for one thread."""
    made = []
    for _, group in itertools.groupby(tests_of(suite), type):
        tests = list(group)
        made += [[test] for test in tests] if says(tests[0], "side_by_side") else [tests]
    return made


def run(suite: unittest.TestSuite, at_once: int, results: Results) -> None:
    """Runs all of them, `at_once` at most at a time. What has begun is not waited for after a KeyboardInterrupt."""
    made = units(suite)
    together = sorted((unit for unit in made if not says(unit[0], "alone")), key=lambda unit: not says(unit[0], "slow"))
    pool = concurrent.futures.ThreadPoolExecutor(at_once)
    try:
        for done in [pool.submit(run_unit, unit, results) for unit in together]:
            done.result()
        for unit in made:
            if says(unit[0], "alone"):
                pool.submit(run_unit, unit, results).result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def run_unit(unit: list, results: Results) -> None:
    unittest.TestSuite(unit).run(OneResult(results))
