"""Shards that no worker would read, and stream consumers that would be gone for the others."""

from __future__ import annotations

import asyncio

import pytest
from attrs import evolve

from kinesis_publishers.config import CheckpointConfig
from kinesis_publishers.engine.lineage import starting_progress
from kinesis_publishers.events import ConsumerRegistered, LeasesCounted
from kinesis_publishers.model import ChildShard, ShardProgress, StartingPosition
from kinesis_publishers.progress.checkpointer import Checkpointer
from kinesis_publishers.testing.fakes import STREAM_ARN, sample_shard, shard_name
from tests.unit.checkpoints.checkpoint_support import BEGINNING, CREATED_AT, IDENTITIES, at
from tests.unit.leases.lease_support import FAILOVER, Group, config, down

# 0 and 1 are read; 1 is split into 2 and 3, and 2 is merged with 0 at once.
MERGED = [
    sample_shard(0),
    sample_shard(1),
    sample_shard(2, parent=1),
    sample_shard(3, parent=1),
    evolve(
        sample_shard(4, parent=0),
        adjacent_parent_shard_id=shard_name(2),
    ),
]
CHILD_OF_BOTH = ChildShard(
    shard_id=shard_name(4),
    parent_shard_ids=(shard_name(0), shard_name(2)),
    starting_hash_key="0",
    ending_hash_key="9",
)


async def test_a_parent_that_no_worker_has_found_yet_is_read_before_its_child(group: Group) -> None:
    one = await group.working("one", MERGED[:2])
    one.leases.shards.note_children(MERGED[0].key, [CHILD_OF_BOTH])
    await one.leases.write({MERGED[0].key: at(5, ended=True)})
    # Any worker that lists the shards now.
    known = one.leases.shards.known_progress()
    found = starting_progress(MERGED, {MERGED[1].key: BEGINNING, **known}, None)
    assert found[MERGED[2].key] == BEGINNING


async def test_a_shard_does_not_begin_at_the_end_of_another_one(group: Group) -> None:
    # An idle stream, from LATEST on; the service names no children.
    latest = ShardProgress(position=StartingPosition.at_timestamp(CREATED_AT), as_of=CREATED_AT)
    one = await group.begin("one", [])
    one.shards = [sample_shard(1), sample_shard(0)]
    await one.follow(latest)
    await one.look()
    for shard in one.shards:
        await one.leases.write({shard.key: latest.ended()})
    child = sample_shard(2, parent=0)
    one.shards = [*one.shards, child]
    await one.follow()
    assert not group.progress(child).is_ended


async def test_what_no_worker_has_room_for_goes_to_one_that_has_more_than_its_share(
    group: Group,
) -> None:
    shards = [sample_shard(number) for number in range(6)]
    small = await group.begin("small", shards, config("s", max_leases=1))
    large = await group.begin("large", shards)
    await small.look()
    assert small.events[-1] == LeasesCounted(
        worker="s", current=1, total=6, workers=1, free=5, spilled=5
    )
    for _ in range(5 * int(FAILOVER)):
        await group.clock.advance(1)
        for one in (small, large):
            await one.look()
            await one.hand_over()
    assert (len(small.readable), len(large.readable)) == (1, 5)
    assert large.events[-1] == LeasesCounted(
        worker="large", current=5, total=6, workers=2, free=0, spilled=0
    )


async def test_a_worker_that_cannot_see_the_others_removes_no_consumer(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    shards = [sample_shard(0)]
    busy = await group.working("busy", shards)
    busy.leases.shards.note_event(ConsumerRegistered(stream_arn=STREAM_ARN, consumer_arn="arn"))
    await busy.look_for(FAILOVER / 2, group.clock)
    idle = await group.working("idle", shards)
    idle.store.error = down()
    await group.clock.advance(2 * FAILOVER)
    await Checkpointer(idle.leases, CheckpointConfig(), group.clock).release()
    assert "so others wait for it" in caplog.text
    assert idle.leases.shards.unused_consumers() == set()


async def test_the_last_worker_with_a_lease_leaves_the_consumer_to_one_without(
    group: Group,
) -> None:
    shards = [sample_shard(0)]
    first = await group.working("first", shards)
    first.leases.shards.note_event(ConsumerRegistered(stream_arn=STREAM_ARN, consumer_arn="arn"))
    second = await group.working("second", shards)
    closing = asyncio.create_task(first.leases.close())
    await second.look_for(2, group.clock)
    await group.clock.advance(2)
    await closing
    assert first.leases.shards.unused_consumers() == set()
    closing = asyncio.create_task(second.leases.close())
    await group.clock.advance(4)
    await closing
    assert second.leases.shards.unused_consumers() == {"arn"}


@pytest.mark.parametrize("is_ended", [False, True])
async def test_rows_of_shards_that_are_newer_than_a_listing_stay(
    group: Group, is_ended: bool
) -> None:
    old = [sample_shard(0), sample_shard(1)]
    new = [sample_shard(2, parent=0), sample_shard(3, parent=2)]
    first = await group.begin("first", [*old, *new])
    if is_ended:
        first.leases.shards.mine(new)
        await first.leases.taker.look()
        first.leases.shards.mine(new)
        await first.leases.write({one.key: at(5, ended=True) for one in new})
    # Its listing is older, and it knows the child of a shard that it has read to its end.
    late = await group.begin("late", [*old, sample_shard(4, parent=1)])
    await late.follow()
    assert {one.key for one in (*old, *new)} < group.rows.keys()


async def test_a_shard_that_left_unread_after_its_worker_died_keeps_no_row(group: Group) -> None:
    shards = [sample_shard(0), sample_shard(1), sample_shard(2)]
    await group.working("dead", shards)
    # It comes when the shard is gone, and its fetcher reports that at once.
    late = await group.begin("late", shards[1:])
    assert shards[0].key in group.rows, "its worker may be alive"
    await late.look_for(FAILOVER + 1, group.clock)
    # The row counts as known progress of the shard.
    known = late.leases.shards.known_progress()
    assert shards[0].key in known
    await late.leases.follow(IDENTITIES, {one.key: one for one in shards[1:]}, known)
    assert shards[0].key not in group.rows


async def test_no_row_is_removed_because_the_store_was_away(group: Group) -> None:
    shards = [sample_shard(0), sample_shard(1), sample_shard(2)]
    worker = await group.working("worker", shards)
    # It could not renew its leases, nor see that others did.
    await group.clock.advance(FAILOVER)
    worker.shards = shards[1:]
    await worker.follow()
    await worker.leases.write({shards[0].key: at(5, ended=True)})
    assert group.progress(shards[0]).is_ended
