"""A headless Chromium, spoken to as the W3C's WebDriver has it; nothing but Python's standard library."""

import base64
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

PATIENCE = 20  # seconds that anything on a page may take


def is_installed() -> bool:
    return bool(shutil.which("chromedriver") and shutil.which("chromium"))


class WebDriverError(Exception):
    pass


class Browser:
    """One window, of `width` by `height`; a context manager that leaves no process and no file behind."""

    def __init__(self, width: int = 1280, height: int = 1000):
        self._folder = tempfile.TemporaryDirectory(prefix="lockstep-page-", ignore_cleanup_errors=True)
        self._driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        env={**os.environ, "HOME": self._folder.name, "TMPDIR": self._folder.name})
        self._session = ""
        try:
            said = ""
            while "port" not in said or "success" not in said:
                said = self._driver.stdout.readline()
                if not said:
                    raise WebDriverError("chromedriver does not start")
            port = re.search(r"on port (\d+)", said)[1]
            self._address = f"http://127.0.0.1:{port}/session"
            # (As root it does not start with its sandbox, and a container's /dev/shm is small.)
            words = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run",
                     "--hide-scrollbars", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
                     f"--window-size={width},{height}", f"--user-data-dir={self._folder.name}/profile"]
            wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": words}, "goog:loggingPrefs": {"browser": "ALL"}}
            answer = self._ask("POST", "", {"capabilities": {"alwaysMatch": wanted}})
            self._session = "/" + answer["sessionId"]
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        try:
            if self._session:
                self._ask("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(timeout=20)
            self._driver.stdout.close()
            self._folder.cleanup()

    def _ask(self, method: str, path: str, body: dict | None = None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + self._session + path, data, {"Content-Type": "application/json"},
                                         method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise WebDriverError(json.load(error)["value"]["message"]) from None

    def open(self, url: str) -> None:
        self._ask("POST", "/url", {"url": url})

    def run(self, script: str, *arguments):
        """What the function body `script` returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, script: str, *arguments, seconds: float = PATIENCE):
        """Asks until `script` returns something true, and returns that."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.run(script, *arguments)
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {script} {arguments}\n" + self.run("return document.body.innerText")[:2000])
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def press(self, *keys: str) -> None:
        """Keys, by their WebDriver characters or as they are, wherever the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def click(self, selector: str) -> None:
        element = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        self._ask("POST", f"/element/{next(iter(element.values()))}/click", {})

    def look_like(self, width: int, height: int, dark: bool = False) -> None:
        """A screen of that size, and whether its user wants it dark."""
        self._chrome("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self._chrome("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def _chrome(self, command: str, **parameters):
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def screenshot(self, path: pathlib.Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def console(self) -> list[str]:
        """What the pages said on the console since the last call; a violation of their policy is said there too."""
        return [f"{entry['level']}: {entry['message']}" for entry in self._ask("POST", "/se/log", {"type": "browser"})]
