"""Each micro-batch has exactly the records between its two entries in Spark's offset log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers_spark.offsets import Offset
from tests.integration.spark.planner.stream_ledger import StreamLedger
from tests.integration.spark.spark_harness import FROM_THE_START, RunningQuery

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from pyspark.sql import Row

    from tests.integration.spark.planner.stream_ledger import Place
    from tests.integration.spark.spark_harness import QueryRunner

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

_ROUNDS = 5


def batch_ids(folder: Path) -> set[int]:
    """Return the micro-batches that a log of Spark has an entry for."""
    return {int(path.name) for path in folder.iterdir() if path.name.isdigit()}


def logged_offset(checkpoint: Path, batch_id: int) -> Offset:
    """Return what Spark has noted as the end of a micro-batch: the source's is the last line."""
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    text = json.loads(lines[-1])
    # From its second version on the log names the source of each offset.
    return Offset.from_json(text if "version" in text else json.loads(text["0"]))


def places(rows: list[Row]) -> list[Place]:
    return [(row.shardId, row.sequenceNumber) for row in rows]


def assert_batches_are_what_the_log_says(
    running: RunningQuery, checkpoint: Path, ledger: StreamLedger
) -> None:
    committed = batch_ids(checkpoint / "commits")
    assert committed <= batch_ids(checkpoint / "offsets")
    assert committed <= running.batches.keys()
    start = Offset()
    for batch_id in sorted(running.batches):
        end = logged_offset(checkpoint, batch_id)
        ledger.assert_is_between(start, end, places(running.batches[batch_id]))
        start = end


def test_a_random_walk_of_puts_reshards_restarts_and_changes_of_the_planner(
    runner: QueryRunner, flights: str, chance: Random
) -> None:
    ledger = StreamLedger(runner.server, flights)
    running = RunningQuery()
    planner = chance.choice(["prefetch", "ranges"])
    for _ in range(_ROUNDS):
        ledger.put(chance.randint(0, 100))
        options = {
            **FROM_THE_START,
            "kinesis.spark.planner": planner,
            "kinesis.shard.discovery.intervalmillis": "300",
            "maxRecordsPerTrigger": str(chance.choice([40, 150, 10_000])),
        }
        with runner.run(earlier=running, **options) as running:
            ledger.put(chance.randint(50, 300))
            running.wait_for_rows(min(len(running.rows) + 60, ledger.count))
            if chance.random() < 0.7:
                runner.server.reshard(flights, chance.randint(1, 6))
            ledger.put(chance.randint(0, 300))
            # Wherever it stands by then, it is stopped.
            running.wait_for_rows(chance.randint(len(running.rows), ledger.count))
        if chance.random() < 0.7:
            planner = "ranges" if planner == "prefetch" else "prefetch"
    with runner.run(earlier=running, **FROM_THE_START) as running:
        running.wait_for_rows(ledger.count)
        running.query.processAllAvailable()
    assert_batches_are_what_the_log_says(running, runner.checkpoint, ledger)
    batches = [places(rows) for _, rows in sorted(running.batches.items())]
    ledger.assert_in_order_per_key(batches)
    assert len(running.rows) == len({place for rows in batches for place in rows}) == ledger.count
