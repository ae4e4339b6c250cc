"""What ``put``, ``put_many``, ``flush`` and ``close`` do when all goes well."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import UserRecord
from kinesis_publishers.events import ProducerStarted, ProducerStopped, RecordsPut
from tests.unit.producing.producing_support import FIRST, KEYS, SECOND

if TYPE_CHECKING:
    from tests.unit.producing.producing_support import Writing

pytestmark = pytest.mark.parametrize("aggregation", [False, True], ids=["plain", "aggregated"])


async def test_the_future_of_a_record_says_where_it_is(writing: Writing, aggregation: bool) -> None:
    async with writing.producer(aggregation=aggregation) as producer:
        future = await producer.put(b"one", KEYS[SECOND])
        assert producer.pending_records == 1
        assert producer.pending_bytes == 4
        result = await writing.result(future)
    (stored,) = writing.stored()
    assert (stored.partition_key, stored.data) == (KEYS[SECOND], b"one")
    assert result[:4] == (SECOND, stored.sequence_number, None, 1)
    assert result.seconds == pytest.approx(0.1, abs=0.02)
    assert producer.pending_records == producer.pending_bytes == 0


async def test_data_may_be_text_or_any_bytes(writing: Writing, aggregation: bool) -> None:
    async with writing.producer(aggregation=aggregation, ordering="key") as producer:
        for data in ("zwei 🎉", bytearray(b"a"), memoryview(b"b"), b""):
            await producer.put(data, "k")
    assert writing.data() == ["zwei 🎉".encode(), b"a", b"b", b""]


async def test_a_record_without_a_partition_key_gets_one(
    writing: Writing, aggregation: bool
) -> None:
    async with writing.producer(aggregation=aggregation) as producer:
        many = await producer.put_many([(b"x", None) for _ in range(200)])
        await producer.put(b"x")
    assert len(writing.data()) == 201
    assert min(len(writing.data(one)) for one in (FIRST, SECOND)) > 50
    assert len({one.shard_id for one in many.result()}) == 2


async def test_an_explicit_hash_key_chooses_the_shard(writing: Writing, aggregation: bool) -> None:
    async with writing.producer(aggregation=aggregation) as producer:
        for _ in range(2):
            await producer.put(b"low", KEYS[SECOND], "0")
            await producer.put(b"high", KEYS[FIRST], str(2**128 - 1))
        await producer.put_many([(b"low", "k", "0"), (b"high", "k", str(2**127))])
    assert set(writing.data(FIRST)) == {b"low"}
    assert set(writing.data(SECOND)) == {b"high"}
    assert len(writing.data()) == 6


async def test_the_results_of_many_are_in_the_order_of_the_records(
    writing: Writing, aggregation: bool
) -> None:
    records = [(b"%d" % number, f"key-{number % 50}") for number in range(1_234)]
    async with writing.producer(aggregation=aggregation) as producer:
        results = await writing.result(await producer.put_many(iter(records)))
    by_place = {}
    for shard_id in (FIRST, SECOND):
        for stored in writing.stored(shard_id):
            by_place[shard_id, stored.sequence_number] = stored
    assert len(results) == len(records)
    assert all(one.attempts == 1 for one in results)
    for (data, key), result in zip(records, results, strict=True):
        stored = by_place[result.shard_id, result.sequence_number]
        if aggregation:
            assert result.sub_sequence_number is not None
        else:
            assert result.sub_sequence_number is None
            assert (stored.data, stored.partition_key) == (data, key)
    assert sorted(writing.data()) == sorted(data for data, _ in records)
    assert results[-3:] == [results[-3], results[-2], results[-1]]


async def test_user_records_and_tuples_may_be_mixed(writing: Writing, aggregation: bool) -> None:
    record = UserRecord(data=b"0", partition_key="k", explicit_hash_key=str(2**127))
    async with writing.producer(aggregation=aggregation) as producer:
        results = await writing.result(
            await producer.put_many([record, ("1", "k"), (b"2", "k", "0")])
        )
    # The MD5 of "k" begins with 8.
    assert [one.shard_id for one in results] == [SECOND, SECOND, FIRST]
    assert sorted(writing.data()) == [b"0", b"1", b"2"]


async def test_none_is_a_number_of_records_too(writing: Writing, aggregation: bool) -> None:
    async with writing.producer(aggregation=aggregation) as producer:
        assert len(await (await producer.put_many([]))) == 0
        await producer.flush()
    assert writing.server.calls("PutRecords") == []


async def test_records_linger_for_others(writing: Writing, aggregation: bool) -> None:
    async with writing.producer(aggregation=aggregation, lingermillis="1s") as producer:
        first = await producer.put(b"1", KEYS[FIRST])
        await writing.clock.advance(0.5)
        second = await producer.put(b"2", KEYS[FIRST])
        await writing.clock.advance(0.49)
        assert not first.done()
        await writing.clock.advance(0.02)
        assert first.done()
        assert second.done()
    assert len(writing.server.calls("PutRecords")) == 1


async def test_flush_waits_for_what_was_put_before_and_does_not_linger(
    writing: Writing, aggregation: bool
) -> None:
    async with writing.producer(aggregation=aggregation, lingermillis="1h") as producer:
        futures = [await producer.put(b"%d" % n, f"{n}") for n in range(10)]
        await producer.flush()
        assert all(one.done() for one in futures)
        later = await producer.put(b"later", "k")
        await writing.clock.settle()
        assert not later.done()
    assert later.done()
    assert len(writing.data()) == 11


async def test_several_may_flush_at_once(writing: Writing, aggregation: bool) -> None:
    async with writing.producer(aggregation=aggregation, lingermillis="1h") as producer:

        async def put_and_flush(number: int) -> None:
            future = await producer.put(b"%d" % number, f"{number}")
            await producer.flush()
            assert future.done()

        await asyncio.gather(*map(put_and_flush, range(20)))
    assert len(writing.data()) == 20


async def test_its_events_say_what_was_written(writing: Writing, aggregation: bool) -> None:
    async with writing.producer(aggregation=aggregation) as producer:
        await producer.put_many([(b"12345", KEYS[FIRST]) for _ in range(10)])
    started, *_, stopped = writing.events
    assert isinstance(started, ProducerStarted)
    assert started.shards == 2
    assert isinstance(stopped, ProducerStopped)
    assert stopped.records == 0
    (put,) = [one for one in writing.events if isinstance(one, RecordsPut)]
    (first, *_) = writing.stored()
    assert (put.records, put.payload_bytes, put.attempts) == (10, 50, 10)
    if aggregation:
        assert (put.entries, put.entry_bytes) == (1, len(first.data) + 1)
    else:
        assert (put.entries, put.entry_bytes) == (10, 60)
