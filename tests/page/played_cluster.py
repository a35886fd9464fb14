"""As much of Kubernetes' API as an operator reads: some TrainingJobs that are over or suspended, so that it leaves them alone,
and nothing else. Whatever it would write is refused."""

import http.server
import json
import pathlib
import threading
import urllib.parse

JOBS = "/apis/lockstep.dev/v1alpha1/trainingjobs"


def training_job(number: int, phase: str) -> dict:
    condition = {"Succeeded": "Complete", "Failed": "Failed", "Suspended": "Suspended"}[phase]
    message = "<b>rank 3</b>: killed by signal 9" if phase == "Failed" else ""
    made = f"2026-01-{number // 1000 + 1:02}T{number // 60 % 24:02}:{number % 60:02}:00Z"
    return {"metadata": {"namespace": f"team-{number % 7}", "name": f"job-{number:04}", "uid": f"uid-{number}", "generation": 1,
                         "resourceVersion": str(number + 1), "creationTimestamp": made},
            "spec": {"suspend": phase == "Suspended", "trainer": {"model": {"layers": [{"type": "Dense", "units": 10}]}}},
            "status": {"phase": phase, "observedGeneration": 1, "restarts": number % 3, "startTime": made,
                       "replicas": {"desired": 2, "ready": 0},
                       "progress": {"step": number, "totalSteps": 1000, "percentage": number // 10, "loss": "0.25"},
                       "conditions": [{"type": condition, "status": "True", "reason": "Played", "message": message,
                                       "lastTransitionTime": made}]}}


class PlayedCluster:
    """Serves `jobs` until it is closed."""

    def __init__(self, jobs: list[dict]):
        lists = {JOBS: jobs}
        closed = self._closed = threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                url = urllib.parse.urlsplit(self.path)
                if "watch=" in url.query:
                    # No news, ever.
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Connection", "close")
                    self.end_headers()
                    closed.wait()
                    self.close_connection = True
                    return
                self._answer(200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "100000"},
                                   "items": lists.get(url.path, [])})

            def _refuse(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self._answer(403, {"kind": "Status", "apiVersion": "v1", "code": 403, "reason": "Forbidden", "message": "played"})

            do_POST = do_PUT = do_PATCH = do_DELETE = _refuse

            def _answer(self, code: int, document: dict):
                body = json.dumps(document).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # the operator is killed while it asks
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def write_kubeconfig(self, path: pathlib.Path) -> None:
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
            "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{self._server.server_port}"}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}), encoding="utf-8")
