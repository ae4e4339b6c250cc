"""Draws the charts of the documentation from stored results: ``python -m benchmarks.charts``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from matplotlib.axes import Axes

__all__ = ["CHARTS", "Bar", "Chart"]

_RESULTS: Final = Path(__file__).parent / "results"
_IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
_OURS, _OTHERS = "#5c6bc0", "#b0bec5"
# Parts of a bar: the JVM, the source's process, the workers.
_PARTS = {"jvm": "#90a4ae", "source": "#5c6bc0", "workers": "#26a69a"}
_NAMES = {"jvm": "JVM", "source": "source", "workers": "workers"}
_PLANNERS = ("memory", "auto", "prefetch", "prefetch-efo", "ranges", "connector")


@dataclass(frozen=True)
class Bar:
    """One measured figure, or the parts that it is the sum of."""

    label: str
    parts: tuple[float, ...]
    colours: tuple[str, ...] = (_OURS,)

    @property
    def shown(self) -> str:
        """The figure, as the chart has it."""
        value = sum(self.parts)
        return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


@dataclass(frozen=True)
class Chart:
    """Bars under one heading, and where their figures come from."""

    heading: str
    bars: tuple[Bar, ...]
    source: str
    legend: tuple[tuple[str, str], ...] = ()


def figures() -> list[Chart]:
    """Return what the README shows: the clients side by side."""
    polling, fan_out = _result("polling"), _result("fanout")
    clients = ("ours-records", "boto3", "aiobotocore", "async-kinesis")
    pushed = (
        ("kinesis-publishers, HTTP/1.1", "ours", "HTTP/1.1"),
        ("aiobotocore, HTTP/1.1", "aiobotocore", "HTTP/1.1"),
        ("kinesis-publishers, HTTP/2, pyreqwest", "ours-fast", "TLS, HTTP/2"),
        ("kinesis-publishers, HTTP/2, httpx", "ours", "TLS, HTTP/2"),
        ("aiobotocore, HTTP/2", "aiobotocore-http2", "TLS, HTTP/2"),
    )
    return [
        Chart(
            "GetRecords: MB of payload per second of CPU (records of 1 KiB, 4 shards)",
            tuple(
                _client("kinesis-publishers" if name == "ours-records" else name, row)
                for name in clients
                for row in [_row(polling["rows"], client=name, record_bytes=1024, shards=4)]
            ),
            _source(polling),
        ),
        Chart(
            "SubscribeToShard: MB of payload per second of CPU (records of 1 KiB, 8 shards)",
            tuple(
                _client(label, row)
                for label, name, protocol in pushed
                for row in [
                    _row(fan_out["throughput"], client=name, subscriptions=8, protocol=protocol)
                ]
            ),
            _source(fan_out),
        ),
        _latency(fan_out, _result("spark-tip")),
    ]


def _latency(fan_out: dict[str, Any], spark: dict[str, Any]) -> Chart:
    called = [row for row in spark["latency"] if row["shards"] == 8]
    return Chart(
        "From a put to the application: median in ms (8 shards)",
        (
            Bar(
                "on_batch, fan-out",
                (_row(fan_out["latency"], protocol="HTTP/1.1", shards=8)["p50_ms"],),
            ),
            *(
                Bar(f"foreachBatch of Spark, {row['planner']}", (row["called"]["p50_ms"],))
                for row in called
            ),
        ),
        f"{_source(fan_out)}; {_source(spark)}",
    )


def spark_throughput() -> list[Chart]:
    """Return how much each planner reads per second of CPU, by how the records come."""
    return _by_case(
        lambda row: Bar(
            row["candidate"],
            (row["mb_per_cpu_second"],),
            (_OTHERS if row["candidate"] in ("memory", "connector") else _OURS,),
        ),
        "MB of payload per second of CPU",
    )


def spark_profile() -> list[Chart]:
    """Return which processes the CPU goes to, by how the records come."""
    return _by_case(
        lambda row: Bar(
            row["candidate"],
            tuple(row["cpu_ms_per_mb"][name] for name in _PARTS),
            tuple(_PARTS.values()),
        ),
        "ms of CPU per MB of payload",
        tuple((_NAMES[name], colour) for name, colour in _PARTS.items()),
    )


def _by_case(
    bar: Callable[[dict[str, Any]], Bar], unit: str, legend: tuple[tuple[str, str], ...] = ()
) -> list[Chart]:
    spark = _result("spark-throughput")
    cases = dict.fromkeys(row["case"] for row in spark["throughput"])
    return [
        Chart(
            f"{_title(case)}: {unit}",
            tuple(
                bar(row)
                for name in _PLANNERS
                for row in spark["throughput"]
                if (row["case"], row["candidate"]) == (case, name)
            ),
            _source(spark),
            legend,
        )
        for case in cases
    ]


def _title(case: str) -> str:
    arrival, page_records, record_bytes = case.split("-")
    return f"{arrival}, pages of {int(page_records):,} records of {int(record_bytes):,} B"


def _client(label: str, row: dict[str, Any]) -> Bar:
    colour = _OURS if label.startswith("kinesis-publishers") else _OTHERS
    return Bar(label, (row["mb_per_cpu_second"],), (colour,))


def _result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_RESULTS / f"{name}.json").read_text("utf-8"))
    return found


def _source(result: dict[str, Any]) -> str:
    """Return the command without its arguments, which stand in the file."""
    return " ".join(result["command"].split()[:3])


def _row(rows: list[dict[str, Any]], **wanted: object) -> dict[str, Any]:
    (found,) = [row for row in rows if wanted.items() <= row.items()]
    return found


#: What is drawn, by the file below ``docs/images``.
CHARTS: Final[dict[str, Callable[[], list[Chart]]]] = {
    "figures.svg": figures,
    "spark-throughput.svg": spark_throughput,
    "spark-profile.svg": spark_profile,
}


def draw(charts: Iterable[Chart], path: Path) -> None:
    """Write charts, one below the other, as SVG; the same bytes each time."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    every = list(charts)
    # Text stays text: it can be searched, and a test reads the figures.
    style = {"svg.fonttype": "none", "svg.hashsalt": "kinesis-publishers", "font.size": 9}
    with mpl.rc_context(style):
        heights = [1.0 + len(chart.bars) for chart in every]
        figure = Figure(figsize=(9, 0.27 * sum(heights) + 0.5 * len(every)), layout="constrained")
        axes = figure.subplots(len(every), squeeze=False, height_ratios=heights)
        for chart, (axis,) in zip(every, axes, strict=True):
            _draw_one(chart, axis)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _draw_one(chart: Chart, axis: Axes) -> None:
    axis.set_title(chart.heading, loc="left", fontweight="bold", fontsize=10)
    for place, bar in enumerate(chart.bars):
        left = 0.0
        for part, colour in zip(bar.parts, bar.colours, strict=True):
            axis.barh(place, part, left=left, color=colour)
            left += part
        axis.annotate(
            bar.shown, (left, place), (4, 0), textcoords="offset points", verticalalignment="center"
        )
    axis.set_yticks(range(len(chart.bars)), [bar.label for bar in chart.bars])
    axis.invert_yaxis()
    axis.margins(x=0.08)
    axis.set_xlabel(chart.source, loc="left", color="#78909c", fontsize=7, family="monospace")
    axis.tick_params(bottom=False, labelbottom=False, left=False)
    axis.spines[["top", "right", "bottom"]].set_visible(False)
    for name, colour in chart.legend:
        axis.barh(0, 0, color=colour, label=name)
    if chart.legend:
        axis.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, fontsize=8)


def main() -> None:
    """Draw every chart."""
    for name, charts in CHARTS.items():
        draw(charts(), _IMAGES / name)


if __name__ == "__main__":
    main()
