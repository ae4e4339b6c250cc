"""The rows of shards: created before they are needed, once, and removed when nobody needs them.

What is named like ``testParentShardLeaseDeletedSplitCase`` is a scenario of the KCL's tests.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from attrs import evolve

from kinesis_publishers.model import (
    ChildShard,
    Shard,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StreamIdentity,
)
from kinesis_publishers.testing.fakes import STREAM_ARN, sample_shard, shard_name
from tests.unit.checkpoints.checkpoint_support import CREATED_AT, at
from tests.unit.leases.lease_support import (
    BEGINNING,
    FAILOVER,
    IDENTITIES,
    Group,
)

SHARDS = [sample_shard(number) for number in range(2)]
FAMILY = [sample_shard(0), sample_shard(1, parent=0), sample_shard(2, parent=0)]
CHILDREN = tuple(
    ChildShard(
        shard_id=shard_name(number),
        parent_shard_ids=(shard_name(0),),
        starting_hash_key="0",
        ending_hash_key="9",
    )
    for number in (1, 2)
)


async def test_children_are_created_before_the_end_is_written(group: Group) -> None:
    # Rule 10: a crash between the two leaves nothing unread.
    one = await group.working("one", FAMILY[:1])
    one.leases.shards.note_children(FAMILY[0].key, CHILDREN)
    writes = []
    save = one.store.save

    async def note(batch: object) -> object:
        writes.append([write.shard.shard_id[-1] for write in batch])  # type: ignore[attr-defined]
        return await save(batch)  # type: ignore[arg-type]

    one.store.save = note  # type: ignore[assignment, method-assign]
    await one.leases.write({FAMILY[0].key: at(5, ended=True)})
    assert writes == [["1", "2"], ["0"]]
    assert group.progress(FAMILY[1]) == BEGINNING
    assert group.lease(FAMILY[1]).parents == (shard_name(0),)
    assert group.lease(FAMILY[0]).children == (shard_name(1), shard_name(2))


async def test_the_end_of_a_shard_that_another_worker_has_ended_is_dropped(group: Group) -> None:
    one = await group.working("one", FAMILY[:1])
    heir = await group.working("heir", FAMILY[:1])
    await heir.look_for(FAILOVER, group.clock)
    for worker, place in ((heir, 9), (one, 5)):
        worker.leases.shards.note_children(FAMILY[0].key, CHILDREN)
        await worker.leases.write({FAMILY[0].key: at(place, ended=True)})
    assert group.progress(FAMILY[0]) == at(9, ended=True)


async def test_rows_that_others_create_meanwhile_are_left_alone(group: Group) -> None:
    first = await group.begin("first", [])
    second = await group.begin("second", [])
    first.shards = second.shards = FAMILY
    await first.follow()
    first.leases.shards.mine(FAMILY[1:])
    await first.leases.taker.look()
    await second.follow()
    assert [group.lease(one).owner for one in FAMILY] == [None, "first", "first"]


async def test_rows_of_a_stream_that_was_created_again_are_not_undone(group: Group) -> None:
    # By a worker that has not noticed it yet.
    late = await group.begin("late", SHARDS[:1])
    late.leases.shards.mine(late.shards)
    new = await group.begin("new", SHARDS[:1])
    created_at = CREATED_AT + timedelta(days=1)
    again = {STREAM_ARN: StreamIdentity(name="orders", arn=STREAM_ARN, created_at=created_at)}
    await new.leases.follow(again, {SHARDS[0].key: SHARDS[0]}, {SHARDS[0].key: BEGINNING})
    await new.look()
    await new.leases.write({SHARDS[0].key: at(9)})
    await late.look()
    await late.follow()
    assert group.progress(SHARDS[0]) == at(9)
    assert group.lease(SHARDS[0]).owner == "new"


@pytest.mark.parametrize(
    ("second_child", "is_removed"),
    [
        pytest.param(BEGINNING, False, id="testParentShardLeaseNotDeletedWhenChildIsAtTrim"),
        pytest.param(
            ShardProgress(position=StartingPosition.at_timestamp(CREATED_AT)),
            False,
            id="testParentShardLeaseNotDeletedWhenChildIsAtTimestamp",
        ),
        pytest.param(at(7), True, id="testParentShardLeaseDeletedSplitCase"),
        pytest.param(at(7, ended=True), True, id="the child has ended"),
    ],
)
async def test_rows_are_removed_when_all_children_have_begun(
    group: Group,
    second_child: ShardProgress,
    *,
    is_removed: bool,
) -> None:
    # Rule 10.
    one = await group.working("one", FAMILY)
    parent, first, second = (shard.key for shard in FAMILY)
    await one.leases.write({parent: at(5, ended=True), first: at(6), second: second_child})
    await one.follow()
    assert parent in group.rows, "it is still listed"
    one.shards = FAMILY[1:]
    await one.follow()
    assert (parent not in group.rows) is is_removed


async def test_rows_of_shards_that_have_left_unread_go_when_that_is_known(group: Group) -> None:
    shards = [sample_shard(number) for number in range(3)]
    one = await group.begin("one", shards)
    one.shards = shards[1:]

    async def follow(*known: Shard) -> set[ShardKey]:
        progress = {shard.key: BEGINNING for shard in known}
        await one.leases.follow(IDENTITIES, {one.key: one for one in shards[1:]}, progress)
        return {key for key in group.rows if key.shard_id != "*"}

    everything = {shard.key for shard in shards}
    assert await follow(*shards) == everything, "the loss has not been reported yet"
    assert await follow(*shards[1:]) == everything - {shards[0].key}
    # A shard that is newer than a listing that is late stays.
    one.shards = shards[1:2]
    late = {shards[1].key: shards[1]}
    await one.leases.follow(IDENTITIES, late, {shards[1].key: BEGINNING})
    assert shards[2].key in group.rows


async def test_the_first_of_several_workers_fixes_where_latest_begins(group: Group) -> None:
    workers = [await group.begin(name, []) for name in ("a", "b", "c")]
    for number, one in enumerate(workers):
        one.shards = SHARDS
        await one.follow(evolve(BEGINNING, as_of=CREATED_AT + timedelta(seconds=number)))
    for one in workers:
        await one.leases.taker.look()
        assert {p.as_of for p in one.leases.shards.known_progress().values()} == {CREATED_AT}
    assert ShardKey(STREAM_ARN, "*") in group.rows


async def test_shards_that_another_worker_is_about_to_create_begin_where_it_begins(
    group: Group,
) -> None:
    # The KCL's table has no mark that the first rows are complete: it looks as if they were.
    shards = [sample_shard(number) for number in range(3)]
    latest = ShardProgress(position=StartingPosition.at_timestamp(CREATED_AT), as_of=CREATED_AT)
    first = await group.begin("first", [])
    first.shards = shards[:1]
    await first.follow(latest)
    second = await group.begin("second", shards[:2])
    assert group.progress(shards[1]) == latest
    # Once a record has been processed, what is found has come later.
    await first.look()
    await first.leases.write({shards[0].key: at(7)})
    await second.leases.taker.look()
    second.shards = shards
    await second.follow()
    assert group.progress(shards[2]) == BEGINNING
