"""Ranges against a local server: one subscription for each, and bounded memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.readers.range_reader import KinesisRangeReader
from kinesis_publishers.testing.local_kinesis import Fault, Limits, LocalKinesis
from tests.integration.framework.range_reading import (
    STREAM,
    CollectingSink,
    StoredStream,
    fan_out_properties,
    polling_properties,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_publishers import ShardRange

CONSUMER = "reports"
MIB = 1024 * 1024
LARGE = 1024 * MIB


@pytest.fixture(scope="module")
def server() -> Iterator[LocalKinesis]:
    """A server without rates, except that a subscription cannot be taken over within seconds."""
    with LocalKinesis.in_thread(Limits.off()) as server:
        yield server


@pytest.fixture
def stream(server: LocalKinesis) -> StoredStream:
    """Three shards with 600 records of 50 KB: several events and pages each."""
    server.reset()
    server.limits = Limits.off()
    server.create_stream(STREAM, 3)
    server.put_many(STREAM, [(f"key-{n}", str(n).encode().ljust(50_000)) for n in range(600)])
    return StoredStream.of(server)


async def read(
    properties: dict[str, str], ranges: list[ShardRange], sink: CollectingSink | None = None
) -> CollectingSink:
    """Read ranges that are worth a subscription."""
    sink = sink or CollectingSink()
    async with KinesisRangeReader.from_properties(properties) as reader, asyncio.timeout(60):
        await reader.read(ranges, sink, expected_bytes=LARGE)
    return sink


async def test_whole_shards_are_read_by_one_subscription_each(
    server: LocalKinesis, stream: StoredStream
):
    arn = server.register_consumer(STREAM, CONSUMER)
    sink = await read(fan_out_properties(server, arn), stream.whole())
    assert sink.rows == stream.rows()
    assert len(server.calls("SubscribeToShard")) == 3
    assert server.calls("GetRecords") == []
    assert server.calls("RegisterStreamConsumer") == []


@pytest.mark.parametrize(
    "fault",
    [
        Fault("SubscribeToShard", "error", code="ResourceInUseException", times=None),
        Fault("SubscribeToShard", "reset_mid_event", times=None),
        Fault("SubscribeToShard", "bad_crc", times=None),
        Fault("SubscribeToShard", "end", after_events=1, times=None),
        Fault("SubscribeToShard", "reset", after_events=2, times=None),
    ],
    ids=lambda fault: fault.kind,
)
async def test_what_a_subscription_does_not_bring_is_polled(
    server: LocalKinesis, stream: StoredStream, fault: Fault
):
    arn = server.register_consumer(STREAM, CONSUMER)
    server.add_fault(fault)
    sink = await read(fan_out_properties(server, arn), stream.whole())
    assert sink.rows == stream.rows()
    assert len(server.calls("SubscribeToShard")) == 3


async def test_two_copies_of_a_task_both_complete_and_neither_subscribes_twice(
    server: LocalKinesis, stream: StoredStream
):
    # A rate makes the subscriptions last until the other copy has come.
    server.limits = Limits.aws()
    arn = server.register_consumer(STREAM, CONSUMER)
    properties = fan_out_properties(server, arn)
    one, other = await asyncio.gather(
        read(properties, stream.whole()), read(properties, stream.whole())
    )
    assert one.rows == other.rows == stream.rows()
    assert len(server.calls("SubscribeToShard")) == 6


async def test_memory_is_bounded_while_the_consumer_is_slow(
    server: LocalKinesis, stream: StoredStream
):
    sink = CollectingSink(held_seconds=0.01)
    properties = polling_properties(
        server, pending_maxbytes=str(4 * MIB), shard_getrecords_maxrecordcount="20"
    )
    await read(properties, stream.whole(), sink)
    assert sink.rows == stream.rows()
    assert sink.most_held_bytes <= 4 * MIB
