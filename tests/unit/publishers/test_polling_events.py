"""What polling reports about each answer, and about the calls that got none."""

from __future__ import annotations

import pytest

from kinesis_publishers.events import CallRetried, RecordsFetched, Throttled
from kinesis_publishers.testing.fakes import (
    RecordingConsumer,
    StoredShard,
    empty_shard,
    sample_shard,
    throttled,
)
from tests.unit.publishers.polling_support import Polling

SHARD = sample_shard().key


async def test_an_answer_is_reported_with_the_sleep_before_it_and_the_time_that_it_took() -> None:
    class SlowShard(StoredShard):
        async def read(self, index: int, limit: int):
            await polling.clock.sleep(0.05)
            return await super().read(index, limit)

    polling = Polling.of(SlowShard())
    await polling.run(RecordingConsumer(), times=2)
    first, second = polling.events_of(RecordsFetched)
    assert (first.loop_seconds, first.sleep_seconds) == (None, 0.0)
    assert first.call_seconds == pytest.approx(0.05)
    assert second.loop_seconds == pytest.approx(0.2)
    assert second.sleep_seconds == pytest.approx(0.15)


async def test_the_sleep_of_an_answer_includes_the_backing_off_before_it() -> None:
    polling = Polling.of(throttled(2))
    await polling.run(RecordingConsumer())
    (fetched,) = polling.events_of(RecordsFetched)
    assert fetched.sleep_seconds == pytest.approx(sum(polling.clock.sleeps))
    assert len(polling.clock.sleeps) == 2


async def test_the_sleep_of_an_answer_is_not_counted_again() -> None:
    polling = Polling.of(empty_shard(9))
    await polling.run(RecordingConsumer(), times=3)
    assert polling.events_of(RecordsFetched)[-1].sleep_seconds == pytest.approx(0.2)


async def test_a_throttle_is_reported_as_such_and_as_a_repetition() -> None:
    polling = Polling.of(throttled(2))
    await polling.run(RecordingConsumer())
    assert polling.events_of(Throttled) == [Throttled(shard=SHARD, operation="GetRecords")] * 2
    retried = polling.events_of(CallRetried)
    assert [(one.operation, one.attempt, one.shard) for one in retried] == [
        ("GetRecords", 1, SHARD),
        ("GetRecords", 2, SHARD),
    ]
    assert {one.code for one in retried} == {"ProvisionedThroughputExceededException"}
