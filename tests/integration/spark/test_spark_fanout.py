"""Enhanced fan-out in Spark: the same rows, and consumers that are registered and removed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from pyspark.errors import AnalysisException, StreamingQueryException

from kinesis_publishers.testing.local_kinesis import Fault
from tests.integration.spark.consumers import StreamConsumer, eventually, guards_below
from tests.integration.spark.drivers import Driver, read_files
from tests.integration.spark.processes import (
    command_line,
    descendants,
    source_processes,
    wait_until_gone,
)
from tests.integration.spark.spark_harness import (
    FROM_THE_START,
    assert_in_order_per_key,
    numbered,
    numbers,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from tests.integration.spark.spark_harness import QueryRunner

_DEADLINE_SECONDS = 180.0
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
    assert runner.server.calls("SubscribeToShard")
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


@pytest.mark.long
def test_the_consumer_of_a_driver_that_is_killed_is_removed(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    output.mkdir()
    local_kinesis.create_stream("payments", 2)
    local_kinesis.put_many("payments", numbered(0, 500))
    consumer = StreamConsumer(local_kinesis, "payments")
    properties = {
        **local_kinesis.properties("payments"),
        **FROM_THE_START,
        **consumer.options,
        "kinesis.stream.efo.registration": "EAGER",
    }
    driver = Driver(properties, tmp_path / "checkpoint", output)
    try:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while len(read_files(output)) < 500:
            driver.wait(0.1)
            assert time.monotonic() < deadline, driver.said
        guards = guards_below(driver.pid)
        assert len(guards) == 1
        assert consumer.is_there
    finally:
        driver.kill()
    eventually(
        lambda: local_kinesis.open_subscriptions("payments") == 0, "the end of the subscriptions"
    )
    consumer.wait_until_gone()
    wait_until_gone(guards)
    assert consumer.calls()["RegisterStreamConsumer"] == 1
    assert consumer.calls()["DeregisterStreamConsumer"] == 1
    assert sorted(int(data) for *_, data in read_files(output)) == list(range(500))
