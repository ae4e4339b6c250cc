"""When progress is written, and what happens to it if that fails."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from attrs import evolve

from kinesis_publishers import SequenceNumber, StartingPosition
from kinesis_publishers.errors import (
    CheckpointError,
    InternalServiceError,
    ReaderReplacedError,
)
from kinesis_publishers.events import CheckpointsRefused, CheckpointsSaved
from kinesis_publishers.testing.fakes import sample_shard
from tests.unit.checkpoints.checkpoint_support import BEGINNING, KEY, Buffer, at

ONE = sample_shard(1).key


async def _run(buffer: Buffer, *, records: int = 0, error: Exception | None = None) -> None:
    """Record one thing, and fail or run until it is cancelled."""
    async with buffer.checkpointer.running():
        buffer.checkpointer.record(KEY, at(1), records=records)
        if error is not None:
            raise error
        await asyncio.Event().wait()


async def test_progress_is_written_after_the_interval_and_not_before(buffer):
    async with buffer.checkpointer.running():
        buffer.checkpointer.record(KEY, at(1))
        await buffer.clock.advance(5)
        buffer.checkpointer.record(KEY, at(2))
        await buffer.clock.advance(4.9)
        assert buffer.store.batches == []
        await buffer.clock.advance(0.2)
        assert buffer.store.batches == [{KEY: at(2)}]
        await buffer.clock.advance(100)
        assert len(buffer.store.batches) == 1, "nothing has changed since"


async def test_enough_records_are_written_at_once():
    buffer = Buffer(max_records=100)
    await buffer.begin()
    async with buffer.checkpointer.running():
        buffer.checkpointer.record(KEY, at(1), records=99)
        await buffer.clock.settle()
        assert buffer.store.batches == []
        buffer.checkpointer.record(KEY, at(2), records=1)
        await buffer.clock.settle()
        assert buffer.store.batches == [{KEY: at(2)}]
        buffer.checkpointer.record(KEY, at(3), records=99)
        await buffer.clock.settle()
        assert len(buffer.store.batches) == 1


async def test_the_end_of_a_shard_is_written_at_once(buffer):
    async with buffer.checkpointer.running():
        buffer.checkpointer.record(KEY, at(1, ended=True))
        await buffer.clock.settle()
        assert buffer.stored == {KEY: at(1, ended=True)}


async def test_one_batch_is_written_at_a_time_and_progress_accumulates_meanwhile():
    buffer = Buffer(max_records=1)
    await buffer.begin()
    buffer.store.gate.clear()
    async with buffer.checkpointer.running():
        for number in range(1, 6):
            buffer.checkpointer.record(KEY, at(number), records=1)
            await buffer.clock.settle()
        assert buffer.store.batches == [{KEY: at(1)}]
        buffer.store.gate.set()
        await buffer.clock.settle()
        assert buffer.store.batches == [{KEY: at(1)}, {KEY: at(5)}]


async def test_a_store_that_fails_ends_what_runs():
    buffer = Buffer(max_records=1)
    await buffer.begin()
    buffer.store.errors.append(InternalServiceError("the table is down"))
    with pytest.raises(InternalServiceError, match="the table is down") as raised:
        await _run(buffer, records=1)
    assert "the memory of this process" in "".join(raised.value.__notes__)
    assert len(buffer.store.batches) == 1, "it is not asked again after it has failed"


async def test_any_exception_of_a_custom_store_is_a_checkpoint_error(buffer):
    buffer.store.errors.append(KeyError("host"))
    buffer.checkpointer.record(KEY, at(1))
    with pytest.raises(CheckpointError, match=r"ScriptedStore failed to write.*KeyError: 'host'"):
        await buffer.checkpointer.flush()


async def test_a_store_that_does_not_say_what_it_has_written_is_a_checkpoint_error():
    buffer = Buffer(max_records=1)
    await buffer.begin()

    async def save(_: object) -> dict[object, object]:
        return {}

    buffer.store.save = save
    with pytest.raises(CheckpointError, match=r"ScriptedStore.*save.*no version.*shardId-0"):
        await _run(buffer, records=1)


async def test_after_an_error_what_was_processed_is_written(buffer):
    with pytest.raises(ZeroDivisionError):
        await _run(buffer, error=ZeroDivisionError())
    assert buffer.stored == {KEY: at(1)}


async def test_the_error_wins_over_a_store_that_fails_after_it(buffer):
    buffer.store.errors.append(InternalServiceError("the table is down"))
    with pytest.raises(ZeroDivisionError) as raised:
        await _run(buffer, error=ZeroDivisionError())
    assert "the table is down" in "".join(raised.value.__notes__)


async def _run_until_cancelled(buffer: Buffer, *, records: int = 0) -> asyncio.Task[None]:
    task = asyncio.create_task(_run(buffer, records=records))
    await buffer.clock.settle()
    task.cancel()
    return task


async def test_a_cancelled_reader_waits_ten_seconds_for_its_store(buffer):
    buffer.store.gate.clear()
    task = await _run_until_cancelled(buffer)
    await buffer.clock.advance(9.9)
    assert not task.done()
    await buffer.clock.advance(0.2)
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    assert "could not be written" in "".join(raised.value.__notes__)


async def test_a_write_that_was_cancelled_is_repeated_by_the_last_one():
    buffer = Buffer(max_records=1)
    await buffer.begin()
    buffer.store.gate.clear()
    task = await _run_until_cancelled(buffer, records=1)
    await buffer.clock.settle()
    assert buffer.store.batches == [{KEY: at(1)}] * 2
    buffer.store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert buffer.stored == {KEY: at(1)}


async def test_a_failure_that_a_later_write_has_made_up_for_does_not_keep_the_rest_back(buffer):
    buffer.checkpointer.record(KEY, at(0))
    buffer.store.errors.append(InternalServiceError("the table is down"))
    with pytest.raises(InternalServiceError):
        await buffer.checkpointer.flush()
    await buffer.checkpointer.flush()
    with pytest.raises(ZeroDivisionError):
        await _run(buffer, error=ZeroDivisionError())
    assert buffer.stored == {KEY: at(1)}


async def test_a_reader_that_is_cancelled_while_it_writes_the_rest_still_writes(buffer):
    buffer.store.gate.clear()

    async def run_to_the_end() -> None:
        async with buffer.checkpointer.running():
            buffer.checkpointer.record(KEY, at(1))

    task = asyncio.create_task(run_to_the_end())
    await buffer.clock.settle()
    task.cancel()
    await buffer.clock.settle()
    buffer.store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert buffer.stored == {KEY: at(1)}


async def test_a_buffer_may_run_again(buffer):
    for number in (1, 2):
        async with buffer.checkpointer.running():
            buffer.checkpointer.record(KEY, at(number))
            await buffer.clock.advance(10)
            assert buffer.stored == {KEY: at(number)}


@pytest.mark.parametrize(
    "backwards", [at(4), BEGINNING, at(5), evolve(at(9), is_ended=False)], ids=str
)
async def test_progress_never_moves_backwards(buffer, backwards):
    buffer.checkpointer.record(KEY, at(5, ended=True))
    with pytest.raises(CheckpointError, match="would move back"):
        buffer.checkpointer.record(KEY, backwards)
    buffer.store.gate.clear()
    flushing = asyncio.create_task(buffer.checkpointer.flush())
    await buffer.clock.settle()
    with pytest.raises(CheckpointError, match="would move back"):
        buffer.checkpointer.record(KEY, backwards)
    buffer.store.gate.set()
    await flushing
    with pytest.raises(CheckpointError, match="would move back"):
        buffer.checkpointer.record(KEY, backwards)
    assert buffer.stored == {KEY: at(5, ended=True)}


async def test_progress_inside_of_an_aggregate_is_kept(buffer):
    for sub in (0, 3):
        inside = evolve(
            at(1), position=StartingPosition.at(SequenceNumber("8", sub_sequence_number=sub))
        )
        buffer.checkpointer.record(KEY, inside)
        await buffer.checkpointer.flush()
        assert buffer.stored == {KEY: inside}
    buffer.checkpointer.record(KEY, at(8))
    await buffer.checkpointer.flush()
    assert buffer.stored == {KEY: at(8)}


async def test_progress_of_an_unknown_shard_is_an_error(buffer):
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        buffer.checkpointer.record(ONE, at(1))


async def test_an_idle_shard_is_written_again_after_hours_only(buffer):
    start = buffer.clock.now()
    async with buffer.checkpointer.running():
        for minutes in range(0, 24 * 60, 10):
            as_of = start + timedelta(minutes=minutes)
            buffer.checkpointer.record(KEY, evolve(BEGINNING, as_of=as_of))
            await buffer.clock.advance(600)
    assert 4 <= len(buffer.store.batches) <= 5
    assert buffer.stored[KEY].as_of > start + timedelta(hours=17)


async def test_what_is_written_is_reported_with_the_time_that_the_store_took():
    buffer = Buffer()
    await buffer.begin(sample_shard(0), sample_shard(1))
    assert buffer.events == [CheckpointsSaved(shards=2, seconds=0.0)], "the mark is no shard"
    buffer.checkpointer.record(KEY, at(1))
    buffer.store.gate.clear()
    flushing = asyncio.create_task(buffer.checkpointer.flush())
    await buffer.clock.advance(3)
    assert len(buffer.events) == 1
    buffer.store.gate.set()
    await flushing
    assert buffer.events[1:] == [CheckpointsSaved(shards=1, seconds=pytest.approx(3.0))]
    await buffer.checkpointer.flush()
    assert len(buffer.events) == 2, "there was nothing to write"


async def test_a_write_that_is_refused_is_reported(buffer):
    await buffer.write_as_another_reader(KEY, at(5))
    buffer.events.clear()
    buffer.checkpointer.record(KEY, at(6))
    with pytest.raises(ReaderReplacedError, match=r"has taken over arn:.*/orders") as raised:
        await buffer.checkpointer.flush()
    assert buffer.events == [CheckpointsRefused(message=str(raised.value.__cause__))]
    # In the log, too.
    assert [*map(str, buffer.events)] == [str(raised.value.__cause__)]
    assert buffer.stored == {KEY: at(5)}


async def test_a_store_that_does_not_answer_is_given_ten_seconds_in_all_after_an_error(
    buffer: Buffer,
) -> None:
    buffer.store.gate.clear()
    buffer.checkpointer.record(KEY, at(1))
    error = RuntimeError("the reason to stop")

    async def leave() -> None:
        await buffer.checkpointer.flush_despite(error)
        await buffer.checkpointer.flush_despite(error)
        await buffer.checkpointer.release()

    leaving = asyncio.create_task(leave())
    await buffer.clock.advance(10)
    assert leaving.done()
    assert len(error.__notes__) == 1
