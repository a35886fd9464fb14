"""The operator killed at any of its writes, and an API server that refuses any of them."""

import collections
import unittest

import operator_test_case


class OperatorCrashTest(operator_test_case.OperatorTestCase):
    side_by_side = True
    slow = True

    def run_to_the_end(self, name: str) -> dict:
        """Through all that the operator writes: Secret, Service, group, Job, status; suspension, a new attempt, the end."""
        pods = self.create(name, runPolicy={"maxRestarts": 1, "gang": "Workload"})

        def play():
            attempts = {pod["metadata"]["labels"]["lockstep.dev/attempt"] for pod in pods.alive()}
            self.assertLessEqual(len(attempts), 1, "two attempts at once")
            pods.run()

        self.wait_for(name, "Running", play)
        self.change(name, suspend=True)
        self.wait_for(name, "Suspended", play)
        self.change(name, suspend=False)
        self.wait_for(name, "Running", play, attempt=0)
        for _ in range(2):
            before = {pod["metadata"]["uid"] for pod in pods.alive()}
            pods.end(pods.alive()[0], 137)
            self.wait_until(lambda: {pod["metadata"]["uid"] for pod in pods.alive()} != before, "a pod less")
        self.wait_for(name, "Running", play, attempt=1)
        pods.end_all()
        status = self.wait_for(name, "Succeeded")
        self.assertEqual([child["metadata"]["name"] for child in self.children(name)], [f"{name}-worker-1"])
        self.wait_until(lambda: self.groups(name) == [f"{name}-1"], "the first attempt's group is gone")
        self.change(name, runPolicy={"ttlSecondsAfterFinished": 0})
        self.wait_until(lambda: all(job["metadata"]["name"] != name for job in self.plane.api.get(self.jobs)["items"]), "it is deleted")
        return status

    def groups(self, name: str) -> list:
        groups = self.plane.api.get(f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{self.namespace}/podgroups")["items"]
        return [group["metadata"]["name"] for group in groups if group["metadata"]["labels"]["lockstep.dev/job-name"] == name]

    def count_writes(self) -> tuple:
        """What an undisturbed life comes to, and how many writes it has."""
        count = [0]

        def counts(before, path):
            count[0] += before and "/events" not in path
            return True

        self.on_write = counts
        self.operator.start()
        undisturbed = self.run_to_the_end("undisturbed")
        self.operator.kill()
        self.assertGreater(count[0], 16)
        return undisturbed, count[0]

    def assert_same(self, status: dict, undisturbed: dict) -> None:
        for field in ("phase", "attempt", "restarts", "replicas"):
            self.assertEqual(status[field], undisturbed[field], field)
        self.assertEqual([(c["type"], c["status"], c["reason"]) for c in status["conditions"]],
                         [(c["type"], c["status"], c["reason"]) for c in undisturbed["conditions"]])

    def test_killed_before_any_write_it_ends_as_if_it_had_not_been(self):
        self.kill_at_each("request")

    def test_killed_after_any_write_it_ends_as_if_it_had_not_been(self):
        self.kill_at_each("answer")

    def kill_at_each(self, lost: str) -> None:
        undisturbed, writes = self.count_writes()
        kills = 0
        for index in range(writes):
            with self.subTest(lost=lost, write=index):
                kills += self.killed_once(f"{lost}-{index}", lost == "request", index, undisturbed)
        # Changes that come close together are one status more or less: the last of the writes need not be there each time.
        self.assertGreater(kills, 0.8 * writes)

    def killed_once(self, name: str, before_it: bool, index: int, undisturbed: dict) -> bool:
        """Whether there was such a write."""
        state = {"writes": -1, "killed": False}

        def kills(before, path):
            if "/events" in path or state["killed"]:
                return not state["killed"] or "/events" in path or state["restarted"]
            state["writes"] += before
            if state["writes"] == index and before == before_it:
                state.update(killed=True, restarted=False)
                self.operator.kill()
                state["restarted"] = True
                self.operator.start()
                return False
            return True

        self.on_write = kills
        self.operator.start()
        try:
            status = self.run_to_the_end(name)
        finally:
            self.operator.kill()
        self.assert_same(status, undisturbed)
        return state["killed"]

    def test_every_write_may_be_refused_at_first(self):
        undisturbed, _ = self.count_writes()
        for code in (409, 429, 500, 503):
            with self.subTest(code=code):
                tries = collections.Counter()

                def refuses(before, path):
                    path = path.split("?")[0]
                    tries[path] += before
                    # Of a status every other one; what is made together is made together again.
                    return code if before and (tries[path] % 2 if path.endswith("/status") else tries[path] == 1) else True

                self.on_write = refuses
                self.operator.start()
                try:
                    self.assert_same(self.run_to_the_end(f"refused-{code}"), undisturbed)
                finally:
                    self.operator.kill()
                self.assertGreater(len(tries), 8, tries)

    def test_watches_may_break_off_at_any_time(self):
        undisturbed, _ = self.count_writes()
        turn = [0]

        def expires(path):
            turn[0] += 1
            return (410, 500, 429, None)[turn[0] % 4] if turn[0] < 60 else None

        self.on_watch = expires
        self.operator.start()
        self.assert_same(self.run_to_the_end("unwatched"), undisturbed)
        self.assertGreater(turn[0], 8)


if __name__ == "__main__":
    unittest.main()
