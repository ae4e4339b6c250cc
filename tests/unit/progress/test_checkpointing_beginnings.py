"""First checkpoints, what is resumed from, and what is removed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from attrs import evolve

from kinesis_publishers import ShardKey, ShardProgress, StartingPosition, StreamProgress
from kinesis_publishers.errors import InternalServiceError
from kinesis_publishers.model import Checkpoint, CheckpointWrite
from kinesis_publishers.testing.fakes import STREAM_ARN, sample_shard
from tests.unit.checkpoints.checkpoint_support import (
    BEGINNING,
    CREATED_AT,
    IDENTITIES,
    KEY,
    Buffer,
    at,
)

PARENT, CHILD, GRANDCHILD = sample_shard(0), sample_shard(1, parent=0), sample_shard(2, parent=1)
PINNED = ShardProgress(position=StartingPosition.at_timestamp(CREATED_AT + timedelta(days=5)))


async def resumed(buffer: Buffer) -> dict[str, StreamProgress]:
    """Return what the next reader of the same store continues from."""
    following = await buffer.beside()
    return await following.checkpointer.take_over({})


async def test_where_a_stream_begins_is_stored_before_anything_is_read() -> None:
    buffer = Buffer()
    await buffer.store.open()
    await buffer.follow({KEY: PINNED})
    resume = await resumed(buffer)
    assert resume == {
        STREAM_ARN: StreamProgress(identity=IDENTITIES[STREAM_ARN], shards={KEY.shard_id: PINNED})
    }


async def test_a_listing_without_news_writes_nothing(buffer: Buffer) -> None:
    buffer.checkpointer.record(KEY, at(5))
    await buffer.checkpointer.flush()
    buffer.store.batches.clear()
    await buffer.follow({KEY: BEGINNING}, PARENT)
    assert buffer.store.batches == []
    assert buffer.stored == {KEY: at(5)}


async def test_a_first_checkpoint_that_was_cut_off_is_made_again() -> None:
    buffer = Buffer()
    await buffer.store.open()
    for number in range(1, 4):  # so many batches does a first checkpoint of three generations have
        shards = (PARENT, CHILD, GRANDCHILD)
        buffer = Buffer()
        await buffer.store.open()
        fail_after(buffer, number)
        with pytest.raises(InternalServiceError):
            await buffer.follow({one.key: PINNED for one in shards}, *shards)
        assert await resumed(buffer) == {}
        again = await buffer.beside()
        await again.checkpointer.take_over({})
        later = evolve(PINNED, as_of=CREATED_AT)
        await again.follow({one.key: later for one in shards}, *shards)
        assert again.stored == {one.key: later for one in shards}


async def test_a_first_checkpoint_may_be_cut_off_any_number_of_times() -> None:
    memory = Buffer().memory
    shards = (PARENT, CHILD, GRANDCHILD)
    for _ in range(3):
        buffer = Buffer(memory=memory)
        await buffer.store.open()
        assert await buffer.checkpointer.take_over({}) == {}, "nothing has been read yet"
        fail_after(buffer, 2)
        with pytest.raises(InternalServiceError):
            await buffer.follow({one.key: PINNED for one in shards}, *shards)


@pytest.mark.parametrize("progress", [at(5), BEGINNING.ended()], ids=["after a record", "ended"])
async def test_a_shard_s_own_initial_position_does_not_count_as_read(
    progress: ShardProgress,
) -> None:
    buffer = Buffer()
    await buffer.store.open()
    fail_after(buffer, 1)
    with pytest.raises(InternalServiceError):
        await buffer.follow({PARENT.key: progress, CHILD.key: PINNED}, PARENT, CHILD)
    assert await resumed(buffer) == {}


def fail_after(buffer: Buffer, batches: int) -> None:
    save = buffer.store.save

    async def failing(writes: list[CheckpointWrite]) -> object:
        if len(buffer.store.batches) == batches:
            raise InternalServiceError("the table is down")
        return await save(writes)

    buffer.store.save = failing  # type: ignore[method-assign,assignment]


async def test_a_child_has_no_checkpoint_before_its_parent_has(buffer: Buffer) -> None:
    shards = (PARENT, GRANDCHILD, CHILD)
    await buffer.follow({one.key: BEGINNING for one in shards}, *shards)
    own_mark, *batches = [list(batch) for batch in buffer.store.batches]
    assert own_mark == [ShardKey(STREAM_ARN, "*")], "a reader that was replaced begins nothing"
    assert batches == [[CHILD.key], [GRANDCHILD.key]]


async def test_a_shard_that_has_left_the_retention_is_removed_and_recorded_no_more() -> None:
    buffer = Buffer()
    await buffer.begin(PARENT, CHILD)
    buffer.checkpointer.record(PARENT.key, at(5, ended=True))
    await buffer.follow({CHILD.key: BEGINNING}, CHILD)
    assert buffer.stored == {CHILD.key: BEGINNING}
    buffer.checkpointer.record(PARENT.key, at(6, ended=True))
    await buffer.checkpointer.flush()
    assert buffer.stored == {CHILD.key: BEGINNING}


async def test_the_stream_stays_known_when_all_its_shards_are_gone(buffer: Buffer) -> None:
    await buffer.checkpointer.follow(IDENTITIES, {}, {})
    assert buffer.stored == {}
    assert (await resumed(buffer))[STREAM_ARN].shards == {}


async def test_checkpoints_of_other_streams_are_left_alone(buffer: Buffer) -> None:
    other = ShardKey(f"{STREAM_ARN}-2", KEY.shard_id)
    checkpoint = Checkpoint(shard=other, stream_created_at=CREATED_AT, progress=at(3))
    await buffer.store.save([CheckpointWrite(checkpoint=checkpoint)])
    following = Buffer(memory=buffer.memory)
    await following.begin(PARENT)
    assert following.stored == {KEY: BEGINNING, other: at(3)}


async def test_a_stream_that_was_created_again_starts_over() -> None:
    buffer = Buffer()
    await buffer.begin(PARENT, CHILD)
    buffer.checkpointer.record(KEY, at(5))
    await buffer.checkpointer.flush()
    following = await buffer.beside()
    await following.checkpointer.take_over({})
    created_at = CREATED_AT + timedelta(days=1)
    identity = evolve(IDENTITIES[STREAM_ARN], created_at=created_at)
    await following.checkpointer.follow({STREAM_ARN: identity}, {KEY: PARENT}, {KEY: BEGINNING})
    resume = await resumed(following)
    assert resume[STREAM_ARN].identity == identity
    assert resume[STREAM_ARN].shards == {KEY.shard_id: BEGINNING}
    following.checkpointer.record(KEY, at(1))
    await following.checkpointer.flush()
    assert following.stored == {KEY: at(1)}


async def test_a_stream_that_was_created_again_is_reported_until_it_starts_over(
    buffer: Buffer,
) -> None:
    following = await buffer.beside()
    await following.checkpointer.take_over({})
    fail_after(following, 1)
    identity = evolve(IDENTITIES[STREAM_ARN], created_at=CREATED_AT + timedelta(days=1))
    shards = {one.key: one for one in (PARENT, CHILD)}
    with pytest.raises(InternalServiceError):
        await following.checkpointer.follow(
            {STREAM_ARN: identity}, shards, dict.fromkeys(shards, BEGINNING)
        )
    assert (await resumed(following))[STREAM_ARN].identity == IDENTITIES[STREAM_ARN]
