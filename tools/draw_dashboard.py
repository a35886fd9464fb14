#!/usr/bin/env python3
"""Draws the panels of a dashboard in one picture, from what a Prometheus answers. Needs matplotlib.

Tables are left out, and so are lines that are zero all along, and panels without others.
"""

import argparse
import json
import math
import pathlib
import time
import urllib.parse
import urllib.request

import matplotlib
from PIL import Image  # comes with it

matplotlib.use("Agg")
from matplotlib import pyplot, ticker  # noqa: E402

COLUMNS = 4
PREFIXES = {"s": "s", "bytes": "B", "Bps": "B/s", "flops": "FLOP/s", "watt": "W", "ops": "/s", "reqps": "/s", "short": "",
            "celsius": "°C", "sci": ""}


def ask(prometheus: str, expression: str, start: float, end: float, step: float) -> list:
    query = urllib.parse.urlencode({"query": expression, "start": start, "end": end, "step": step})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query_range?{query}", timeout=30) as answer:
        return json.load(answer)["data"]["result"]


def legend(form: str, labels: dict) -> str:
    for name, value in labels.items():
        form = form.replace("{{" + name + "}}", value)
    return form


def formatter(unit: str):
    if unit == "percentunit":
        return ticker.PercentFormatter(1, decimals=None)
    if unit == "short":
        return ticker.FuncFormatter(lambda value, _: f"{value:,.4g}" if abs(value) < 1000 else f"{value / 1000:,.4g}k")
    return ticker.EngFormatter(unit=PREFIXES.get(unit, ""), sep=" " if PREFIXES.get(unit) else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prometheus", required=True, help="http://HOST:PORT")
    parser.add_argument("--namespace", default=".*", help="what $namespace stands for")
    parser.add_argument("--job", default=".*", help="what $job stands for")
    parser.add_argument("--seconds", type=float, default=75, help="how far back (default: %(default)s)")
    parser.add_argument("--interval", default="5s", help="what $__rate_interval stands for (default: %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the PNG")
    parser.add_argument("dashboard", type=pathlib.Path)
    arguments = parser.parse_args()
    end = time.time()
    board = json.loads(arguments.dashboard.read_text())
    drawn = []
    for panel in board["panels"]:
        lines = []
        for target in panel.get("targets", []) if panel["type"] == "timeseries" else []:
            expression = target["expr"].replace("$namespace", arguments.namespace).replace("$job", arguments.job)
            expression = expression.replace("$__rate_interval", arguments.interval)
            for series in ask(arguments.prometheus, expression, end - arguments.seconds, end, arguments.seconds / 150):
                points = [(float(at) - end, float(value)) for at, value in series["values"] if math.isfinite(float(value))]
                if points:
                    lines.append((legend(target["legendFormat"], series["metric"]), points))
        moving = [line for line in lines if any(value != 0 for _, value in line[1])]
        if moving:
            drawn.append((panel, moving))
    rows = -(-len(drawn) // COLUMNS)
    pyplot.rcParams.update({"font.size": 6, "axes.titlesize": 7, "axes.linewidth": 0.5})
    figure, axes = pyplot.subplots(rows, COLUMNS, figsize=(COLUMNS * 2.7, rows * 1.4), squeeze=False, layout="constrained")
    for axis in axes.flat[len(drawn):]:
        axis.axis("off")
    for axis, (panel, lines) in zip(axes.flat, drawn):
        for name, points in lines:
            axis.plot(*zip(*points), linewidth=0.9, label=name)
        axis.set_title(panel["title"], loc="left")
        axis.set_xlim(-arguments.seconds, 0)
        axis.set_ylim(bottom=min(0, axis.get_ylim()[0]))
        axis.yaxis.set_major_locator(ticker.MaxNLocator(4))
        axis.yaxis.set_major_formatter(formatter(panel["fieldConfig"]["defaults"]["unit"]))
        axis.xaxis.set_major_formatter(ticker.EngFormatter(unit="s", sep=" "))
        axis.grid(linewidth=0.3, alpha=0.5)
        axis.spines[["top", "right"]].set_visible(False)
        if len(lines) <= 8:
            axis.legend(fontsize=4.5, frameon=False, loc="best", handlelength=1)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.out, dpi=90)
    # A palette is enough for lines, and makes the file a third as large.
    Image.open(arguments.out).convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(arguments.out, optimize=True)


if __name__ == "__main__":
    main()
