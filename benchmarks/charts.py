"""Makes the charts of the documentation of stored results: ``python -m docs.pictures``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from docs.svg import WIDTH, Canvas

__all__ = ["CHARTS"]

_RESULTS: Final = Path(__file__).parent / "results"
_SIDE, _ROW, _HEAD = 14, 36, 50
# Parts of a bar: the JVM, the source's process, the workers.
_PARTS: Final = {"jvm": "jvm", "source": "ours", "workers": "workers"}
_NAMES: Final = {"jvm": "JVM", "source": "source", "workers": "workers"}
_SOURCES: Final = {
    "memory": "ceiling: a source with its rows in memory",
    "auto": "auto",
    "ranges": "ranges",
    "prefetch": "prefetch",
}


@dataclass(frozen=True)
class Bar:
    """One measured figure, or the parts that it is the sum of, each with its colour."""

    label: str
    parts: tuple[float, ...]
    colours: tuple[str, ...] = ("ours",)

    @property
    def shown(self) -> str:
        """The figure, as the chart has it."""
        value = sum(self.parts)
        return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


@dataclass(frozen=True)
class Chart:
    """Bars under one heading, what they count, and which files their figures come from.

    Attributes:
        figure: what the bars amount to, in large letters.
    """

    heading: str
    unit: str
    bars: tuple[Bar, ...]
    sources: tuple[str, ...]
    legend: tuple[tuple[str, str], ...] = ()
    figure: str = ""

    def render(self) -> str:
        """Return the chart as SVG: a label above each bar, so that both may be long."""
        top = _HEAD + (22 if self.legend else 0) + (36 if self.figure else 0)
        figures = "; ".join(f"{bar.label}: {bar.shown}" for bar in self.bars)
        canvas = Canvas(
            title=f"{self.heading}, {self.unit}. {figures}.",
            height=top + _ROW * len(self.bars) + 32,
        )
        if self.figure:
            canvas.text(_SIDE, 40, self.figure, "figure left")
        head = 36 if self.figure else 0
        canvas.text(_SIDE, head + 24, self.heading, "title left")
        canvas.text(_SIDE, head + 42, self.unit, "label")
        for place, (name, colour) in enumerate(self.legend):
            canvas.rect(_SIDE + 80 * place, 54, 12, 12, colour, round=2)
            canvas.text(_SIDE + 80 * place + 18, 64, name, "label")
        scale = (WIDTH - 2 * _SIDE - 44) / max(sum(bar.parts) for bar in self.bars)
        for place, bar in enumerate(self.bars):
            y, left = top + _ROW * place, float(_SIDE)
            canvas.text(_SIDE, y + 14, bar.label, "left")
            for part, colour in zip(bar.parts, bar.colours, strict=True):
                canvas.rect(left, y + 19, part * scale, 12, colour, round=2)
                left += part * scale
            canvas.text(left + 6, y + 30, bar.shown, "left title")
        files = ", ".join(f"{name}.json" for name in self.sources)
        canvas.text(_SIDE, canvas.height - 12, f"benchmarks/results/{files}", "mono")
        return canvas.render()


def polling() -> Chart:
    """Return the clients that call GetRecords, side by side."""
    rows = _result("polling")["rows"]
    names = {
        "native-records": "kinesis-publishers, native code",
        "ours-records": "kinesis-publishers",
        **{name: name for name in ("boto3", "aiobotocore", "async-kinesis")},
    }
    found = {name: _row(rows, client=name, record_bytes=1024, shards=4) for name in names}
    times = [found[name]["times_boto3"] for name in ("native-records", "ours-records")]
    return Chart(
        "GetRecords",
        "MB of payload per second of CPU (1 KiB, 4 shards)",
        tuple(_client(names[name], row) for name, row in found.items()),
        ("polling",),
        figure="{:.0f} times boto3, in Python {:.0f}".format(*times),
    )


def fan_out() -> Chart:
    """Return the clients that call SubscribeToShard, side by side."""
    rows = _result("fanout")["throughput"]
    return Chart(
        "SubscribeToShard",
        "MB of payload per second of CPU (1 KiB, 8 shards)",
        tuple(
            _client(label, _row(rows, client=name, subscriptions=8, protocol=protocol))
            for label, name, protocol in (
                ("kinesis-publishers, HTTP/2", "ours", "TLS, HTTP/2"),
                ("aiobotocore, HTTP/2", "aiobotocore-http2", "TLS, HTTP/2"),
                ("kinesis-publishers, HTTP/1.1", "ours", "HTTP/1.1"),
                ("aiobotocore, HTTP/1.1", "aiobotocore", "HTTP/1.1"),
            )
        ),
        ("fanout",),
        figure="{times_baseline:.1f} times aiobotocore".format(
            **_row(rows, client="ours", subscriptions=8, protocol="TLS, HTTP/2")
        ),
    )


def latency() -> Chart:
    """Return how long a record takes to the application."""
    pushed = _row(_result("fanout")["latency"], protocol="TLS, HTTP/2", shards=8)
    called = [row for row in _result("spark-tip")["latency"] if row["shards"] == 8]
    return Chart(
        "From a put to the application",
        "median, in ms (8 shards)",
        (
            Bar("on_batch, enhanced fan-out", (pushed["p50_ms"],)),
            *(
                Bar(f"foreachBatch of Spark, {row['planner']}", (row["called"]["p50_ms"],))
                for row in called
            ),
        ),
        ("fanout", "spark-tip"),
        figure=f"{pushed['p50_ms']:.0f} ms; in Spark {called[0]['called']['p50_ms']:.0f} ms",
    )


def spark_throughput(case: str) -> Chart:
    """Return how much each planner reads per second of CPU."""
    return Chart(
        f"Spark: a {case.partition('-')[0]} of 400 MB",
        "MB of payload per second of CPU (local[2], noop)",
        tuple(
            Bar(
                _SOURCES[row["candidate"]],
                (row["mb_per_cpu_second"],),
                ("others" if row["candidate"] == "memory" else "ours",),
            )
            for row in _by_case(case)
        ),
        ("spark-throughput",),
    )


def spark_profile(case: str) -> Chart:
    """Return which processes the CPU goes to."""
    return Chart(
        f"Spark: the CPU of a {case.partition('-')[0]}",
        "ms of CPU per MB of payload, by process",
        tuple(
            Bar(
                _SOURCES[row["candidate"]],
                tuple(row["cpu_ms_per_mb"][name] for name in _PARTS),
                tuple(_PARTS.values()),
            )
            for row in _by_case(case)
        ),
        ("spark-throughput",),
        tuple((_NAMES[name], colour) for name, colour in _PARTS.items()),
    )


def idle_memory() -> Chart:
    """Return what a shard without records costs."""
    carriers = [row for row in _result("fanout")["idle"] if row["subscriptions"] == 500]
    return Chart(
        "Memory of an idle shard",
        "KiB for each further one, of 500",
        (
            Bar("POLLING", (_result("memory")["idle"]["kib_per_shard"],)),
            *(Bar(f"EFO, {row['carrier']}", (row["kib_per_subscription"],)) for row in carriers),
        ),
        ("memory", "fanout"),
    )


def memory() -> Chart:
    """Return the resident memory of processes that have worked for long."""
    spark = {row["planner"]: row for row in _result("spark")["memory"] if row["runner"] != "Spark"}
    (producer,) = [row for row in _result("producing")["memory"] if not row["aggregates"]]
    return Chart(
        "Memory of a process at work",
        "resident MiB at the end of the run",
        (
            Bar("reader, after 2 GB", (_result("memory")["flat"]["samples"][-1]["rss_mib"],)),
            Bar("producer, after 3.6 million records", (producer["rss_mib"]["at 100 %"],)),
            *(
                Bar(f"Spark's source, {name}, 1,000 micro-batches", (row["rss_mib"]["100"],))
                for name, row in spark.items()
            ),
        ),
        ("memory", "producing", "spark"),
    )


def producing(record_bytes: int) -> Chart:
    """Return what a record costs the clients that write."""
    return Chart(
        f"PutRecords, records of {record_bytes:,} B",
        "microseconds of CPU per record",
        tuple(
            Bar(
                label,
                (median(_row(rows, client=name, record_bytes=record_bytes)["cpu_us"]),),
                ("ours" if name.startswith(("ours", "native")) else "others",),
            )
            for rows in [_result("producing")["throughput"]]
            for label, name in (
                ("put_many, native code", "native"),
                ("put_many", "ours"),
                ("put_many, aggregated, native code", "native-aggregated"),
                ("put_many, aggregated", "ours-aggregated"),
                ("put", "ours-put"),
                ("put, aggregated", "ours-aggregated-put"),
                ("boto3", "boto3"),
                ("async-kinesis, aggregated", "async-kinesis-kpl"),
                ("async-kinesis", "async-kinesis"),
            )
        ),
        ("producing",),
    )


def spark_sink() -> Chart:
    """Return how fast Spark writes."""
    variants = {"plain": "records", "aggregated": "aggregated", "marked": "with markers"}
    return Chart(
        "Spark's sink",
        "MB of payload per second (1 KiB, local[2])",
        tuple(
            Bar(variants[row["variant"]], (median(row["mb_per_second"]),))
            for row in _result("producing")["spark"]
        ),
        ("producing",),
    )


def aggregation(record_bytes: int) -> Chart:
    """Return what aggregates cost, here and with AWS's library."""
    rows = _result("aggregation")["with_aggregates"]
    return Chart(
        f"Aggregates, records of {record_bytes:,} B",
        "microseconds of CPU per record",
        tuple(
            Bar(
                label,
                (_row(rows, record_bytes=record_bytes, what=what)["microseconds_per_record"],),
                ("others" if what.endswith("AWS") else "ours",),
            )
            for label, what in (
                ("deaggregate", "take apart"),
                ("deaggregate, AWS's library", "take apart, AWS"),
                ("deliver after a reshard", "delivery after a reshard"),
                ("pack", "pack"),
                ("pack, AWS's library", "pack, AWS"),
            )
        ),
        ("aggregation",),
    )


def _by_case(case: str) -> list[dict[str, Any]]:
    rows = _result("spark-throughput")["throughput"]
    return [_row(rows, case=case, candidate=name) for name in _SOURCES]


def _client(label: str, row: dict[str, Any]) -> Bar:
    colour = "ours" if label.startswith("kinesis-publishers") else "others"
    return Bar(label, (row["mb_per_cpu_second"],), (colour,))


def _result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_RESULTS / f"{name}.json").read_text("utf-8"))
    return found


def _row(rows: list[dict[str, Any]], **wanted: object) -> dict[str, Any]:
    (found,) = [row for row in rows if wanted.items() <= row.items()]
    return found


#: What draws each chart, by its file below ``docs/images``.
CHARTS: Final[dict[str, Callable[[], str]]] = {
    "chart-polling.svg": lambda: polling().render(),
    "chart-fan-out.svg": lambda: fan_out().render(),
    "chart-latency.svg": lambda: latency().render(),
    "chart-spark-backlog.svg": lambda: spark_throughput("backlog-2000-1024").render(),
    "chart-spark-burst.svg": lambda: spark_throughput("burst-2000-1024").render(),
    "chart-spark-backlog-cpu.svg": lambda: spark_profile("backlog-2000-1024").render(),
    "chart-spark-burst-cpu.svg": lambda: spark_profile("burst-2000-1024").render(),
    "chart-idle-memory.svg": lambda: idle_memory().render(),
    "chart-memory.svg": lambda: memory().render(),
    "chart-producing-200.svg": lambda: producing(200).render(),
    "chart-producing-1024.svg": lambda: producing(1024).render(),
    "chart-spark-sink.svg": lambda: spark_sink().render(),
    "chart-aggregation-100.svg": lambda: aggregation(100).render(),
    "chart-aggregation-1024.svg": lambda: aggregation(1024).render(),
}
