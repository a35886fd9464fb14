"""A real Prometheus as a process of this machine, with a configuration and a data folder of its own."""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
RULES = ROOT / "manifests/monitoring/rules.yaml"
DASHBOARDS = ROOT / "manifests/monitoring/dashboards"
DRAW = ROOT / "tools/draw_dashboard.py"
# Where a selector begins: every metric that rules and panels may name has one of these prefixes.
SELECTOR = re.compile(r'(?<![\w:])(?:lockstep|namespace|leader_election|workqueue|controller_runtime|rest_client|process|DCGM)'
                      r'_[\w:]*(?:\{[^}]*\})?')


def missing() -> str:
    """Why there can be no Prometheus here; empty: there can."""
    lost = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    return f"{' and '.join(lost)} not here: Debian's package prometheus" if lost else ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Prometheus:
    """Scrapes `targets`, (address, labels) each, twice a second, and evaluates the rules as often. Ends with `close`."""

    def __init__(self, folder: pathlib.Path, targets: list):
        folder.mkdir(parents=True, exist_ok=True)
        self._address = f"127.0.0.1:{free_port()}"
        config = {"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
                  "rule_files": [str(RULES)],
                  "scrape_configs": [{"job_name": "lockstep", "static_configs": [
                      {"targets": [address], "labels": labels} for address, labels in targets]}]}
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
                 f"--web.listen-address={self._address}", "--log.level=warn"], stdout=log, stderr=log)
        deadline = time.monotonic() + 20
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise AssertionError(f"Prometheus does not start:\n{self.log.read_text()}")
            time.sleep(0.05)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def url(self) -> str:
        return f"http://{self._address}"

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def get(self, path: str, **parameters) -> dict:
        """`data` of an answer of the API. AssertionError with what it says where it refuses."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {json.load(error)['error']}") from None

    def values(self, expression: str) -> list:
        """The numbers of an instant answer, one a series, and none that is NaN."""
        numbers = [float(series["value"][1]) for series in self.get("query", query=expression)["result"]]
        return [number for number in numbers if number == number]

    def rules(self) -> list:
        """Those of all groups: each with group, name, type, query, and what else the API tells."""
        return [{"group": group["name"], **rule} for group in self.get("rules")["groups"] for rule in group["rules"]]

    def wait_for_data(self, expressions: dict, seconds: float, meanwhile=lambda: None) -> list:
        """Until every expression, {what it is of: it}, has had data. Those that have had none by then; empty: all have."""
        deadline = time.monotonic() + seconds
        left = dict(expressions)
        while True:
            meanwhile()
            left = {what: expression for what, expression in left.items() if not self.values(expression)}
            if not left or time.monotonic() > deadline:
                return [f"{what}: {expression}" for what, expression in left.items()]
            time.sleep(0.25)


def panels(name: str) -> list:
    return [panel for panel in json.loads((DASHBOARDS / f"{name}.json").read_text())["panels"] if panel["type"] != "row"]


def of_panels(name: str, namespace: str, job: str) -> dict:
    """Every expression of a dashboard, by its panel's title, as Grafana would send it."""
    found = {}
    for panel in panels(name):
        for target in panel["targets"]:
            expression = target["expr"].replace("$namespace", namespace).replace("$job", job).replace("$__rate_interval", "5s")
            found[f"panel {panel['title']} {target['refId']}"] = expression
    return found


def of_rules(rules: list) -> dict:
    """Of recording rules the expression; of alerts, which are silent while all is well, each selector."""
    found = {}
    for rule in rules:
        if rule["type"] == "recording":
            found[f"rule {rule['name']}"] = rule["query"]
        else:
            found |= {f"alert {rule['name']} {i}": selector for i, selector in enumerate(SELECTOR.findall(rule["query"]))}
    return found


def draw(prometheus: Prometheus, name: str, namespace: str, job: str, out: pathlib.Path) -> None:
    """A picture of a dashboard, by the Python that has matplotlib."""
    python = ROOT / ".venv-draw/bin/python3"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ROOT / ".venv-draw")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "matplotlib"], check=True)
    subprocess.run([str(python), str(DRAW), "--prometheus", prometheus.url, "--namespace", namespace, "--job", job,
                    "--out", str(out), str(DASHBOARDS / f"{name}.json")], check=True)


def check_metrics(text: str) -> str:
    """What promtool's linter says of an exposition; empty: nothing."""
    result = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True, timeout=30, check=False)
    return result.stdout + result.stderr
