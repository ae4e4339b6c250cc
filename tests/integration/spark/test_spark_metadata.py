"""The additional columns, and a schema of the user's own, through a real query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from spark_harness import FROM_THE_START, by_place, numbered, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from spark_harness import QueryRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_the_additional_columns_are_there_and_the_same_in_a_replay(
    runner: QueryRunner, flights: str, planner: str
) -> None:
    runner.server.put_many(flights, numbered(0, 200))
    options = FROM_THE_START | {"includeMetadata": "true", "kinesis.spark.planner": planner}
    batch_id, before = runner.run_into_a_failure(**options)
    with runner.run(**options) as running:
        running.wait_for_rows(200)

    assert by_place(running.batches[batch_id]) == by_place(before)
    assert sorted(numbers(running.rows)) == list(range(200))
    for row in running.rows:
        assert (row.subSequenceNumber, row.explicitHashKey) == (None, None)
        assert row.encryptionType == "NONE"


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
