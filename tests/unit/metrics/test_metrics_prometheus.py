"""What Prometheus scrapes, and that the dashboard and the alerts ask for what there is."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kinesis_publishers import Properties, SystemClock
from kinesis_publishers.errors import InvalidOptionError
from kinesis_publishers.metrics.cloudwatch_table import KCL_METRICS
from kinesis_publishers.metrics.prometheus import PrometheusMetrics
from kinesis_publishers.metrics.sinks import open_event_sink
from kinesis_publishers.metrics.table import METRICS
from tests.unit.metrics.metric_support import FETCHED, ONE, ZERO, ended, fetched, started

if TYPE_CHECKING:
    from kinesis_publishers.events import EventSink

MONITORING = Path(__file__).parents[3] / "examples" / "monitoring"


def properties_of(port: int, **more: str) -> Properties:
    values = {"kinesis.metrics.sinks": "prometheus", "kinesis.metrics.prometheus.port": str(port)}
    return Properties.parse({"kinesis.streams": "orders", **values, **more})


def scraped(port: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


async def test_events_are_served_while_there_is_a_reader(unused_tcp_port: int) -> None:
    port = unused_tcp_port

    async def fed(sink: EventSink) -> dict[str, list[tuple[dict[str, str], float]]]:
        for event in (started(ZERO), started(ONE), FETCHED, FETCHED, ended(ONE)):
            sink(event)
        return await asyncio.to_thread(scraped, port)

    properties = properties_of(port)
    async with open_event_sink(properties, SystemClock()) as sink:
        # A second reader in the process shares the server.
        async with open_event_sink(properties, SystemClock()):
            pass
        samples = await fed(sink)
    of_zero = {"stream": "orders", "shard": ZERO.shard_id}
    assert samples["kinesis_publishers_records_fetched_total"] == [(of_zero, 100.0)]
    assert samples["kinesis_publishers_millis_behind_latest_milliseconds"] == [(of_zero, 700.0)]
    assert samples["kinesis_publishers_shards_reading"] == [({"stream": "orders"}, 1.0)]
    assert samples["kinesis_publishers_fetch_duration_seconds_count"] == [(of_zero, 2.0)]
    assert samples["kinesis_publishers_fetch_duration_seconds_sum"] == [(of_zero, 1.0)]
    with pytest.raises(URLError):
        await asyncio.to_thread(scraped, port)


async def test_metrics_may_be_by_stream(unused_tcp_port: int) -> None:
    properties = properties_of(unused_tcp_port, **{"kinesis.metrics.level": "stream"})
    async with open_event_sink(properties, SystemClock()) as sink:
        sink(fetched(shard=ZERO))
        sink(fetched(shard=ONE))
        samples = await asyncio.to_thread(scraped, unused_tcp_port)
    assert samples["kinesis_publishers_fetches_total"] == [({"stream": "orders"}, 2.0)]


async def test_a_port_that_is_taken_is_an_error_that_names_the_option(
    unused_tcp_port: int,
) -> None:
    async def close(_: object, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", unused_tcp_port):
        with pytest.raises(InvalidOptionError, match=r"kinesis\.metrics\.prometheus\.port: cannot"):
            PrometheusMetrics.from_properties(properties_of(unused_tcp_port), SystemClock())


def names_in(expressions: list[str]) -> set[str]:
    return {name for one in expressions for name in re.findall(r"kinesis_publishers_\w+", one)}


def expressions_of(value: Any) -> list[str]:
    """Return every value of a key ``expr``, at any depth."""
    if isinstance(value, dict):
        own = [text for key, text in value.items() if key == "expr"]
        return own + [one for part in value.values() for one in expressions_of(part)]
    return (
        [one for part in value for one in expressions_of(part)] if isinstance(value, list) else []
    )


def served_names() -> set[str]:
    """Return the names under which Prometheus finds each metric."""
    units = {"ms": "_milliseconds", "s": "_seconds", "By": "_bytes", "ns": "_nanoseconds"} | {
        "Hz": "_hertz"
    }
    found = set()
    for metric in METRICS.metrics:
        unit = units.get(metric.unit, "")
        name = f"kinesis_publishers_{metric.name}"
        name = name if not unit or name.endswith(unit) else name + unit
        found |= {name, f"{name}_total", f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    return found


def test_the_dashboard_asks_for_what_is_served() -> None:
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text(encoding="utf-8"))
    asked = names_in(expressions_of(dashboard["panels"]))
    assert len(asked) >= 10
    assert asked <= served_names()
    for panel in dashboard["panels"]:
        assert panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


def test_the_alerts_ask_for_what_is_served() -> None:
    text = (MONITORING / "prometheus-alerts.yml").read_text(encoding="utf-8")
    asked = names_in([text])
    assert len(asked) >= 4
    assert asked <= served_names()


def test_the_alarms_of_cloudwatch_name_metrics_and_dimensions_that_are_sent() -> None:
    template = json.loads((MONITORING / "cloudwatch-alarms.json").read_text(encoding="utf-8"))
    known = {metric.name: metric for metric in KCL_METRICS.metrics}
    alarms = [one["Properties"] for one in template["Resources"].values()]
    assert len(alarms) >= 4
    for alarm in alarms:
        metric = known[alarm["MetricName"]]
        names = {one["Name"]: one["Value"] for one in alarm["Dimensions"]}
        assert names["Operation"] == metric.kcl_task
        assert names.keys() <= {"Operation", "StreamId"}
        assert alarm["Namespace"] == {"Ref": "Namespace"}
    assert template["Parameters"]["Namespace"]["Default"] == "KinesisPublishers"


def test_names_are_as_the_exporter_makes_them(unused_tcp_port: int) -> None:
    metrics = PrometheusMetrics.from_properties(properties_of(unused_tcp_port), SystemClock())
    try:
        for event in (started(ZERO), FETCHED):
            metrics(event)
        assert {name for name in scraped(unused_tcp_port) if name.startswith("kinesis")} <= (
            served_names() | {f"{name}_created" for name in served_names()}
        )
    finally:
        asyncio.run(metrics.__aexit__())
