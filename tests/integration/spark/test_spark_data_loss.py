"""Streams and shards that are gone: the error of the query says which, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.integration.spark.spark_harness import FROM_THE_START, MOSTLY_PREFETCH, numbered, numbers

if TYPE_CHECKING:
    from tests.integration.spark.spark_harness import QueryRunner

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

_FIRST_SHARD = "shardId-000000000000"


@MOSTLY_PREFETCH
def test_a_shard_that_left_unread_fails_the_query_until_loss_is_tolerated(
    runner: QueryRunner, flights: str, planner: str
) -> None:
    options = {**FROM_THE_START, "kinesis.spark.planner": planner}
    runner.server.put_many(flights, numbered(0, 100))
    with runner.run(**options) as running:
        running.wait_for_rows(100)
        running.query.processAllAvailable()
    last = runner.server.records(flights)[_FIRST_SHARD][-1].sequence_number
    places = runner.server.put_many(flights, numbered(100, 200))
    lost = {100 + index for index, (shard_id, _) in enumerate(places) if shard_id == _FIRST_SHARD}
    runner.server.reshard(flights, 8)
    runner.server.trim(flights, shard_id=_FIRST_SHARD)
    runner.server.put_many(flights, numbered(200, 300))
    says = rf"(?s){flights}/{_FIRST_SHARD}.*{last}.*kinesis\.failondataloss = false.*checkpoint"
    with (
        pytest.raises(StreamingQueryException, match=says),
        runner.run(earlier=running, **options) as failing,
    ):
        failing.wait_for_rows(300)
    with runner.run(earlier=running, **options, failOnDataLoss="false") as running:
        running.wait_for_rows(300 - len(lost))
    assert sorted(numbers(running.rows)) == sorted(set(range(300)) - lost)
