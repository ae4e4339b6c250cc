"""Finding streams and shards, with retries."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers.config import DiscoveryConfig
from kinesis_publishers.engine.discovery import ShardDiscovery
from kinesis_publishers.errors import (
    AccessDeniedError,
    InternalServiceError,
    RetriesExhaustedError,
    StreamNotFoundError,
)
from kinesis_publishers.retry import RetryPolicy
from kinesis_publishers.testing.fakes import (
    STREAM_ARN,
    FakeControlPlane,
    FakeStream,
    finish,
    sample_shard,
)

if TYPE_CHECKING:
    from kinesis_publishers.testing.manual_clock import ManualClock

POLICY = RetryPolicy(max_retries=3, base_seconds=0.3, max_seconds=1.0, exponent=1.5)
CONFIG = DiscoveryConfig(interval_seconds=10.0, list_shards_retry=POLICY, describe_retry=POLICY)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FAILURE = InternalServiceError("failed", operation="ListShards", code="InternalFailure")


@pytest.mark.parametrize("selector", ["orders", STREAM_ARN])
async def test_a_stream_is_found_by_name_and_by_arn(selector: str, manual_clock: ManualClock):
    discovery = ShardDiscovery(FakeControlPlane(FakeStream()), CONFIG, manual_clock)
    summary = await discovery.describe(selector)
    assert (summary.identity.name, summary.identity.arn) == ("orders", STREAM_ARN)


async def test_a_stream_that_is_being_created_is_waited_for(manual_clock: ManualClock):
    class CreatedLater(FakeControlPlane):
        async def describe_stream(self, stream: str):
            self.streams[0].status = "CREATING" if len(self.calls) < 2 else "ACTIVE"
            return await super().describe_stream(stream)

    plane = CreatedLater(FakeStream())
    discovery = ShardDiscovery(plane, CONFIG, manual_clock)
    summary = await finish(discovery.describe("orders"), manual_clock)
    assert summary.status == "ACTIVE"
    assert len(plane.describe_calls) == 3


async def test_a_stream_that_is_never_ready_is_an_error(manual_clock: ManualClock):
    discovery = ShardDiscovery(
        FakeControlPlane(FakeStream(status="CREATING")), CONFIG, manual_clock
    )
    with pytest.raises(RetriesExhaustedError, match="orders is still being created"):
        await finish(discovery.describe("orders"), manual_clock)


async def test_a_stream_that_is_being_deleted_does_not_exist(manual_clock: ManualClock):
    discovery = ShardDiscovery(
        FakeControlPlane(FakeStream(status="DELETING")), CONFIG, manual_clock
    )
    with pytest.raises(StreamNotFoundError, match="orders is being deleted"):
        await discovery.describe("orders")


@pytest.mark.parametrize("status", ["ACTIVE", "UPDATING"])
async def test_a_stream_can_be_read_while_it_is_changed(status: str, manual_clock: ManualClock):
    discovery = ShardDiscovery(FakeControlPlane(FakeStream(status=status)), CONFIG, manual_clock)
    assert (await discovery.describe("orders")).status == status


async def test_many_questions_at_once_share_a_description_that_is_newer_than_each_of_them(
    manual_clock: ManualClock,
):
    stream = FakeStream(retention_seconds=7 * 86_400.0)
    plane = FakeControlPlane(stream)
    discovery = ShardDiscovery(plane, CONFIG, manual_clock)
    assert (await discovery.describe_now(STREAM_ARN)).retention_seconds == 7 * 86_400.0
    stream.retention_seconds = 86_400.0
    later = [asyncio.create_task(discovery.describe_now(STREAM_ARN)) for _ in range(100)]
    await manual_clock.advance(1.0)
    assert {(await one).retention_seconds for one in later} == {86_400.0}
    assert len(plane.describe_calls) == 2


async def test_a_listing_that_fails_is_repeated(manual_clock: ManualClock):
    plane = FakeControlPlane(FakeStream([sample_shard(0)]), errors=[FAILURE, FAILURE])
    discovery = ShardDiscovery(plane, CONFIG, manual_clock)
    listed = await finish(discovery.list_shards(STREAM_ARN, since=NOW), manual_clock)
    assert listed == (sample_shard(0),)
    assert [call.since for call in plane.list_calls] == [NOW] * 3


async def test_a_shard_is_looked_for_in_the_listing_with_retries(manual_clock: ManualClock):
    plane = FakeControlPlane(FakeStream([sample_shard(1)]), errors=[FAILURE])
    discovery = ShardDiscovery(plane, CONFIG, manual_clock)
    assert await finish(discovery.has_shard(sample_shard(1)), manual_clock)
    assert not await discovery.has_shard(sample_shard(0))


async def test_a_shard_that_is_newer_than_the_listing_is_not_taken_for_one_that_is_gone(
    manual_clock: ManualClock,
):
    plane = FakeControlPlane(FakeStream([sample_shard(1)]))
    assert await ShardDiscovery(plane, CONFIG, manual_clock).has_shard(sample_shard(2))


async def test_a_shard_of_a_stream_that_does_not_exist_is_an_error(manual_clock: ManualClock):
    discovery = ShardDiscovery(FakeControlPlane(), CONFIG, manual_clock)
    with pytest.raises(StreamNotFoundError):
        await discovery.has_shard(sample_shard(0))


async def test_a_listing_that_is_not_allowed_fails_at_once(manual_clock: ManualClock):
    denied = AccessDeniedError("no", operation="ListShards", code="AccessDenied")
    plane = FakeControlPlane(FakeStream(), errors=[denied])
    with pytest.raises(AccessDeniedError):
        await ShardDiscovery(plane, CONFIG, manual_clock).list_shards(STREAM_ARN)
    assert manual_clock.sleeps == []


async def test_which_shards_a_listing_has_shown_as_closed_is_known_without_asking_again(
    manual_clock: ManualClock,
):
    stream = FakeStream([sample_shard(0), sample_shard(1)])
    plane = FakeControlPlane(stream)
    discovery = ShardDiscovery(plane, CONFIG, manual_clock)
    await discovery.list_shards(STREAM_ARN)
    assert not discovery.has_shown_closed(sample_shard(0))
    stream.close(sample_shard(0).shard_id)
    await discovery.list_shards(STREAM_ARN)
    shown = [discovery.has_shown_closed(sample_shard(number)) for number in range(2)]
    assert (shown, len(plane.list_calls)) == ([True, False], 2)


MISSING = StreamNotFoundError("not found", operation="ListShards")


async def test_a_stream_that_was_there_is_missing_when_it_is_said_over_seconds(
    manual_clock: ManualClock,
):
    plane = FakeControlPlane(FakeStream([sample_shard(0)]), errors=[None, MISSING, MISSING])
    discovery = ShardDiscovery(plane, CONFIG, manual_clock)
    await discovery.describe("orders")
    assert await finish(discovery.list_shards(STREAM_ARN), manual_clock) == (sample_shard(0),)
    plane.streams.clear()
    with pytest.raises(StreamNotFoundError):
        await finish(discovery.list_shards(STREAM_ARN), manual_clock)
    assert manual_clock.sleeps == [0.5, 1.0, 0.5, 1.0, 2.0]


async def test_a_stream_that_was_never_there_is_missing_at_once(manual_clock: ManualClock):
    with pytest.raises(StreamNotFoundError):
        await ShardDiscovery(FakeControlPlane(), CONFIG, manual_clock).describe("orders")
    assert manual_clock.sleeps == []


async def test_an_endpoint_that_never_answers_is_given_up_soon(manual_clock: ManualClock):
    patient = evolve(POLICY, outage_seconds=300.0, start_seconds=30.0)
    config = evolve(CONFIG, describe_retry=patient, list_shards_retry=patient)
    plane = FakeControlPlane(FakeStream([sample_shard(0)]), errors=[FAILURE] * 9999)
    discovery = ShardDiscovery(plane, config, manual_clock)
    with pytest.raises(RetriesExhaustedError, match=r"aws\.region, aws\.endpoint"):
        await finish(discovery.describe("orders"), manual_clock)
    assert manual_clock.monotonic() < 35
    # Once it has answered, an outage may last.
    plane.errors = [None] + [FAILURE] * 200
    await discovery.describe("orders")
    assert await finish(discovery.list_shards(STREAM_ARN), manual_clock)
