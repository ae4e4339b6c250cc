"""Draws the panels of the dashboard for Grafana, of what Prometheus answered to its queries.

``python -m benchmarks.dashboard`` has stored the answers. It is not a picture by Grafana: titles,
places, units and names of series are the dashboard's, the drawing is ours.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, Final

from docs.svg import Canvas

_ROOT: Final = Path(__file__).parents[1]
_DASHBOARD: Final = _ROOT / "examples" / "monitoring" / "grafana-dashboard.json"
_ANSWERS: Final = _ROOT / "benchmarks" / "results" / "dashboard.json"
_WIDTH, _SIDE, _GAP, _LINE = 900, 10, 8, 22
_COLOURS: Final = ("ours", "amber", "workers", "accent", "jvm", "line")
# As far as benchmarks/dashboard.py lets two points be from each other, in seconds.
_STEP: Final = 5
#: The units of the dashboard: what one is called, and by what its values are divided for each.
_UNITS: Final[dict[str, tuple[tuple[float, str], ...]]] = {
    "ms": ((60_000, " min"), (1_000, " s"), (1, " ms")),
    "s": ((60, " min"), (1, " s"), (0.001, " ms")),
    "cps": ((1_000, "k c/s"), (1, " c/s")),
    "Bps": ((1e6, " MB/s"), (1e3, " kB/s"), (1, " B/s")),
    "percentunit": ((0.01, " %"),),
    "short": ((1_000, "k"), (1, "")),
}


def dashboard() -> str:
    """Return all panels, at their places in the grid."""
    panels = json.loads(_DASHBOARD.read_text(encoding="utf-8"))["panels"]
    answers = json.loads(_ANSWERS.read_text(encoding="utf-8"))
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    canvas = Canvas(
        title="The dashboard for Grafana, drawn of its file and of what Prometheus answered",
        height=2 * _SIDE + rows * _LINE,
        width=_WIDTH,
    )
    for panel in panels:
        series = [
            (_named(target["legendFormat"], one["labels"]), one["points"])
            for target in panel["targets"]
            for one in answers["answers"][target["expr"]]
        ]
        _draw(canvas, panel, series, answers["seconds"])
    return canvas.render()


def _named(legend: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), legend)


def _draw(canvas: Canvas, panel: dict[str, Any], series: list[Any], seconds: float) -> None:
    place, unit = panel["gridPos"], panel["fieldConfig"]["defaults"]["unit"]
    column = (_WIDTH - 2 * _SIDE) / 24
    left, top = _SIDE + place["x"] * column + _GAP / 2, _SIDE + place["y"] * _LINE + _GAP / 2
    width, height = place["w"] * column - _GAP, place["h"] * _LINE - _GAP
    canvas.rect(left, top, width, height, "paper frame", round=4)
    canvas.text(left + 10, top + 20, panel["title"], "title left")
    legend = _legend([name for name, _ in series], width - 20)
    x, y, right = left + 64, top + 34, left + width - 24
    bottom = top + height - 24 - 16 * (1 + max((row for row, _ in legend), default=0))
    highest = _above(max((value for _, points in series for _, value in points), default=0))
    for part in (0, 0.5, 1):
        height_of_part = bottom - part * (bottom - y)
        canvas.line(f"M{x:.0f} {height_of_part:.0f} H{right:.0f}", "rule")
        canvas.text(x - 6, height_of_part + 4, _shown(part * highest, unit, highest), "label right")
    for minute in range(int(seconds / 60 + 0.1) + 1):
        at = min(x + 60 * minute / seconds * (right - x), right)
        canvas.text(at, bottom + 15, f"{minute} min", "small")
    for number, ((name, points), (row, before)) in enumerate(zip(series, legend, strict=True)):
        colour = _COLOURS[number % len(_COLOURS)]
        steps, last = "", -math.inf
        for at, value in points:
            # A gap stays one: nothing was answered there.
            steps += "M" if at - last > 1.5 * _STEP else "L"
            steps += f"{x + at / seconds * (right - x):.1f} "
            steps += f"{bottom - value / highest * (bottom - y):.1f}"
            last = at
        canvas.parts.append(f'<path d="{steps}" class="series" stroke="var(--{colour})"/>')
        under = bottom + 32 + 16 * row
        canvas.rect(left + 10 + before, under - 6, 10, 4, colour, round=0)
        canvas.text(left + 24 + before, under, name, "label")


def _legend(names: list[str], width: float) -> list[tuple[int, float]]:
    """Return the row of each name, and where it begins there."""
    places, row, before = [], 0, 0.0
    for name in names:
        needed = 6.2 * len(name) + 26
        if before and before + needed > width:
            row, before = row + 1, 0.0
        places.append((row, before))
        before += needed
    return places


def _above(value: float) -> float:
    """Return the next round number."""
    if not value:
        return 1
    power = 10 ** math.floor(math.log10(value))
    return next(
        part * power for part in (1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10) if part * power >= value
    )


def _shown(value: float, unit: str, highest: float) -> str:
    if unit == "short" and highest < 10:
        return f"{value:.2g}"
    divisor, name = next((one for one in _UNITS[unit] if highest >= one[0]), _UNITS[unit][-1])
    return f"{value / divisor:.3g}{name}" if value else "0"
