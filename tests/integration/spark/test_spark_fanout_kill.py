"""A driver that reads by enhanced fan-out is killed as a whole; its guard is left to clean up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.spark.consumers import StreamConsumer, eventually, guards_below
from tests.integration.spark.drivers import Driver, read_files
from tests.integration.spark.processes import wait_until_gone
from tests.integration.spark.spark_harness import FROM_THE_START, numbered

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(400)]

_DEADLINE_SECONDS = 180.0


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
