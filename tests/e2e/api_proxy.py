"""A proxy between an operator and the API server that lets the test kill the operator at a write of its choice."""

import http.client
import http.server
import json
import ssl
import threading
import urllib.parse

from control_plane import ControlPlane

REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
WRITES = ("POST", "PUT", "PATCH", "DELETE")


class ApiProxy:
    """Plain HTTP on a port of 127.0.0.1. `on_write(before, path)` is called with True before a write is passed on, and with
    False once the API server has done it; where it returns False the operator hears nothing more of that write, where it
    returns a number it hears that HTTP status. Leases are left out. `on_watch(path)` is called with each watch, and may return
    such a number, too."""

    def __init__(self, plane: ControlPlane, token: str, on_write, on_watch=lambda path: None):
        upstream = urllib.parse.urlsplit(plane.server)
        context = ssl.create_default_context(cafile=str(plane.folder / "pki" / "ca.crt"))

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def refuse(self, code: int):
                body = json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                                   "reason": REASONS.get(code, ""), "message": f"{code}, as the test wants it"}).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)

            def pass_on(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                watched = self.command in WRITES and "/leases" not in self.path
                if watched:
                    verdict = on_write(True, self.path)
                else:
                    verdict = (on_watch(self.path) if "watch=" in self.path else None) or True
                if not verdict:
                    return
                if verdict is not True:
                    self.refuse(verdict)
                    return
                connection = http.client.HTTPSConnection(upstream.hostname, upstream.port, context=context, timeout=400)
                headers = {key: value for key, value in self.headers.items()
                           if key.lower() in ("content-type", "accept", "user-agent")}
                connection.request(self.command, self.path, body or None, {**headers, "Authorization": f"Bearer {token}"})
                answer = connection.getresponse()
                try:
                    first = None if "watch=" in self.path else answer.read()
                    if watched and not on_write(False, self.path):
                        return
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.getheader("Content-Type") or "application/json")
                    self.send_header("Connection", "close")
                    if first is not None:
                        self.send_header("Content-Length", str(len(first)))
                        self.end_headers()
                        self.wfile.write(first)
                        return
                    self.end_headers()
                    while line := answer.readline():
                        self.wfile.write(line)
                        self.wfile.flush()
                except OSError:
                    pass  # the operator is gone
                finally:
                    connection.close()

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = pass_on

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
