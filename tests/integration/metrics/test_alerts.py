"""The shipped alerts for Prometheus, over what a reader in simulated time exposes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

from kinesis_publishers import KinesisDataFetcher, Properties, Shard
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.metrics.open_telemetry import OpenTelemetryMetrics
from kinesis_publishers.readers.consumers import CallbackSink
from kinesis_publishers.testing.local_kinesis import Behaviour
from tests.integration.readers.simulated_world import STREAM, SimulatedWorld

if TYPE_CHECKING:
    from kinesis_publishers import RecordBatch

RULES = Path(__file__).parents[3] / "examples" / "monitoring" / "prometheus-alerts.yml"
SCRAPES, SCRAPE_SECONDS = 64, 15
PREFIX = "kinesis_publishers_"
HANGING = ["KinesisReaderIsBehind", "KinesisReaderIsStuck"]


class World(SimulatedWorld):
    """A stream, a reader of it whose callback may hang, and what Prometheus scrapes of that."""

    def __init__(self) -> None:
        super().__init__(Behaviour())
        self.pool = PendingPool(max_records=200_000, max_bytes=10**9)
        registry = CollectorRegistry()
        reader = PrometheusMetricReader(True, scope_info_enabled=False, registry=registry)
        self._registry = registry
        self._provider = MeterProvider([reader], shutdown_on_exit=False)
        self.hangs = self.fails = False
        self.gate = asyncio.Event()
        # Of each series what was scraped when; it may begin and end.
        self.series: dict[str, list[str]] = {}

    async def on_batch(self, shard: Shard, batch: RecordBatch) -> None:
        if self.hangs:
            await self.gate.wait()
        if self.fails:
            raise LookupError

    async def run(self, publisher: str, case: str) -> None:
        properties = Properties.parse(
            {
                "aws.region": "us-east-1",
                "kinesis.streams": STREAM,
                "kinesis.stream.recordpublisher": publisher,
                "kinesis.stream.efo.consumername": "reports",
                "kinesis.shard.getrecords.intervalmillis": "1000",
            }
        )
        events = OpenTelemetryMetrics(self._provider.get_meter("tests"))
        parts = self.parts(properties, events)
        fetcher = KinesisDataFetcher(parts, CallbackSink(self.on_batch, parts.slow_calls))
        task = asyncio.create_task(fetcher.run())
        try:
            for scrape in range(SCRAPES):
                self.happen(case, scrape)
                await self.clock.advance(SCRAPE_SECONDS)
                self.scrape(scrape)
        finally:
            self.gate.set()
            fetcher.stop()
            await self.within_time(
                asyncio.gather(task, parts.factory.close(), return_exceptions=True)
            )
            self._provider.shutdown()

    def happen(self, case: str, scrape: int) -> None:
        if case == "hangs at once":
            self.hangs = True
        elif case == "hangs later":
            self.hangs = scrape >= 10
        elif case == "fails":
            self.fails = scrape >= 50
        elif case == "ends" and scrape == 10:
            self.reshard(1)
        if scrape == 0 or case != "is idle":
            # Much less than a page.
            self.put(4)

    def scrape(self, index: int) -> None:
        for metric in self._registry.collect():
            for sample in metric.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
                values = self.series.setdefault(f"{sample.name}{{{labels}}}", [])
                values += ["_"] * (index - len(values)) + [f"{sample.value:g}"]

    def scraped(self, name: str) -> list[str]:
        """Return all values of a metric."""
        of_metric = (one for key, one in self.series.items() if key.startswith(f"{PREFIX}{name}{{"))
        return [value for values in of_metric for value in values if value != "_"]


def check_alerts(world: World, expected: list[str], path: Path) -> None:
    """Let Prometheus say whether these alerts fire at the end, and no other one."""
    series = [
        {"series": name, "values": " ".join(values)}
        for name, values in world.series.items()
        if "_bucket" not in name
    ]
    test = {
        "interval": f"{SCRAPE_SECONDS}s",
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{(SCRAPES - 1) * SCRAPE_SECONDS}s",
                "exp_samples": [
                    {"labels": f'{{alertname="{name}"}}', "value": 1} for name in expected
                ],
            }
        ],
    }
    path.write_text(json.dumps({"rule_files": [str(RULES)], "tests": [test]}), encoding="utf-8")
    done = subprocess.run(
        ["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(
    shutil.which("promtool") is None and "CI" not in os.environ, reason="Prometheus is missing"
)
@pytest.mark.parametrize(
    ("publisher", "case", "expected"),
    [
        ("POLLING", "hangs at once", HANGING),
        ("EFO", "hangs later", HANGING),
        ("POLLING", "fails", ["KinesisReaderHasStopped"]),
        ("POLLING", "is well", []),
        ("POLLING", "ends", []),
        ("POLLING", "is idle", []),
        ("POLLING", "reads with a publisher of its own", []),
        ("EFO", "is idle", []),
    ],
)
async def test_a_callback_that_hangs_fires_alerts_and_nothing_else_does(
    publisher: str, case: str, expected: list[str], tmp_path: Path
) -> None:
    world = World()
    await world.run(publisher, case)
    if "of its own" in case:
        # Which reports no calls.
        answers = f"{PREFIX}fetches_total"
        world.series = {key: one for key, one in world.series.items() if answers not in key}
    check_alerts(world, expected, tmp_path / "test.yml")
    if not expected:
        # Above the tip's 30 seconds it would look like trouble.
        assert {*world.scraped("processing_lag_seconds")} == {"0"}
    if case == "hangs at once":
        # Nothing else shows it: answers come on, and at the tip.
        assert {*world.scraped("millis_behind_latest_milliseconds")} == {"0"}
        assert len({*world.scraped("fetches_total")}) > SCRAPES // 2
