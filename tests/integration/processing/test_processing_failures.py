"""Failures of a scan's callbacks, and of its store, that must neither lose nor hide anything."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import (
    DeadLetter,
    KinesisDataFetcher,
    Record,
    RecordBatch,
    ScanResult,
    read,
    scan,
)
from kinesis_publishers.errors import ProcessingCancelledError, StaleCheckpointError
from kinesis_publishers.events import CheckpointsRefused, Event, ProcessingFailed
from tests.integration.processing.scanning_support import (
    Collector,
    fails_at,
    scanned,
    scanned_in_next_run,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers import Shard
    from tests.integration.processing.processing_support import Orders


def ignore(record: Record | RecordBatch, error: Exception) -> None:
    pass


@pytest.mark.parametrize("page", ["10000", "5"], ids=["one delivery", "several deliveries"])
@pytest.mark.parametrize("bad", [5, 7])
def test_a_dead_letter_does_not_cover_what_the_callback_has_gathered(
    orders: Orders, page: str, bad: int
) -> None:
    orders.put(10, key="one shard")

    def gather(number: int) -> ScanResult | None:
        fails_at(bad)(number)
        return ScanResult.STOP if number == 9 else ScanResult.SKIP_CHECKPOINT

    gathered: list[int] = []

    def process(record: Record) -> ScanResult | None:
        if int(record.data) == 9:
            raise OSError("what was gathered is lost")
        result = gather(int(record.data))
        gathered.append(int(record.data))
        return result

    properties = orders.properties(shard_getrecords_maxrecordcount=page)
    put = DeadLetter(lambda record, error: ignore(record, error) if record.data != b"9" else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        scan(properties, process, on_error=put)
    assert gathered == [n for n in range(9) if n != bad]
    assert scanned_in_next_run(orders) == list(range(10))


def test_a_record_that_is_done_covers_a_dead_letter_and_what_was_gathered(orders: Orders) -> None:
    orders.put(10, key="one shard")

    def before(number: int) -> ScanResult | None:
        fails_at(5)(number)
        return ScanResult.SKIP_CHECKPOINT if number < 8 else None

    scan(orders.properties(), Collector(9, before=before), on_error=DeadLetter(ignore))
    assert scanned_in_next_run(orders) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cancellation_inside_of_the_callback_is_a_failure(orders: Orders, workers: int) -> None:
    orders.put(20, key="one shard")

    async def handle(number: int) -> None:
        if number == 7:
            waiting = asyncio.ensure_future(asyncio.Event().wait())
            waiting.cancel()
            await waiting

    seen: list[int] = []

    def process(record: Record) -> None:
        asyncio.run(handle(int(record.data)))
        seen.append(int(record.data))

    with pytest.raises(RuntimeError, match="raised CancelledError") as caught:
        scan(orders.properties(), process, workers=workers)
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert seen == list(range(7))
    assert scanned(orders, 13) == list(range(7, 20))


async def test_a_cancellation_inside_of_on_batch_ends_the_reading_with_an_error(
    orders: Orders,
) -> None:
    orders.put(20)
    events: list[Event] = []

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        raise asyncio.CancelledError

    async with KinesisDataFetcher.from_properties(
        orders.properties(), on_batch, events=events.append
    ) as fetcher:
        with pytest.raises(ProcessingCancelledError, match=r"orders/shardId-.*without a request"):
            await fetcher.run()
    assert any(isinstance(one, ProcessingFailed) for one in events)


async def test_a_group_that_has_failed_before_does_not_hide_a_cancellation(orders: Orders) -> None:
    orders.put(20, key="one shard")

    async def fail() -> None:
        raise ZeroDivisionError

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        if batch.payloads[0] != b"0":
            raise asyncio.CancelledError
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())

    properties = orders.properties(shard_getrecords_maxrecordcount="5")
    async with KinesisDataFetcher.from_properties(properties, on_batch) as fetcher:
        with pytest.raises(ProcessingCancelledError):
            await fetcher.run()


async def test_who_cancels_every_other_task_ends_the_reading_with_an_error(orders: Orders) -> None:
    orders.put(2, key="one shard")
    async with read(orders.properties()) as records:
        await anext(records)
        await anext(records)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        with pytest.raises(RuntimeError, match="'read streams' was cancelled from outside"):
            await anext(records)


class SeveralProblems(ExceptionGroup[Exception]):
    """What a callback that checks all of a record raises."""


def test_a_group_that_the_callback_raises_is_raised_as_it_is(orders: Orders) -> None:
    orders.put(20, key="one shard")
    problems = SeveralProblems("order 7", [ValueError("amount"), KeyError("customer")])

    def process(record: Record) -> None:
        if record.data == b"7":
            raise problems

    with pytest.raises(SeveralProblems) as caught:
        scan(orders.properties(), process)
    assert caught.value is problems
    (note,) = problems.__notes__
    assert note.startswith("It was raised by the callback for record ")


async def test_a_group_that_on_batch_raises_is_raised_as_it_is(orders: Orders) -> None:
    orders.put(20)
    problems = SeveralProblems("a batch", [ValueError("amount"), KeyError("customer")])

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        raise problems

    async with KinesisDataFetcher.from_properties(orders.properties(), on_batch) as fetcher:
        with pytest.raises(SeveralProblems) as caught:
            await fetcher.run()
    assert caught.value is problems


def test_a_dead_letter_that_returns_after_another_worker_has_failed_is_recorded(
    orders: Orders,
) -> None:
    orders.put(40)
    is_putting, has_failed = threading.Event(), threading.Event()
    aside: list[int] = []

    def process(record: Record) -> None:
        if record.shard_id.endswith("0"):
            assert is_putting.wait(30)
            raise KeyError("the other one")
        raise ValueError(int(record.data))

    def put(record: Record | RecordBatch, error: Exception) -> None:
        assert isinstance(record, Record)
        if isinstance(error, KeyError):
            has_failed.set()
            raise error
        is_putting.set()
        assert has_failed.wait(30)
        aside.append(int(record.data))

    with pytest.raises(KeyError, match="the other one"):
        scan(orders.properties(), process, workers=2, on_error=DeadLetter(put))
    assert aside
    assert sorted(scanned_in_next_run(orders)) == sorted(set(range(40)) - set(aside))


def test_of_two_callbacks_that_fail_at_once_neither_error_is_lost(
    orders: Orders, caplog: pytest.LogCaptureFixture
) -> None:
    orders.put(40)
    both = threading.Barrier(2, timeout=30)

    def process(record: Record) -> None:
        raise ZeroDivisionError(f"number {both.wait()}")

    with pytest.raises(ZeroDivisionError, match="number") as caught:
        scan(orders.properties(), process, workers=2)
    (other,) = {"number 0", "number 1"} - {str(caught.value)}
    # Whether it has come out of its thread by then or not.
    assert other in "".join(caught.value.__notes__) + caplog.text


def test_a_hook_that_fails_stops_says_for_which_shard_and_the_shard_is_not_ended(
    orders: Orders,
) -> None:
    orders.put(20)
    orders.server.reshard("orders", 1)

    def on_shard_end(shard: Shard) -> None:
        raise OSError("the archive is down")

    collector = Collector(10**9)
    with pytest.raises(OSError, match="the archive is down") as caught:
        scan(orders.properties(), collector, on_shard_end=on_shard_end)
    (note,) = caught.value.__notes__
    assert note.startswith("It was raised by on_shard_end for orders/shardId-")
    assert not any(one.is_ended for one in orders.stored().values())
    # The other shard may not have been read when the first one ended.
    assert sorted(collector.seen + scanned_in_next_run(orders)) == list(range(20))


@pytest.mark.parametrize("where", ["process", "put", "on_shard_end"])
def test_an_iterator_that_is_used_up_is_a_failure_like_any_other(
    orders: Orders, where: str
) -> None:
    orders.put(10, key="one shard")
    orders.server.reshard("orders", 1)

    def used_up(*_: object) -> None:
        next(iter(()))

    process = Collector(10**9, before=fails_at(7)) if where == "put" else Collector(10**9)
    settings: dict[str, Any] = {
        "process": {},
        "put": {"on_error": DeadLetter(used_up)},
        "on_shard_end": {"on_shard_end": used_up},
    }[where]
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        scan(orders.properties(), used_up if where == "process" else process, **settings)


def test_a_dead_letter_that_raises_what_it_was_given_is_no_cause_of_itself(orders: Orders) -> None:
    orders.put(20, key="one shard")

    def put(record: Record | RecordBatch, error: Exception) -> None:
        raise error

    with pytest.raises(ZeroDivisionError) as caught:
        scan(orders.properties(), Collector(20, before=fails_at(7)), on_error=DeadLetter(put))
    assert caught.value.__cause__ is None


async def test_a_hook_of_read_that_cannot_be_awaited_is_refused(orders: Orders) -> None:
    bad: Any = 5
    with pytest.raises(TypeError, match="on_shard_end must be an async function, not 5"):
        read(orders.properties(), on_shard_end=bad)
    orders.put(1)
    orders.server.reshard("orders", 1)
    plain: Any = lambda shard: None  # noqa: E731
    with pytest.raises(TypeError, match=r"returned None, .*async function\n.*for orders/shardId-"):
        async for _ in read(orders.properties(), on_shard_end=plain):
            pass


async def test_a_cancellation_inside_of_a_hook_of_read_is_a_failure(orders: Orders) -> None:
    orders.put(1)
    orders.server.reshard("orders", 1)

    async def on_shard_end(shard: Shard) -> None:
        raise asyncio.CancelledError

    with pytest.raises(ProcessingCancelledError, match="on_shard_end"):
        async for _ in read(orders.properties(), on_shard_end=on_shard_end):
            pass
    stored = await asyncio.to_thread(orders.stored)
    assert not any(one.is_ended for one in stored.values())


def scan_each(properties: dict[str, str], process: Callable[[int], None], events: Any) -> None:
    scan(properties, lambda record: process(int(record.data)), events=events)


def read_each(properties: dict[str, str], process: Callable[[int], None], events: Any) -> None:
    async def loop() -> None:
        async with read(properties, events=events) as records:
            async for record in records:
                await asyncio.to_thread(process, int(record.data))

    asyncio.run(loop())


@pytest.mark.parametrize("reader", [scan_each, read_each])
def test_after_another_reader_has_taken_over_no_further_record_is_processed(
    orders: Orders, reader: Callable[[dict[str, str], Callable[[int], None], Any], None]
) -> None:
    orders.put(200, key="one shard")
    is_refused = threading.Event()
    seen: list[int] = []

    def process(number: int) -> None:
        """Let another run overtake, wait until that is known, and take a while for each record."""
        if number == 0:
            scanned(orders, 200)
        else:
            assert is_refused.wait(30)
            threading.Event().wait(0.02)
        seen.append(number)

    def note(event: Event) -> None:
        if isinstance(event, CheckpointsRefused):
            is_refused.set()

    with pytest.raises(StaleCheckpointError):
        reader(orders.properties(checkpoint_intervalmillis="10"), process, note)
    assert len(seen) < 100


def test_errors_that_cause_each_other_reach_the_program(orders: Orders) -> None:
    orders.put(1)
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first

    def process(record: Record) -> None:
        raise first

    with pytest.raises(ValueError, match="first") as raised:
        scan(orders.properties(), process)
    assert raised.value.__cause__ is second
