"""Two readers of one application: the newer one continues, and they do not fight."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers.checkpoints import CheckpointMemory
from kinesis_publishers.errors import (
    InternalServiceError,
    ReaderReplacedError,
    StaleCheckpointError,
)
from kinesis_publishers.model import Checkpoint, CheckpointWrite, ShardKey
from kinesis_publishers.testing.fakes import STREAM_ARN, sample_shard
from tests.unit.checkpoints.checkpoint_support import (
    BEGINNING,
    CREATED_AT,
    IDENTITIES,
    KEY,
    Buffer,
    at,
    streams,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers import StreamProgress

SHARD, CHILD = sample_shard(0), sample_shard(1, parent=0)
BOTH = {SHARD.key: BEGINNING, CHILD.key: BEGINNING}


@pytest.fixture
def older(buffer: Buffer) -> Buffer:
    return buffer


async def started(older: Buffer) -> Buffer:
    """Return a reader that starts while ``older`` runs, and has taken over."""
    newer = await older.beside()
    await newer.checkpointer.take_over(streams(STREAM_ARN))
    return newer


async def both_taking_over() -> tuple[Buffer, Buffer]:
    """Return two readers that have taken over a stream before its first checkpoint."""
    first = Buffer()
    await first.store.open()
    second = await first.beside()
    for one in (first, second):
        await one.checkpointer.take_over(streams(STREAM_ARN))
    return first, second


async def write(buffer: Buffer, number: int) -> None:
    buffer.checkpointer.record(KEY, at(number))
    await buffer.checkpointer.flush()


@pytest.fixture
async def newer(older: Buffer) -> Buffer:
    return await started(older)


@asynccontextmanager
async def living(buffer: Buffer) -> AsyncIterator[None]:
    async with buffer.checkpointer.running():
        yield
    await buffer.checkpointer.release()


@asynccontextmanager
async def restarted(older: Buffer) -> AsyncIterator[asyncio.Task[dict[str, StreamProgress]]]:
    """Start a reader and yield its taking over, which may take a while."""
    again = await older.beside()
    task = asyncio.create_task(again.checkpointer.take_over(streams(STREAM_ARN)))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_the_newer_reader_goes_on_and_the_older_one_stops(older: Buffer) -> None:
    await write(older, 1)
    newer = await started(older)
    with pytest.raises(
        ReaderReplacedError, match=r"/[0-9]+/[0-9a-f]{12}, has taken over arn:.*, and"
    ):
        await write(older, 2)
    await write(newer, 3)
    assert older.stored == {KEY: at(3)}


async def test_a_reader_that_was_replaced_begins_and_removes_nothing(
    older: Buffer, newer: Buffer
) -> None:
    with pytest.raises(ReaderReplacedError):
        await older.follow(BOTH, SHARD, CHILD)
    with pytest.raises(ReaderReplacedError):
        await older.follow({CHILD.key: BEGINNING}, CHILD)
    assert older.stored == {KEY: BEGINNING}
    await newer.follow(BOTH, SHARD, CHILD)
    assert older.stored == BOTH


async def test_a_shard_that_the_older_reader_has_just_begun_is_the_newer_one_s(
    older: Buffer,
    newer: Buffer,
) -> None:
    begun = Checkpoint(shard=CHILD.key, stream_created_at=CREATED_AT, progress=at(7))
    await older.store.save([CheckpointWrite(checkpoint=begun)])
    await newer.follow(BOTH, SHARD, CHILD)
    assert newer.stored == BOTH


async def test_what_the_older_reader_writes_meanwhile_is_gone_on_from(older: Buffer) -> None:
    newer = await older.beside()
    newer.store.gate.clear()
    taking_over = asyncio.create_task(newer.checkpointer.take_over(streams(STREAM_ARN)))
    await older.clock.settle()
    await write(older, 5)
    newer.store.gate.set()
    assert (await taking_over)[STREAM_ARN].shards == {KEY.shard_id: at(5)}
    with pytest.raises(ReaderReplacedError):
        await write(older, 6)
    await write(newer, 6)


async def test_of_two_readers_that_begin_a_stream_at_once_one_goes_on() -> None:
    first, second = await both_taking_over()
    first.store.gate.clear()
    beginning = asyncio.create_task(first.follow({KEY: BEGINNING}))
    await first.clock.settle()
    second.store.errors = [InternalServiceError("before the first write")]
    with pytest.raises(InternalServiceError):
        await second.follow({KEY: BEGINNING})
    await second.follow({KEY: BEGINNING})
    first.store.gate.set()
    with pytest.raises(ReaderReplacedError):
        await beginning
    await write(second, 1)


async def test_what_another_one_has_begun_in_vain_is_begun_over_it() -> None:
    first, second = await both_taking_over()
    begun = Checkpoint(shard=KEY, stream_created_at=CREATED_AT, progress=BEGINNING)
    await first.store.save([CheckpointWrite(checkpoint=begun)])
    await second.follow({KEY: BEGINNING})
    await write(second, 1)


async def test_a_reader_that_is_started_again_waits_until_the_newer_one_has_stopped(
    older: Buffer,
    newer: Buffer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with restarted(older) as taking_over:
        async with living(newer):
            await older.clock.advance(130)
            assert not taking_over.done()
            waiting = [one for one in caplog.messages if "this one waits until" in one]
            assert len(waiting) == 3
            await write(newer, 3)
            await older.clock.advance(1000)
            assert not taking_over.done(), "it does not take over by and by either"
        await older.clock.advance(2)
        assert (await taking_over)[STREAM_ARN].shards == {KEY.shard_id: at(3)}


async def test_a_reader_that_was_killed_is_replaced_although_it_had_taken_over(
    older: Buffer,
) -> None:
    await started(older)
    async with restarted(older) as taking_over:
        await older.clock.advance(13)
        assert not taking_over.done()
        await older.clock.advance(5)
        await taking_over


async def test_a_deployment_takes_over_at_once_from_a_reader_that_has_run_for_a_while(
    older: Buffer,
    newer: Buffer,
) -> None:
    async with living(newer):
        await older.clock.advance(310)
        newest = await started(older)
        await write(newest, 1)
    with pytest.raises(ReaderReplacedError):
        await write(newer, 2)


async def test_after_an_orderly_stop_no_reader_waits(older: Buffer) -> None:
    for _ in range(3):
        await older.checkpointer.release()
        older = await started(older)
        older.store.batches.clear()
    assert older.clock.sleeps == []
    async with older.checkpointer.running():
        await older.clock.advance(60)
    assert older.store.batches == [], "it need not show that it is alive"


async def test_streams_that_are_not_read_are_not_taken_over(older: Buffer) -> None:
    other = await older.beside()
    await other.checkpointer.take_over(streams(f"{STREAM_ARN}-2"))
    await write(older, 1)


async def test_checkpoints_that_were_removed_by_hand_are_not_written_again(buffer: Buffer) -> None:
    buffer.memory.applications["billing"].clear()
    with pytest.raises(StaleCheckpointError, match="or an operator, has removed it") as raised:
        await write(buffer, 1)
    assert not isinstance(raised.value, ReaderReplacedError)
    assert buffer.stored == {}


async def test_a_stop_that_cannot_be_noted_is_said_and_is_no_error(
    buffer: Buffer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    buffer.store.errors.append(InternalServiceError("the table is down"))
    await buffer.checkpointer.release()
    assert "the table is down" in caplog.text


async def test_a_reader_that_is_stopped_while_it_takes_over_leaves_the_older_one_alone(
    older: Buffer,
) -> None:
    newer = await older.beside()
    newer.store.gate.clear()
    taking_over = asyncio.create_task(newer.checkpointer.take_over(streams(STREAM_ARN)))
    await older.clock.settle()
    taking_over.cancel()
    await asyncio.wait([taking_over])
    newer.store.gate.set()
    await newer.checkpointer.release()
    await older.follow(BOTH, SHARD, CHILD)
    await write(older, 1)


async def test_a_takeover_writes_no_shard_s_checkpoint() -> None:
    older = Buffer()
    await older.begin(SHARD, CHILD)
    newer = await started(older)
    assert [list(batch) for batch in newer.store.batches] == [[ShardKey(STREAM_ARN, "*")]]


async def test_a_shard_whose_checkpoint_the_older_reader_wrote_last_is_removed() -> None:
    older = Buffer()
    await older.begin(SHARD, CHILD)
    newer = await started(older)
    # Each write stands for itself: that of the mark is refused, and this one is not.
    with pytest.raises(ReaderReplacedError):
        await write(older, 1)
    await newer.follow({CHILD.key: BEGINNING}, CHILD)
    assert newer.stored == {CHILD.key: BEGINNING}


async def test_a_reader_that_waits_names_the_one_that_it_waits_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    arns = [f"{STREAM_ARN}-a", STREAM_ARN]
    memory = CheckpointMemory()
    for arn in arns:
        other = Buffer(memory=memory)
        async with other.store:
            await other.checkpointer.follow({arn: evolve(IDENTITIES[STREAM_ARN], arn=arn)}, {}, {})
    newer = await started(Buffer(memory=memory))
    waiting = Buffer(memory=memory, clock=newer.clock)
    async with waiting.store:
        taking_over = asyncio.create_task(waiting.checkpointer.take_over(streams(*arns)))
        await waiting.clock.settle()
        taking_over.cancel()
        await asyncio.wait([taking_over])
    assert f"has taken over {STREAM_ARN} recently" in caplog.text


async def test_an_owner_is_not_taken_for_dead_because_the_store_was_down(older: Buffer) -> None:
    await started(older)
    waiting = Buffer(clock=older.clock, memory=older.memory)
    async with waiting.store:
        taking_over = asyncio.create_task(waiting.checkpointer.take_over(streams(STREAM_ARN)))
        await older.clock.advance(1)
        waiting.store.is_up.clear()
        await older.clock.advance(200)
        waiting.store.is_up.set()
        await older.clock.advance(5)
        assert not taking_over.done()
        taking_over.cancel()
        await asyncio.wait([taking_over])


async def test_of_two_readers_that_have_waited_one_goes_on_and_the_other_waits_for_it(
    older: Buffer,
    newer: Buffer,
) -> None:
    spares = [await older.beside() for _ in range(2)]
    tasks = [asyncio.create_task(one.checkpointer.take_over(streams(STREAM_ARN))) for one in spares]
    async with living(newer):
        await older.clock.advance(60)
    await older.clock.advance(2)
    assert [task.done() for task in tasks] == [True, False]
    async with living(spares[0]):
        await older.clock.advance(400)
        assert not tasks[1].done()
    await older.clock.advance(2)
    await tasks[1]


async def test_a_takeover_of_several_streams_that_meets_a_write_does_not_wait_for_itself() -> None:
    other_arn = f"{STREAM_ARN}-a"
    older = Buffer()
    await older.begin()
    identity = evolve(IDENTITIES[STREAM_ARN], arn=other_arn)
    await older.checkpointer.follow({other_arn: identity}, {}, {})
    newer = Buffer(clock=older.clock, memory=older.memory)
    async with newer.store:
        newer.store.gate.clear()
        arns = [other_arn, STREAM_ARN]
        taking_over = asyncio.create_task(newer.checkpointer.take_over(streams(*arns)))
        await older.clock.settle()
        await write(older, 1)
        newer.store.gate.set()
        await older.clock.settle()
        assert taking_over.done()
        assert older.clock.sleeps == []
