"""Events to measure, with numbers that are easy to recognise."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kinesis_publishers import Event, ShardKey, StartingPosition
from kinesis_publishers.events import (
    CallRetried,
    EventReceived,
    PoolUsed,
    RecordsFetched,
    RecordsProcessed,
    ShardEnded,
    ShardStarted,
    SubscriptionStarted,
)
from kinesis_publishers.testing.fakes import STREAM_ARN, sample_shard

__all__ = [
    "ARN",
    "FETCHED",
    "ONE",
    "POOL",
    "PROCESSED",
    "RECEIVED",
    "RETRIED",
    "ZERO",
    "ended",
    "fetched",
    "resubscribed",
    "started",
]

ARN = STREAM_ARN
ZERO, ONE = sample_shard(0).key, sample_shard(1).key
FETCHED = RecordsFetched(
    shard=ZERO,
    records=50,
    payload_bytes=5_000,
    millis_behind_latest=700,
    limit=2_000,
    loop_seconds=0.25,
    sleep_seconds=0.125,
    call_seconds=0.5,
)
RECEIVED = EventReceived(shard=ZERO, records=4, payload_bytes=80, millis_behind_latest=30)
PROCESSED = RecordsProcessed(shard=ZERO, records=45, payload_bytes=4_500, seconds=2.0)
POOL = PoolUsed(records=7, payload_bytes=70, max_records=100, max_bytes=1_000, waiters=3)
RETRIED = CallRetried(
    operation="GetRecords",
    code="InternalFailure",
    attempt=1,
    delay_seconds=1.0,
    message="",
    shard=ZERO,
)


def fetched(**changes: Any) -> Event:
    """Return :data:`FETCHED` with ``changes``."""
    return evolve(FETCHED, **changes)


def started(shard: ShardKey = ZERO) -> Event:
    return ShardStarted(shard=shard, position=StartingPosition.trim_horizon())


def ended(shard: ShardKey = ZERO) -> Event:
    return ShardEnded(shard=shard)


def resubscribed(*, is_reopened: bool = True) -> Event:
    return SubscriptionStarted(
        shard=ZERO,
        position=StartingPosition.trim_horizon(),
        consumer_arn=f"{ARN}/consumer/reports:1",
        is_reopened=is_reopened,
    )
