"""``async for record in read(properties)``: each record once, and what counts as processed."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import Record, RecordStream, Shard, read
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.errors import AccessDeniedError, ClosedError, ConfigError
from kinesis_publishers.testing.fakes import deaggregated, sample_aggregates
from kinesis_publishers.testing.local_kinesis import Fault
from tests.integration.processing.processing_support import Orders, numbers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class TurningClock(SystemClock):
    """A clock by which it is time to let others run whenever a test says so."""

    turns = False

    def monotonic(self) -> float:
        return super().monotonic() + 1000 * self.turns


async def take(stream: RecordStream, count: int) -> list[Record]:
    """Read ``count`` records in a loop that is left by ``break``."""
    records: list[Record] = []
    async with stream as opened:
        async for record in opened:
            records.append(record)
            if len(records) == count:
                break
    return records


async def fail_at(records: AsyncIterator[Record], number: int) -> None:
    """Read in a loop whose body fails for one record."""
    async for record in records:
        if int(record.data) == number:
            raise ZeroDivisionError


async def fail_in_context(stream: RecordStream, number: int) -> None:
    async with stream as records:
        await fail_at(records, number)


async def test_a_bare_loop_ends_when_it_is_told_to(orders: Orders) -> None:
    orders.put(50)
    stream, records = read(orders.properties()), []
    async for record in stream:
        records.append(record)
        if len(records) == 20:
            stream.stop()
    assert len(records) == 20
    assert [record async for record in stream] == []


async def test_without_an_application_nothing_is_kept(orders: Orders) -> None:
    orders.put(10)
    properties = orders.properties()
    del properties["kinesis.checkpoint.application"], properties["kinesis.checkpoint.sqlite.path"]
    for _ in range(2):
        assert sorted(numbers(await take(read(properties), 10))) == list(range(10))
    assert not orders.path.exists()


@pytest.mark.parametrize("count", [1, 7, 30])
async def test_the_next_run_goes_on_behind_the_last_record_of_a_loop_that_was_left(
    orders: Orders, count: int
) -> None:
    expected = orders.put(60)
    first = await take(read(orders.properties()), count)
    rest = await take(read(orders.properties()), 60 - count)
    assert sorted(numbers([*first, *rest])) == expected


async def test_a_record_whose_processing_failed_is_read_again(orders: Orders) -> None:
    orders.put(20, key="one shard")
    with pytest.raises(ZeroDivisionError):
        await fail_in_context(read(orders.properties()), 13)
    assert numbers(await take(read(orders.properties()), 3)) == [13, 14, 15]


def test_a_bare_loop_that_fails_repeats_the_record_in_hand(orders: Orders) -> None:
    """Nobody tells the stream that the loop was left: it ends with the event loop."""
    orders.put(20, key="one shard")
    with pytest.raises(ZeroDivisionError):
        asyncio.run(fail_at(read(orders.properties()), 13))
    again = numbers(asyncio.run(take(read(orders.properties()), 7)))
    assert again[0] <= 13
    assert again == list(range(again[0], again[0] + 7))


async def test_sigterm_ends_the_loop_behind_the_record_in_hand(orders: Orders) -> None:
    orders.put(40, key="one shard")
    records = []
    async for record in read(orders.properties()):
        records.append(record)
        if len(records) == 15:
            os.kill(os.getpid(), signal.SIGTERM)
            # It is the event loop that stops the reader.
            await asyncio.sleep(0)
    assert numbers(records) == list(range(15))
    assert numbers(await take(read(orders.properties()), 25)) == list(range(15, 40))


async def test_sigterm_ends_every_loop_in_the_program(orders: Orders) -> None:
    orders.put(40, key="one shard")
    async with read(orders.properties()) as first:
        other = {**orders.properties(), "kinesis.checkpoint.application": "other"}
        async with read(other) as second:
            assert numbers([await anext(first), await anext(second)]) == [0, 0]
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)
            assert [record async for record in second] == []
            assert [record async for record in first] == []


async def test_a_stream_that_is_closed_leaves_sigterm_to_the_others(orders: Orders) -> None:
    orders.put(10, key="one shard")
    async with read(orders.properties()) as first:
        other = {**orders.properties(), "kinesis.checkpoint.application": "other"}
        await take(read(other), 2)
        before = signal.getsignal(signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        while signal.getsignal(signal.SIGTERM) is before:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
        assert [record async for record in first] == []


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
async def test_the_position_inside_an_aggregate_is_kept(orders: Orders, publisher: str) -> None:
    properties = orders.properties(
        stream_recordpublisher=publisher, stream_efo_consumername="tests"
    )
    aggregates = sample_aggregates(3, 4)
    orders.server.put_many("orders", [("a", one.data) for one in aggregates])
    expected = [one.data for one in deaggregated(aggregates)]
    for first in (1, 5, 6):
        orders.path.unlink(missing_ok=True)
        before = await take(read(properties), first)
        after = await take(read(properties), 12 - first)
        assert [one.data for one in (*before, *after)] == expected


async def test_the_hook_comes_between_a_shard_and_those_that_continue_it(orders: Orders) -> None:
    orders.put(40)
    history: list[str] = []

    async def on_shard_end(shard: Shard) -> None:
        history.append(f"end of {shard.shard_id}")

    async with read(orders.properties(), on_shard_end=on_shard_end) as records:
        orders.server.reshard("orders", 1)
        orders.put(10)
        async for record in records:
            history.append(record.shard_id)
            if len(history) - history.count("end of shardId-000000000000") == 51:
                break
    ends = [one for one in history if one.startswith("end of")]
    assert sorted(ends) == ["end of shardId-000000000000", "end of shardId-000000000001"]
    first_of_child = history.index("shardId-000000000002")
    assert first_of_child > max(map(history.index, ends))
    for shard_id in ("shardId-000000000000", "shardId-000000000001"):
        last = max(index for index, one in enumerate(history) if one == shard_id)
        assert last < history.index(f"end of {shard_id}")


async def test_what_is_in_hand_when_reading_fails_is_handed_out_and_recorded(
    orders: Orders,
) -> None:
    orders.put(20, key="one shard")
    seen: list[int] = []

    async def loop() -> None:
        async for record in read(orders.properties(shard_getrecords_maxrecordcount="10")):
            seen.append(int(record.data))
            if len(seen) == 5:
                orders.server.add_fault(
                    Fault("GetRecords", "error", code="AccessDeniedException", times=100)
                )

    with pytest.raises(AccessDeniedError):
        await loop()
    orders.server.clear_faults()
    assert seen == list(range(len(seen)))
    assert len(seen) >= 10
    orders.put(1, key="one shard")
    rest = await take(read(orders.properties()), 21 - len(seen))
    assert numbers(rest) == list(range(len(seen), 21))


def test_bad_properties_are_refused_before_anything_is_opened() -> None:
    with pytest.raises(ConfigError):
        read({"kinesis.streams": "orders", "kinesis.stream.initpos": "YESTERDAY"})


@pytest.mark.parametrize("in_hand", [1, 13])
async def test_no_record_is_passed_over_when_waiting_for_it_is_given_up(
    orders: Orders, in_hand: int
) -> None:
    """The timeout comes while the loop lets others run, with more records in memory."""
    orders.put(20, key="one shard")
    clock = TurningClock()
    async with read(orders.properties(), clock=clock) as records:
        before = [await anext(records) for _ in range(in_hand)]
        clock.turns = True
        asking = asyncio.ensure_future(anext(records))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        clock.turns = False
        after = [await anext(records) for _ in range(3)]
    assert numbers([*before, *after]) == list(range(in_hand + 3))
    assert numbers(await take(read(orders.properties()), 2)) == [in_hand + 3, in_hand + 4]


async def test_who_gives_up_waiting_may_ask_again(orders: Orders) -> None:
    async with read(orders.properties()) as records:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(records), 0.05)
        expected = orders.put(5, key="one shard")
        assert numbers([await anext(records) for _ in range(5)]) == expected


async def test_a_hook_that_was_cancelled_is_called_again(orders: Orders) -> None:
    orders.put(4)
    orders.server.reshard("orders", 1)
    orders.put(3)
    calls: list[str] = []
    begun = asyncio.Event()

    async def on_shard_end(shard: Shard) -> None:
        calls.append(shard.shard_id)
        if len(calls) == 1:
            begun.set()
            await asyncio.Event().wait()

    async with read(orders.properties(), on_shard_end=on_shard_end) as records:
        found: list[Record] = []
        while len(found) < 7:
            asking = asyncio.ensure_future(anext(records))
            waiting = asyncio.ensure_future(begun.wait())
            await asyncio.wait([asking, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if begun.is_set() and not asking.done():
                asking.cancel()
                begun.clear()
            await asyncio.wait([asking])
            if not asking.cancelled():
                found.append(asking.result())
    assert len(calls) == 3
    assert calls[0] == calls[1]
    assert sorted(numbers(found)) == list(range(7))


async def test_two_tasks_that_ask_at_once_are_refused(orders: Orders) -> None:
    async with read(orders.properties()) as records:
        first = asyncio.ensure_future(anext(records))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="let one task read"):
            await anext(records)
        orders.put(1)
        assert numbers([await first]) == [0]


async def test_a_stream_is_entered_once(orders: Orders) -> None:
    orders.put(4, key="one shard")
    stream = read(orders.properties())
    async with stream as records:
        await anext(records)
        with pytest.raises(ClosedError):
            await records.__aenter__()
    with pytest.raises(ClosedError, match=r"call read\(\) again"):
        await take(stream, 1)
    assert [record async for record in stream] == []


async def test_a_loop_that_was_left_is_closed_by_entering_the_stream(orders: Orders) -> None:
    orders.put(4, key="one shard")
    stream = read(orders.properties())
    first = await anext(stream)
    rest = await take(stream, 2)
    assert numbers([first, *rest]) == [0, 1, 2]
    assert numbers(await take(read(orders.properties()), 1)) == [3]
