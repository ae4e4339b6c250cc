"""The room of the buffer: backpressure, fairness between shards, and races at its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.errors import (
    BufferFullError,
    ClosedError,
    RecordsNotWrittenError,
)
from kinesis_publishers.events import RecordsFailed
from kinesis_publishers.model import HashRange, hash_key_of
from kinesis_publishers.testing.local_kinesis import Fault
from tests.unit.producing.producing_support import FIRST, KEYS, SECOND, STREAM

if TYPE_CHECKING:
    from tests.unit.producing.producing_support import Writing

_STUCK = Fault("PutRecords", "throttle", times=None)


async def test_put_waits_while_the_buffer_is_full_of_records(writing: Writing) -> None:
    writing.server.add_fault(_STUCK)
    async with writing.producer(buffer_maxrecords=3) as producer:
        # The last room is left for other shards.
        for _ in range(2):
            await producer.put(b"x", "k")
        waiting = asyncio.ensure_future(producer.put(b"y", "k"))
        await writing.clock.advance(5)
        assert not waiting.done()
        assert producer.pending_records == 2
        writing.server.clear_faults()
        await writing.result(waiting)
    assert sorted(writing.data()) == [b"x", b"x", b"y"]


async def test_put_waits_while_the_buffer_is_full_of_bytes(writing: Writing) -> None:
    writing.server.add_fault(_STUCK)
    async with writing.producer(buffer_maxbytes=1_000) as producer:
        await producer.put(bytes(600), "k")
        waiting = asyncio.ensure_future(producer.put(bytes(600), "k"))
        await writing.clock.advance(5)
        assert not waiting.done()
        writing.server.clear_faults()
        await writing.result(waiting)
    assert [len(one) for one in writing.data()] == [600, 600]


async def test_a_record_that_is_larger_than_the_buffer_passes_alone(writing: Writing) -> None:
    async with writing.producer(buffer_maxbytes=1_000) as producer:
        results = await writing.run(producer.put_many([(bytes(5_000), "k") for _ in range(3)]))
        assert len(await writing.result(results)) == 3


async def test_a_full_buffer_does_not_linger(writing: Writing) -> None:
    async with writing.producer(buffer_maxrecords=10, lingermillis="1h") as producer:
        for number in range(100):
            await producer.put(b"%d" % number, f"{number}")
        assert writing.clock.monotonic() == 0
    assert len(writing.data()) == 100


async def test_what_waits_keeps_its_order(writing: Writing) -> None:
    async with writing.producer(buffer_maxrecords=2, ordering="key") as producer:
        puts = [asyncio.ensure_future(producer.put(b"%d" % n, "k")) for n in range(30)]
        await writing.until_done(puts)
    assert writing.data() == [b"%d" % n for n in range(30)]


async def test_many_pass_through_a_small_buffer(writing: Writing) -> None:
    async with writing.producer(buffer_maxrecords=20, aggregation=True) as producer:
        records = [(b"%d" % n, f"{n}") for n in range(2_000)]
        results = await writing.result(await writing.run(producer.put_many(records)))
    assert len(results) == 2_000
    assert sorted(writing.data()) == sorted(data for data, _ in records)


async def test_a_shard_that_throttles_leaves_room_for_the_others(writing: Writing) -> None:
    writing.server.add_fault(Fault("PutRecords", "throttle", shard_id=FIRST, times=None))
    async with writing.producer(buffer_maxrecords=100, recordttlmillis="1h") as producer:
        stuck = asyncio.ensure_future(producer.put_many([(b"x", KEYS[FIRST])] * 500))
        await writing.clock.advance(10)
        assert not stuck.done()
        for _ in range(10):
            future = await producer.put(b"free", KEYS[SECOND])
            assert (await writing.result(future)).shard_id == SECOND
        writing.server.clear_faults()
        await writing.result(stuck)
    assert len(writing.data(FIRST)) == 500


async def test_a_full_buffer_may_be_an_error_for_each_record(writing: Writing) -> None:
    writing.server.add_fault(_STUCK)
    async with writing.producer(buffer_maxrecords=2, buffer_whenfull="fail") as producer:
        first = await producer.put(b"1", "k")
        many = await producer.put_many([(b"2", "k"), (b"3", "k"), (b"4", "k")])
        single = await producer.put(b"5", "k")
        assert isinstance(single.exception(), BufferFullError)
        assert "kinesis.producer.buffer.maxrecords" in str(single.exception())
        writing.server.clear_faults()
        await writing.until_done([first, many])
        error = many.exception()
        assert isinstance(error, RecordsNotWrittenError)
        assert isinstance(error.results[-1], BufferFullError)
        # It is not known to those who look at no future.
        with pytest.raises(RecordsNotWrittenError, match="The buffer is full"):
            await writing.run(producer.flush())
    failed = writing.total(RecordsFailed, "records")
    assert writing.count(RecordsFailed, "code").keys() == {"BufferFullError"}
    assert len(writing.data()) == 5 - failed


async def test_a_put_that_was_cancelled_while_it_waited_leaves_its_room(writing: Writing) -> None:
    writing.server.add_fault(_STUCK)
    async with writing.producer(buffer_maxrecords=1) as producer:
        await producer.put(b"1", "k")
        waiting = [asyncio.ensure_future(producer.put(b"%d" % n, "k")) for n in (2, 3)]
        await writing.clock.settle()
        waiting[0].cancel()
        writing.server.clear_faults()
        await writing.until_done(waiting)
        assert waiting[0].cancelled()
    assert writing.data() == [b"1", b"3"]


async def test_flush_is_not_confused_by_who_has_just_got_room(writing: Writing) -> None:
    async with writing.producer(buffer_maxrecords=1) as producer:
        first = await producer.put(b"1", "k")
        waiting = asyncio.ensure_future(producer.put(b"2", "k"))
        # In the very turn in which the room is given to the one that waits.
        flushes: list[asyncio.Future[None]] = []
        first.add_done_callback(lambda _: flushes.append(asyncio.ensure_future(producer.flush())))
        await writing.until_done([first, waiting])
        await writing.until_done(flushes)
        assert flushes
    assert writing.data() == [b"1", b"2"]


async def test_who_has_just_got_room_when_the_producer_is_closed_is_refused_or_written(
    writing: Writing,
) -> None:
    async with writing.producer(buffer_maxrecords=1) as producer:
        first = await producer.put(b"1", "k")
        waiting = asyncio.ensure_future(producer.put(b"2", "k"))
        closes: list[asyncio.Future[None]] = []
        first.add_done_callback(lambda _: closes.append(asyncio.ensure_future(producer.close())))
        await writing.until_done([first, waiting])
        await writing.until_done(closes)
        if waiting.exception() is not None:
            assert isinstance(waiting.exception(), ClosedError)
            assert writing.data() == [b"1"]
        else:
            assert waiting.result().done()
            assert writing.data() == [b"1", b"2"]
    assert producer.pending_records == producer.pending_bytes == 0


async def test_closing_refuses_who_waits(writing: Writing) -> None:
    writing.server.add_fault(_STUCK)
    async with writing.producer(buffer_maxrecords=1) as producer:
        await producer.put(b"1", "k")
        waiting = asyncio.ensure_future(producer.put(b"2", "k"))
        await writing.clock.settle()
        with pytest.raises(RecordsNotWrittenError, match="1 of the records"):
            await writing.run(producer.close(timeout_seconds=1))
        await writing.until_done([waiting])
        assert isinstance(waiting.exception(), ClosedError)


async def test_many_large_records_do_not_wait_for_as_long_as_there_are_small_ones(
    writing: Writing,
) -> None:
    writing.server.reshard(STREAM, 4)
    services = await writing.services()
    opened = [one for one in await services.list_shards() if not one.is_closed]
    numbers = [f"{number}" for number in range(1_000)]
    async with writing.producer() as producer:
        idle, *busy = [
            next(one for one in numbers if hash_key_of(one, None) in HashRange.of(shard))
            for shard in opened
        ]

        async def put_on(key: str) -> None:
            while True:
                await producer.put(bytes(20_000), key)

        putting = [asyncio.ensure_future(put_on(key)) for key in busy for _ in range(500)]
        await writing.clock.advance(2)
        many = asyncio.ensure_future(producer.put_many([(bytes(8_000), idle)] * 500))
        await writing.until_done([many], within=20)
        for one in putting:
            one.cancel()
        await writing.clock.settle()
        await writing.run(producer.flush())


async def test_what_is_being_put_when_the_producer_ends_has_an_end_too(writing: Writing) -> None:
    opened = writing.producer()
    producer = await opened.__aenter__()
    putting = asyncio.ensure_future(
        producer.put_many([(bytes(300_000), f"{number}") for number in range(200)])
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(RecordsNotWrittenError):
        await writing.run(producer.close(timeout_seconds=0))
    with pytest.raises(ClosedError):
        await writing.run(putting)
    assert producer.pending_records == 0


async def test_nobody_stands_behind_one_who_waits_no_more(writing: Writing) -> None:
    fault = Fault("PutRecords", "throttle", shard_id=FIRST, times=None, lasting_seconds=20)
    writing.server.add_fault(fault)
    options = {"buffer_maxbytes": 1_000, "buffer_maxrecords": 100, "backoff_base": "10s"}
    async with writing.producer(**options) as producer:
        for _ in range(5):
            await producer.put(b"x" * 99, KEYS[FIRST])
        await writing.clock.advance(1)
        large = asyncio.ensure_future(producer.put(b"x" * 600, KEYS[SECOND]))
        await writing.clock.settle()
        assert not large.done()
        large.cancel()
        await writing.clock.settle()
        await writing.run(producer.put(b"x", KEYS[SECOND]), within=1)
