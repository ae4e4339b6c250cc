"""The fakes fail a test that they should fail, and are otherwise what their names say."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import StartingPosition
from kinesis_publishers.errors import IteratorExpiredError
from kinesis_publishers.testing.fakes import (
    FakeDataPlane,
    ScriptedPublisherFactory,
    ScriptedRun,
    StoredShard,
    assert_shard_is_read,
    batch_of,
    empty_shard,
    expired_iterator_after,
    finish,
    records_in_calls,
    sample_records,
    sample_shard,
)

if TYPE_CHECKING:
    from kinesis_publishers.testing.manual_clock import ManualClock

SHARD = sample_shard()
TRIM_HORIZON = StartingPosition.trim_horizon()
RECORDS = sample_records(6)


async def test_an_expired_iterator_that_is_used_again_fails_the_test():
    plane = expired_iterator_after(0)
    iterator = await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
    with pytest.raises(IteratorExpiredError):
        await plane.get_records(SHARD, iterator, 10)
    with pytest.raises(AssertionError, match="without a new iterator"):
        await plane.get_records(SHARD, iterator, 10)


async def test_an_iterator_that_was_not_handed_out_fails_the_test():
    with pytest.raises(AssertionError, match="never handed out"):
        await empty_shard(1).get_records(SHARD, "made up", 10)


async def test_an_iterator_of_another_shard_fails_the_test():
    plane = empty_shard(1)
    iterator = await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
    with pytest.raises(AssertionError, match="belongs to orders/shardId-000000000000"):
        await plane.get_records(sample_shard(1), iterator, 10)


@pytest.mark.parametrize("limit", [0, 10_001])
async def test_a_limit_that_the_service_refuses_fails_the_test(limit: int):
    plane = empty_shard(1)
    iterator = await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
    with pytest.raises(AssertionError, match="Limit"):
        await plane.get_records(SHARD, iterator, limit)


async def test_a_call_for_a_shard_without_a_script_fails_the_test():
    plane = FakeDataPlane({SHARD.shard_id: StoredShard()})
    with pytest.raises(AssertionError, match="no test expected a call"):
        await plane.get_shard_iterator(sample_shard(1), TRIM_HORIZON)


def test_more_calls_than_records_are_refused():
    with pytest.raises(ValueError, match="2 records cannot come in 3 answers"):
        records_in_calls(2, 3)


async def test_what_takes_too_long_fails_the_test(manual_clock: ManualClock):
    with pytest.raises(AssertionError, match="not finished after 5 s"):
        await finish(asyncio.Event().wait(), manual_clock, within=5)


@pytest.mark.parametrize(
    "delivered",
    [RECORDS[:5], [*RECORDS[:3], *RECORDS[4:]], [*RECORDS, *sample_records(1, first=6)]],
    ids=["last missing", "gap", "one too many"],
)
async def test_a_publisher_that_delivers_something_else_fails_the_contract(
    delivered: list, manual_clock: ManualClock
):
    factory = ScriptedPublisherFactory([ScriptedRun(batches=[batch_of(delivered)])])
    with pytest.raises(AssertionError):
        await assert_shard_is_read(factory, RECORDS, clock=manual_clock)
