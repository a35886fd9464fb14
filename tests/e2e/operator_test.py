"""What the operator makes of jobs on a real control plane."""

import http.server
import itertools
import json
import re
import signal
import threading
import time
import unittest

import operator_test_case
from operator_test_case import SPACE, Operator


class OperatorTest(operator_test_case.OperatorTestCase):
    def test_a_job_goes_through_its_life(self):
        self.operator.start()
        pods = self.create("life", runPolicy={"maxRestarts": 2, "ttlSecondsAfterFinished": 1})
        self.wait_for("life", "Running", pods.run, attempt=0)
        self.change("life", suspend=True)
        self.wait_for("life", "Suspended", pods.run)
        self.wait_until(lambda: not pods.alive(), "the pods are given up")
        self.change("life", suspend=False)
        self.wait_for("life", "Running", pods.run, attempt=0, restarts=0)

        pods.end(pods.alive()[0], 137, "OOMKilled")
        self.wait_for("life", "Restarting", attempt=0)
        pods.end(pods.alive()[0], 137, "OOMKilled")
        status = self.wait_for("life", "Running", pods.run, attempt=1, restarts=1)
        self.assertEqual(status["lastFailure"]["reason"], "OOMKilled")
        self.wait_until(lambda: [child["metadata"]["name"] for child in self.children("life")] == ["life-worker-1"],
                        "the first attempt is gone")
        pods.end_all()
        self.wait_until(lambda: not self.plane.api.get(self.jobs)["items"], "it is deleted when its time to live is over")
        self.wait_until(lambda: not self.children("life"), "its children go with it")
        # With exactly the rights that it needs.
        self.assertNotIn('code="403"', self.operator.metrics())

    def test_each_role_has_its_job_and_the_workers_end_them_all(self):
        self.operator.start()
        pods = self.create_roles("roles", [{"name": "ps"}, {"name": "worker", "replicas": 2}])
        status = self.wait_for("roles", "Running", pods.run, attempt=0)
        self.assertEqual(status["replicas"]["desired"], 3)
        self.assertEqual(sorted(child["metadata"]["name"] for child in self.children("roles")), ["roles-ps-0", "roles-worker-0"])

        def of(role):
            return [pod for pod in pods.alive() if pod["metadata"]["labels"]["lockstep.dev/role"] == role]

        # A lost worker is its Job's to replace, and the job runs on.
        lost = of("worker")[1]
        pods.end(lost, 137, "OOMKilled")
        self.wait_until(lambda: "2 of 3 replicas run" in json.dumps(self.status("roles")), "the others go on")
        self.assertEqual(self.status("roles")["phase"], "Running")
        self.wait_until(lambda: (pods.run(), len(of("worker")))[1] == 2, "its Job replaces it")
        self.wait_for("roles", "Running", pods.run, attempt=0, restarts=0)
        self.wait_until(lambda: "all replicas run" in json.dumps(self.status("roles")), "it is whole again")
        for pod in of("worker"):
            pods.end(pod, 0)
        # The server's agent does not end by itself here.
        self.wait_for("roles", "Succeeded")
        self.wait_until(lambda: (pods.run(), not pods.alive())[1], "what is left is stopped")

    def test_a_failure_that_the_agents_agree_on_ends_the_job(self):
        self.operator.start()
        pods = self.create("fails")
        self.wait_for("fails", "Running", pods.run)
        pods.fail(pods.alive()[1], replica=1, code=5, message="rank 1: exited with code 5")
        status = self.wait_for("fails", "Failed", restarts=0)
        self.assertEqual(status["lastFailure"]["exitCode"], 5)
        self.assertEqual(status["conditions"][-1]["reason"], "JobFailed")

    def test_a_deadline_and_a_refused_template_end_the_job(self):
        self.operator.start()
        pods = self.create("late", runPolicy={"activeDeadlineSeconds": 2})
        self.wait_for("late", "Failed", pods.run)
        self.wait_until(lambda: (pods.run(), not pods.alive())[1], "its pods are stopped")
        self.create("wrong", template={"containers": [{"name": "lockstep", "resources": {"limits": {"cpu": "-1"}}}]})
        status = self.wait_for("wrong", "Failed")
        self.assertEqual(status["conditions"][-1]["reason"], "InvalidTemplate")

    def test_an_object_of_somebody_else_is_not_adopted(self):
        self.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken-worker"}, "spec": {"clusterIP": "None"}})
        self.operator.start()
        self.create("taken")
        status = self.wait_for("taken", "Pending")
        self.wait_until(lambda: "NameTaken" in json.dumps(self.status("taken")), "it says so")
        self.assertEqual(status["attempt"], 0)
        self.assertEqual(self.children("taken"), [])

    def test_nothing_is_written_at_rest(self):
        writes = []
        self.on_write = lambda before, path: (writes.append(path), True)[1]
        self.operator.start()
        pods = self.create("rests-running")
        self.wait_for("rests-running", "Running", pods.run)
        self.create("rests-held", suspend=True)
        self.wait_for("rests-held", "Suspended")
        ended = self.create("rests-ended", replicas=1)
        self.wait_for("rests-ended", "Running", ended.run)
        ended.end_all()
        self.wait_for("rests-ended", "Succeeded")
        self.create("rests-refused", network={"rdma": True})
        self.wait_for("rests-refused", "Failed")
        self.assertEqual(self.condition("rests-refused", "Failed")["reason"], "Unsupported")
        self.operator.kill()
        writes.clear()
        # A new one looks at everything, and so does a change of nothing.
        self.operator.start()
        other = self.create("other")
        self.wait_for("other", "Running", other.run)
        self.assertEqual([path for path in writes if "rests" in path], [])

    def test_a_leader_that_was_paused_for_too_long_gives_way(self):
        first, second = (Operator(self.kubeconfig, self.namespace, "--lease-namespace", SPACE) for _ in range(2))
        for operator in (first, second):
            self.addCleanup(operator.kill)
        first.start()
        self.wait_until(lambda: "leads as" in first.said(), "the first leads")
        second.start()
        pods = self.create("led")
        self.wait_for("led", "Running", pods.run)
        first.signal(signal.SIGSTOP)
        self.wait_until(lambda: "leads as" in second.said(), "the second leads")
        pods.end_all()
        self.wait_for("led", "Succeeded")
        first.signal(signal.SIGCONT)
        self.assertEqual(first.exit_code(), 10, first.said())
        self.assertIn("the lease is lost", first.said())
        # One that is asked to stop gives it back: the next need not wait for it to run out.
        second.signal(signal.SIGTERM)
        self.assertEqual(second.exit_code(), 0, second.said())
        lease = self.plane.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases/lockstep-operator")
        self.assertFalse(lease["spec"].get("holderIdentity"))

    def test_a_spec_that_changes_is_followed(self):
        self.operator.start()
        pods = self.create("changes", template={"nodeSelector": {"disk": "ssd"}})
        self.wait_for("changes", "Running", pods.run)
        refused = self.try_kubectl("patch", "tjob", "changes", "--type=merge", "-p", '{"spec": {"replicas": 4}}')
        self.assertIn("replicas changes only while the job is suspended", refused.stderr)
        self.change("changes", suspend=True, replicas=4, template={"spec": {"nodeSelector": {"disk": "hdd"}}})
        self.wait_for("changes", "Suspended", pods.run)
        self.change("changes", suspend=False)
        status = self.wait_for("changes", "Running", pods.run, attempt=1, restarts=0)
        self.assertEqual(status["replicas"]["desired"], 4)
        self.assertEqual([(pod["spec"]["nodeSelector"], pod["metadata"]["labels"]["lockstep.dev/attempt"]) for pod in pods.alive()],
                         [({"disk": "hdd"}, "1")] * 4)
        # What the operator does itself counts at once, for a job that runs as for one that has ended.
        self.change("changes", runPolicy={"activeDeadlineSeconds": 1})
        self.wait_for("changes", "Failed", pods.run)
        self.assertEqual(self.condition("changes", "Failed")["reason"], "DeadlineExceeded")
        self.change("changes", runPolicy={"ttlSecondsAfterFinished": 0})
        self.wait_until(lambda: not self.plane.api.get(self.jobs)["items"], "its time to live is over")

    def test_kueue_alone_says_when_a_queued_job_runs(self):
        self.operator.start()
        pods = self.create("queued", labels={"kueue.x-k8s.io/queue-name": "gpus"})
        self.wait_for_reason("queued", "Suspended", "Queued")

        def kueue(suspend):
            child = self.wait_until(lambda: self.children("queued"), "it has a child")[0]["metadata"]
            self.assertEqual(child["labels"]["kueue.x-k8s.io/queue-name"], "gpus")
            self.plane.api.merge(f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{child['name']}", {"spec": {"suspend": suspend}})

        kueue(False)
        self.wait_for("queued", "Running", pods.run)
        kueue(True)
        self.wait_for_reason("queued", "Suspended", "Evicted", pods.run)
        self.assertNotIn("startTime", self.status("queued"))
        kueue(False)
        self.wait_for("queued", "Running", pods.run, attempt=0, restarts=0)
        self.assertNotIn('code="403"', self.operator.metrics())

    def test_a_drained_node_costs_no_restart(self):
        self.operator.start()
        pods = self.create("drained", runPolicy={"maxRestarts": 0})
        self.wait_for("drained", "Running", pods.run)
        pods.drain(pods.alive()[1])
        self.wait_for("drained", "Restarting", attempt=0)
        self.wait_for("drained", "Running", pods.run, attempt=0, restarts=0)
        self.assertNotIn("lastFailure", self.status("drained"))

    def test_a_quota_that_forbids_the_job_is_said_and_not_run_against(self):
        self.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
                    "spec": {"hard": {"count/jobs.batch": "0"}}})
        quota = f"/api/v1/namespaces/{self.namespace}/resourcequotas/none"
        self.wait_until(lambda: self.plane.api.get(quota).get("status", {}).get("hard"), "it counts")
        tries = []
        self.on_write = lambda before, path: (before and path.split("?")[0].endswith("/jobs") and tries.append(path), True)[1]
        self.operator.start()
        pods = self.create("poor")
        said = self.wait_for_reason("poor", "Scheduled", "Forbidden")
        self.assertIn("exceeded quota", said["message"])
        self.assertLessEqual(len(tries), 3)
        self.plane.api.delete(quota)
        self.wait_for("poor", "Running", pods.run)

    def test_a_namespace_that_is_deleted_meanwhile_is_left_alone(self):
        space, writes = f"/api/v1/namespaces/{self.namespace}", []

        def deletes(before, path):
            if before:
                writes.append(path.split("?")[0])
                if writes[-1].endswith("/jobs") and writes.count(writes[-1]) == 1:
                    self.plane.api.delete(space)  # with the operator's Job on its way
            return True

        self.on_write = deletes
        self.operator.start()
        self.create("late")
        self.wait_until(lambda: not self.plane.api.get(self.jobs)["items"], "it goes with its namespace")
        # Nothing can be made there any more; that is tried again when something has changed, and not otherwise.
        refused = re.search(r'code="403".* (\d+)', self.operator.metrics())
        self.assertLessEqual(int(refused[1]), 5, writes)
        self.assertNotIn("warning", self.operator.said())

    def test_a_job_that_goes_on_with_fewer_replicas_keeps_its_attempt(self):
        self.operator.start()
        pods = self.create("elastic", replicas=3, runPolicy={"minReplicas": 2, "maxRestarts": 1}, trainer=self.trainer(batchSize=6))
        self.wait_for("elastic", "Running", pods.run)
        lost = next(pod for pod in pods.alive() if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "2")
        pods.end(lost, 137)
        said = self.wait_for_reason("elastic", "Running", "FewerReplicas")
        self.assertEqual((said["status"], said["message"]), ("True", "2 of 3 replicas run"))
        child = self.children("elastic")[0]["spec"]
        self.assertEqual((child["completions"], child["parallelism"]), (3, 3))
        # The Job controller makes it anew after 10 s.
        self.wait_for_reason("elastic", "Running", "PodsRunning", pods.run)
        self.assertEqual((self.status("elastic")["attempt"], self.status("elastic")["restarts"]), (0, 0))
        pods.end(next(pod for pod in pods.alive() if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"), 137)
        self.wait_for_reason("elastic", "Running", "FewerReplicas")
        pods.end_all()
        self.wait_for("elastic", "Succeeded", attempt=0)

    def test_progress_is_read_from_replica_0_and_written_every_ten_seconds_at_most(self):
        asked, written = itertools.count(1), []

        class Agent(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                step = next(asked)
                body = json.dumps({"phase": "Training", "restarts": 0, "progress": {
                    "step": step, "totalSteps": 1000, "percentage": step // 10, "estimatedRemainingSeconds": 1000 - step,
                    "samplesPerSecond": "90321", "loss": "0.31", "lastUpdatedTime": "2026-01-31T12:00:00Z"}}).encode()
                self.send_response(200 if self.path == "/status" else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        agent = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Agent)
        self.addCleanup(agent.server_close)
        self.addCleanup(agent.shutdown)
        threading.Thread(target=agent.serve_forever, daemon=True).start()
        self.on_write = lambda before, path: (before and path.split("?")[0].endswith("/status") and written.append(time.monotonic()), True)[1]
        self.operator.start()
        pods = self.create("reports", replicas=1, http={"port": agent.server_address[1]})
        pods.address = "127.0.0.1"
        self.wait_for("reports", "Running", pods.run)
        first = self.wait_until(lambda: self.status("reports").get("progress"), "there is progress")
        self.assertEqual((first["totalSteps"], first["samplesPerSecond"], first["loss"]), (1000, "90321", "0.31"))
        begun = len(written) - 1
        self.wait_until(lambda: len(written) >= begun + 3, "there is more of it")
        for earlier, later in zip(written[begun:], written[begun + 1:]):
            self.assertGreater(later - earlier, 9)
        self.assertEqual(self.kubectl("get", "tjob", "reports", "--no-headers").split()[1], "Running")

    def test_who_may_view_edit_or_administer_a_namespace_may_do_so_with_its_jobs(self):
        def may(user, *words):
            return self.try_kubectl("auth", "can-i", *words, f"--as={user}").stdout.strip() == "yes"

        for role in ("view", "edit", "admin"):
            self.apply({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": role},
                        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"{role}er"}]})
            self.wait_until(lambda: may(f"{role}er", "watch", "tjob"), "the roles are put together")
            for verb in ("create", "patch", "delete"):
                self.assertEqual(may(f"{role}er", verb, "tjob"), role != "view", (role, verb))
            self.assertFalse(may(f"{role}er", "patch", "tjob", "--subresource=status"), "that is the operator's")

    def test_kubectl_shows_how_far_a_job_is_and_what_its_fields_mean(self):
        self.create("shown")
        job = f"{self.jobs}/shown"
        self.plane.api.merge(f"{job}/status", {"status": {"phase": "Running", "restarts": 1, "replicas": {"ready": 2}, "progress": {
            "step": 120, "percentage": 30, "samplesPerSecond": "90321", "estimatedRemainingSeconds": 41, "loss": "0.31"}}})
        header, row = self.kubectl("get", "tjob").splitlines()
        self.assertEqual(header.split(), ["NAME", "PHASE", "READY", "STEP", "PROGRESS", "THROUGHPUT", "ETA", "RESTARTS", "AGE"])
        self.assertEqual(row.split()[:8], ["shown", "Running", "2", "120", "30", "90321", "41", "1"])
        self.assertIn("LOSS", self.kubectl("get", "tjob", "-o", "wide"))
        explained = self.kubectl("explain", "tjob.spec.strategy")
        self.assertIn("How the trainer's processes work together", explained)
        for field in ("type", "crossDeviceOps", "shard", "stages"):
            self.assertRegex(explained, rf"(?m)^  {field}\t<.*>\n(  enum: .*\n)?    \S")


if __name__ == "__main__":
    unittest.main()
