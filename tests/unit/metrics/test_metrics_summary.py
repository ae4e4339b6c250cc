"""The summary in the log: what a line says, and when."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers.events import (
    BackpressureBegan,
    BackpressureEnded,
    LagMeasured,
    QueryLagMeasured,
)
from kinesis_publishers.metrics.summary import SummaryLog
from tests.unit.metrics.metric_support import (
    ONE,
    POOL,
    PROCESSED,
    RETRIED,
    ZERO,
    ended,
    fetched,
    resubscribed,
    started,
)

if TYPE_CHECKING:
    from kinesis_publishers.testing.manual_clock import ManualClock


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "kinesis_publishers.metrics.summary")
    return caplog


async def test_a_line_says_how_fast_a_stream_is_and_how_far_behind(
    manual_clock: ManualClock, messages: pytest.LogCaptureFixture
) -> None:
    async with SummaryLog(10.0, manual_clock) as summary:
        for _ in range(4):
            summary(evolve(PROCESSED, records=1_000, payload_bytes=10_000_000))
        summary(fetched(shard=ZERO, millis_behind_latest=100))
        # What waits in the application counts, although the answers are at the tip.
        summary(LagMeasured(shard=ONE, seconds=1.5))
        summary(fetched(shard=ONE, millis_behind_latest=0))
        for event in (resubscribed(), RETRIED, BackpressureEnded(shard=ONE, seconds=2.5), POOL):
            summary(event)
        await manual_clock.advance(10.0)
        waiting = "waiting for room; 2 shards, 1.5 s behind at most (shardId-000000000001)"
        assert messages.messages == [
            f"orders: 400.0 records/s, 4.00 MB/s, 1 retries, 1 resubscribes, 2.5 s {waiting}",
        ]


async def test_each_line_is_about_the_time_since_the_last_one(
    manual_clock: ManualClock, messages: pytest.LogCaptureFixture
) -> None:
    async with SummaryLog(10.0, manual_clock) as summary:
        summary(PROCESSED)
        await manual_clock.advance(10.0)
        await manual_clock.advance(5.0)
    assert [line.split(",")[0] for line in messages.messages] == [
        "orders: 4.5 records/s",
        "orders: 0.0 records/s",
    ]


async def test_a_summary_can_be_written_again_after_its_end(
    manual_clock: ManualClock, messages: pytest.LogCaptureFixture
) -> None:
    summary = SummaryLog(10.0, manual_clock)
    for _ in range(2):
        async with summary:
            summary(PROCESSED)
            await manual_clock.advance(10.0)
    assert [line.split(",")[0] for line in messages.messages] == ["orders: 4.5 records/s"] * 2


async def test_a_shard_that_has_ended_is_not_behind(
    manual_clock: ManualClock, messages: pytest.LogCaptureFixture
) -> None:
    async with SummaryLog(10.0, manual_clock) as summary:
        summary(fetched(millis_behind_latest=1_500))
        summary(ended())
        await manual_clock.advance(10.0)
        assert messages.messages[0].endswith("; no shard is being read")


def after_the_rates(line: str) -> str:
    return line.partition("resubscribes, ")[2]


async def test_a_shard_that_stands_still_does_not_look_like_one_that_is_idle(
    manual_clock: ManualClock, messages: pytest.LogCaptureFixture
) -> None:
    async with SummaryLog(10.0, manual_clock) as summary:
        summary(fetched(shard=ZERO, millis_behind_latest=0))
        await manual_clock.advance(4.0)
        summary(fetched(shard=ONE, millis_behind_latest=0))
        summary(BackpressureBegan(shard=ZERO, records=1, payload_bytes=1))
        await manual_clock.advance(6.0)
        summary(fetched(shard=ONE, millis_behind_latest=0))
        await manual_clock.advance(10.0)
        summary(fetched(shard=ONE, millis_behind_latest=0))
        await manual_clock.advance(5.0)
        summary(BackpressureEnded(shard=ZERO, seconds=21.0))
        summary(fetched(shard=ZERO, millis_behind_latest=25_000))
        await manual_clock.advance(5.0)
        lag = "waiting for room; 2 shards, 0.0 s behind at most (shardId-000000000000)"
        assert [after_the_rates(line) for line in messages.messages] == [
            f"6.0 s {lag}",
            f"10.0 s {lag}, no answer for 20.0 s at most (shardId-000000000000)",
            f"5.0 s {lag.replace('0.0 s', '25.0 s')}",
        ]


async def test_a_shard_that_has_never_answered_is_told_of(
    manual_clock: ManualClock, messages: pytest.LogCaptureFixture
) -> None:
    async with SummaryLog(10.0, manual_clock) as summary:
        summary(started(ONE))
        await manual_clock.advance(10.0)
        await manual_clock.advance(10.0)
        assert [line.partition("; ")[2] for line in messages.messages] == [
            "1 shards",
            "1 shards, no answer for 20.0 s at most (shardId-000000000001)",
        ]


async def test_before_anything_is_read_there_is_nothing_to_say(
    manual_clock: ManualClock, messages: pytest.LogCaptureFixture
) -> None:
    async with SummaryLog(10.0, manual_clock) as summary:
        summary(POOL)
        lag = {"seconds": 1.0, "millis_behind_latest": 1}
        summary(QueryLagMeasured(shard=ZERO, query="totals", **lag))
        await manual_clock.advance(30.0)
    assert messages.messages == []
