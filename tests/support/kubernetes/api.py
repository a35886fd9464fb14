"""As little of a Kubernetes client as tests need: requests as an administrator, or as anybody with a token."""

import json
import pathlib
import ssl
import urllib.error
import urllib.request


class ApiError(Exception):
    """What the API server refused: `code`, and its message."""

    def __init__(self, code: int, message: str):
        super().__init__(f"{code}: {message}")
        self.code = code


class Api:
    """Requests to `server`, whose certificate is signed by the file `authority`. Threads may share one."""

    def __init__(self, server: str, authority: pathlib.Path, token: str):
        self._server = server
        self._token = token
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(authority))))

    def text(self, method: str, path: str, body=None, content_type: str = "application/json", timeout: float = 30) -> str:
        """The answer to one request. ApiError where the API server refuses it, OSError where it does not answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._server + path, data, {
            "Authorization": f"Bearer {self._token}", "Content-Type": content_type}, method=method)
        try:
            with self._opener.open(request, timeout=timeout) as response:
                return response.read().decode()
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, error.read().decode(errors="replace")) from None

    def get(self, path: str) -> dict:
        return json.loads(self.text("GET", path))

    def create(self, path: str, body: dict) -> dict:
        return json.loads(self.text("POST", path, body))

    def merge(self, path: str, body: dict) -> dict:
        """A merge patch."""
        return json.loads(self.text("PATCH", path, body, "application/merge-patch+json"))

    def delete(self, path: str, missing_is_fine: bool = False) -> None:
        try:
            self.text("DELETE", path)
        except ApiError as error:
            if not (missing_is_fine and error.code == 404):
                raise
