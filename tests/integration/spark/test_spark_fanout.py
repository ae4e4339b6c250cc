"""Enhanced fan-out in Spark: the same rows, and consumers that are registered and removed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from pyspark.errors import AnalysisException, StreamingQueryException

from kinesis_publishers.testing.local_kinesis import Fault
from tests.integration.spark.consumers import StreamConsumer, eventually, guards_below
from tests.integration.spark.processes import (
    command_line,
    descendants,
    source_processes,
    wait_until_gone,
)
from tests.integration.spark.spark_harness import (
    FROM_THE_START,
    RunningQuery,
    assert_in_order_per_key,
    by_place,
    numbered,
    numbers,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.spark.spark_harness import QueryRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def consumer(runner: QueryRunner, flights: str) -> StreamConsumer:
    return StreamConsumer(runner.server, flights)


def test_one_subscription_per_shard_serves_a_query_which_leaves_nothing_behind(
    runner: QueryRunner, flights: str, consumer: StreamConsumer
) -> None:
    runner.server.put_many(flights, numbered(0, 1000))
    with runner.run(**FROM_THE_START, **consumer.options) as running:
        for count in range(1000, 1500, 50):
            running.wait_for_rows(count)
            runner.server.put_many(flights, numbered(count, count + 50))
        running.wait_for_rows(1500)
        assert consumer.is_there
        ours = guards_below(os.getpid())
        assert len(ours) == 1
        open_now = runner.server.open_subscriptions(flights)
    assert open_now == 4
    assert sorted(numbers(running.rows)) == list(range(1500))
    assert_in_order_per_key(running.rows)
    assert len(runner.server.calls("SubscribeToShard")) == 4
    assert runner.server.calls("GetRecords") == []
    eventually(
        lambda: runner.server.open_subscriptions(flights) == 0,
        "the end of the subscriptions",
        seconds=10.0,
    )
    consumer.wait_until_gone()
    wait_until_gone(ours)
    assert consumer.calls()["RegisterStreamConsumer"] == 1


@pytest.mark.long
def test_each_record_is_there_once_although_a_batch_failed_and_the_publisher_changes_twice(
    runner: QueryRunner, flights: str, consumer: StreamConsumer
) -> None:
    runner.server.put_many(flights, numbered(0, 400))
    batch_id, before = runner.run_into_a_failure(**FROM_THE_START)
    running = RunningQuery()
    put = 400
    for settings in (consumer.options, {}):
        runner.server.put_many(flights, numbered(put, put + 300))
        put += 300
        with runner.run(earlier=running, **FROM_THE_START, **settings) as running:
            running.wait_for_rows(put)
    assert by_place(running.batches[batch_id]) == by_place(before)
    assert sorted(numbers(running.rows)) == list(range(put))
    assert_in_order_per_key(running.rows)


@pytest.mark.long
def test_eager_registers_once_at_load_and_the_reader_only_if_the_consumer_is_deleted(
    runner: QueryRunner, flights: str, consumer: StreamConsumer
) -> None:
    eager = {**FROM_THE_START, **consumer.options, "kinesis.stream.efo.registration": "EAGER"}
    options = {**runner.server.properties(flights), **eager}
    frame = runner.spark.readStream.format("kinesis").options(**options).load()
    assert consumer.is_there
    at_load = consumer.calls()
    assert at_load["RegisterStreamConsumer"] == 1
    runner.server.put_many(flights, numbered(0, 100))
    with runner.run_frame(frame) as running:
        running.wait_for_rows(100)
        assert consumer.calls() == at_load
        # When it is deleted, the reader does register, and nothing is lost.
        runner.server.deregister_consumer(flights, consumer.name)
        runner.server.put_many(flights, numbered(100, 200))
        running.wait_for_rows(200)
        assert consumer.calls()["RegisterStreamConsumer"] == 2
    consumer.wait_until_gone()
    assert sorted(numbers(running.rows)) == list(range(200))
    assert_in_order_per_key(running.rows)


def test_none_takes_the_arns_from_options_whose_keys_spark_lower_cases(
    runner: QueryRunner,
) -> None:
    runner.server.create_stream("Flights.Of-Today", 2)
    consumer = StreamConsumer(runner.server, "Flights.Of-Today")
    arn = runner.server.register_consumer(consumer.stream, consumer.name)
    before = consumer.calls()
    runner.server.put_many("Flights.Of-Today", numbered(0, 100))
    with runner.run(
        "Flights.Of-Today",
        **FROM_THE_START,
        **{
            "kinesis.stream.recordpublisher": "EFO",
            "kinesis.stream.efo.registration": "NONE",
            "kinesis.stream.efo.consumerarn.Flights.Of-Today": arn,
        },
    ) as running:
        running.wait_for_rows(100)
    assert sorted(numbers(running.rows)) == list(range(100))
    assert consumer.calls() == before
    assert consumer.is_there


@pytest.mark.long
def test_the_last_of_two_queries_removes_their_consumer_although_its_reader_is_killed(
    runner: QueryRunner, flights: str, consumer: StreamConsumer, tmp_path: Path
) -> None:
    options = {**FROM_THE_START, **consumer.options}
    other = evolve(runner, checkpoint=tmp_path / "other")
    runner.server.put_many(flights, numbered(0, 100))
    with runner.run(**options) as first:
        first.wait_for_rows(100)
        (guard_of_first,) = guards_below(os.getpid())
        with other.run(**options) as second:
            # When it plans, its guard has told that it keeps the consumer.
            second.wait_until(lambda: bool(second.batches))
            assert len(guards_below(os.getpid())) == 2
            first.stop()
            wait_until_gone([guard_of_first])
            assert consumer.is_there
            assert consumer.calls()["DeregisterStreamConsumer"] == 0
            second.wait_for_rows(100)
            (reader,) = source_processes()
            reader.kill()
            runner.server.put_many(flights, numbered(100, 200))
            with pytest.raises(StreamingQueryException):
                second.wait_for_rows(200)
    # The processes that run tasks live on: they must not hold the pipe to the guard.
    assert any("pyspark.daemon" in command_line(one) for one in descendants(os.getpid()))
    consumer.wait_until_gone()
    assert consumer.calls()["RegisterStreamConsumer"] == 1
    assert consumer.calls()["DeregisterStreamConsumer"] == 1


def test_what_cannot_be_registered_eagerly_is_said_at_load(
    runner: QueryRunner, flights: str, consumer: StreamConsumer
) -> None:
    runner.server.add_fault(
        Fault("RegisterStreamConsumer", "error", code="AccessDeniedException", times=None)
    )
    eager = {**consumer.options, "kinesis.stream.efo.registration": "EAGER"}
    options = {**runner.server.properties(flights), **eager}
    with pytest.raises(AnalysisException, match="kinesis:RegisterStreamConsumer"):
        runner.spark.readStream.format("kinesis").options(**options).load()
