#!/usr/bin/env python3
"""Makes manifests/monitoring/prometheus_rule.yaml of rules.yaml, and dashboards/*.json of tools/dashboards.py.

With --check it writes nothing, and fails where a file is not what it would write.
"""

import argparse
import json
import pathlib
import sys

import dashboards

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "manifests/monitoring"
HEAD = """# Made of rules.yaml by tools/monitoring.py.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: lockstep
spec:
"""


def prometheus_rule(rules: str) -> str:
    lines = rules[rules.index("groups:"):].splitlines()
    return HEAD + "".join(f"  {line}".rstrip() + "\n" for line in lines)


def made() -> dict:
    """Every file that is made, and its text."""
    files = {FOLDER / "prometheus_rule.yaml": prometheus_rule((FOLDER / "rules.yaml").read_text())}
    for name, dashboard in dashboards.ALL.items():
        files[FOLDER / "dashboards" / f"{name}.json"] = json.dumps(dashboard(), indent=1) + "\n"
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say what is not as it should be")
    check = parser.parse_args().check
    stale = [path for path, text in made().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if check:
            print(f"{path.name} is not what tools/monitoring.py makes")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(made()[path])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
