"""The additional columns, and a schema of the user's own, through a real query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from kinesis_publishers.testing.fakes import deaggregated, sample_aggregates
from tests.integration.spark.spark_harness import FROM_THE_START, by_place, numbered, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.integration.spark.spark_harness import QueryRunner

AGGREGATES = sample_aggregates(3, 4)
INSIDE = deaggregated(AGGREGATES)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.mark.long
def test_the_additional_columns_are_there_and_the_same_in_a_replay(
    runner: QueryRunner, flights: str
) -> None:
    runner.server.put_many(flights, numbered(0, 200))
    runner.server.put_many(flights, [("a", one.data) for one in AGGREGATES])
    # The driver makes the rows the first time, and the tasks of a replay make them again.
    options = FROM_THE_START | {"includeMetadata": "true", "kinesis.spark.planner": "prefetch"}
    batch_id, before = runner.run_into_a_failure(**options)
    with runner.run(**options) as running:
        running.wait_for_rows(212)

    assert by_place(running.batches[batch_id]) == by_place(before)
    plain = [row for row in running.rows if row.subSequenceNumber is None]
    assert sorted(numbers(plain)) == list(range(200))
    assert len({row.recordId for row in running.rows}) == 212
    inside = [row for row in running.rows if row.subSequenceNumber is not None]
    assert sorted(
        (row.subSequenceNumber, row.partitionKey, bytes(row.data)) for row in inside
    ) == sorted((one.sub_sequence_number, one.partition_key, one.data) for one in INSIDE)
    for row in running.rows:
        assert (row.explicitHashKey, row.encryptionType) == (None, "NONE")


def test_another_schema_is_an_error_that_names_the_columns(
    spark: SparkSession, runner: QueryRunner, flights: str
) -> None:
    options = runner.server.properties(flights)
    frame = spark.readStream.format("kinesis").schema("data string").options(**options).load()
    with (
        runner.run_frame(frame) as running,
        pytest.raises(StreamingQueryException) as caught,
    ):
        running.wait_for_the_end()
    message = str(caught.value)
    assert "the columns of this source are fixed: data binary, streamName string" in message
    assert "UnboundLocalError" not in message
