"""Throughput and throttles, on a service that keeps the limits of AWS on writing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from kinesis_publishers import KinesisProducer
from kinesis_publishers.events import RecordsPut, RecordsRefused
from kinesis_publishers.testing.local_kinesis import Fault, Limits, LocalKinesis
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.producing.producing_support import STREAM, Writing

_SECONDS = 20
_MIB = 1024 * 1024


@pytest.fixture
def limited() -> Writing:
    """A stream of two shards that take 1,000 records and 1 MiB a second."""
    clock = ManualClock()
    server = LocalKinesis(Limits.aws(writes=True), clock)
    server.create_stream(STREAM, 2)
    return Writing(server, clock)


async def _put_for(
    writing: Writing, producers: list[KinesisProducer], size: int, seconds: float
) -> None:
    """Put more than the stream takes, for some seconds."""

    async def put(producer: KinesisProducer) -> None:
        while True:
            await producer.put_many([(bytes(size), None) for _ in range(500)])

    putting = [asyncio.ensure_future(put(one)) for one in producers]
    await writing.clock.advance(seconds)
    for one in putting:
        one.cancel()
    await asyncio.wait(putting)


def _throttled_share(writing: Writing) -> float:
    refused = writing.total(RecordsRefused, "entries")
    return refused / (refused + writing.total(RecordsPut, "entries"))


@pytest.mark.parametrize("aggregation", [False, True])
async def test_keys_count_with_their_bytes(limited: Writing, aggregation: bool) -> None:
    """Of three bytes a character they are most of these records."""
    keys = ["\N{CJK UNIFIED IDEOGRAPH-6587}" * 250 + f"{n:06d}" for n in range(6_000)]
    options = {"aggregation": aggregation, "batch_maxbytes": 300_000}
    async with limited.producer(**options) as producer:
        future = await limited.run(producer.put_many([(b"x", key) for key in keys]))
        await limited.result(future)
        assert producer.pending_bytes == 0
    assert limited.total(RecordsRefused, "entries") == 0
    sizes = [one.entry_bytes for one in limited.events if type(one) is RecordsPut]
    stored = limited.stored()
    assert sum(sizes) == sum(len(one.data) + len(one.partition_key.encode()) for one in stored)


@pytest.mark.parametrize(
    ("size", "options"),
    [
        (10, {}),
        (200_000, {}),
        (200, {"aggregation": True}),
        (100, {"ordering": "key"}),
    ],
)
async def test_a_stream_is_used_up_and_does_not_throttle(
    limited: Writing, size: int, options: dict[str, object]
) -> None:
    async with limited.producer(buffer_maxrecords=2_000, **options) as producer:
        await _put_for(limited, [producer], size, _SECONDS)
        written = limited.total(RecordsPut, "entry_bytes")
        entries = limited.total(RecordsPut, "entries")
    # Two shards; the keys are random, so that one may have to wait for the other a little.
    used = max(entries / 2_000, written / (2 * _MIB)) / _SECONDS
    assert used >= 0.9
    assert _throttled_share(limited) <= 0.01


async def test_a_higher_rate_is_throttled_and_adapts(limited: Writing) -> None:
    async with limited.producer(ratelimit=300, buffer_maxrecords=2_000) as producer:
        await _put_for(limited, [producer], 10, _SECONDS)
        entries = limited.total(RecordsPut, "entries")
    assert entries / 2_000 / _SECONDS >= 0.6
    assert 0 < _throttled_share(limited) < 0.3


async def test_producers_that_share_a_stream_get_equal_shares(limited: Writing) -> None:
    both = [limited, Writing(limited.server, limited.clock)]
    async with AsyncExitStack() as opened:
        producers = [
            await opened.enter_async_context(one.producer(buffer_maxrecords=2_000)) for one in both
        ]
        # The second one begins later, when the first one has everything.
        await _put_for(limited, producers[:1], 10, 5)
        for one in both:
            one.events.clear()
        await _put_for(limited, producers, 10, 3 * _SECONDS)
        shares = [one.total(RecordsPut, "entries") / 2_000 / (3 * _SECONDS) for one in both]
        refused = sum(one.total(RecordsRefused, "entries") for one in both)
    assert sum(shares) >= 0.75
    assert min(shares) >= 0.25
    assert refused <= 0.05 * sum(shares) * 2_000 * 3 * _SECONDS


async def test_shards_that_throttle_cost_the_others_nothing() -> None:
    clock = ManualClock()
    server = LocalKinesis(Limits.aws(writes=True), clock)
    server.create_stream(STREAM, 4)
    writing = Writing(server, clock)
    shard_ids = list(server.records(STREAM))

    async def throughput() -> float:
        """Return what the last two shards take, while each shard has a caller of its own."""
        writing.events.clear()
        options = {"buffer_maxrecords": 4_000, "recordttlmillis": "1h"}
        async with writing.producer(**options) as producer:

            async def put(hash_key: str) -> None:
                while True:
                    await producer.put_many([(bytes(10), "k", hash_key) for _ in range(100)])

            putting = [
                asyncio.ensure_future(put(str(number * 2**126))) for number in range(len(shard_ids))
            ]
            await clock.advance(_SECONDS)
            for one in putting:
                one.cancel()
            await asyncio.wait(putting)
            server.clear_faults()
            events = [one for one in writing.events if isinstance(one, RecordsPut)]
        return sum(one.entries for one in events if one.shard.shard_id in shard_ids[2:]) / _SECONDS

    usual = await throughput()
    assert usual >= 1_900
    for shard_id in shard_ids[:2]:
        server.add_fault(Fault("PutRecords", "throttle", shard_id=shard_id, times=None))
    assert await throughput() >= 0.95 * usual
