"""What several hands do to the same rows: nothing is lost, robbed or set back.

What is named like ``testUpdateLostLease`` is a scenario of the KCL's tests of its renewer or
coordinator.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from kinesis_publishers.config import CheckpointConfig
from kinesis_publishers.errors import (
    ConnectionFailedError,
    LeaseError,
    ReaderReplacedError,
    StaleCheckpointError,
)
from kinesis_publishers.events import LeaseLost, LeaseReleased
from kinesis_publishers.leases.rules import lease_of, with_lease
from kinesis_publishers.model import (
    CheckpointWrite,
    Shard,
)
from kinesis_publishers.progress.checkpointer import Checkpointer
from kinesis_publishers.progress.single_reader import SingleReader
from kinesis_publishers.testing.fakes import STREAM_ARN, sample_shard
from tests.unit.checkpoints.checkpoint_support import at
from tests.unit.leases.lease_support import (
    APPLICATION,
    BEGINNING,
    FAILOVER,
    HANDOVER,
    IDENTITIES,
    CountingStore,
    Group,
    Worker,
    down,
)

SHARDS = [sample_shard(number) for number in range(2)]
CONFIG = CheckpointConfig(application=APPLICATION, store="memory", interval_seconds=5.0)


async def asking(group: Group) -> tuple[Worker, Worker]:
    """Return a worker that has both shards, and one that has asked for one of them."""
    one, thief = [await group.begin(name, SHARDS) for name in ("one", "thief")]
    await one.look()
    await thief.look()
    return one, thief


async def rewrite(group: Group, shard: Shard, **to: Any) -> None:
    """Let another hand change the lease in the row of a shard, as it is now."""
    store = CountingStore(group.clock, group.memory)
    await store.open()
    row = (await store.load())[shard.key]
    changed = with_lease(row, evolve(lease_of(row), **to))
    await store.save([CheckpointWrite(checkpoint=changed, expected=row.version)])


@pytest.mark.parametrize(
    ("change", "looks", "is_held"),
    [
        pytest.param({}, True, True, id="testSimpleRenew, testUpdateLease, testUpdateCheckpoint"),
        pytest.param({"owner": "bar"}, False, False, id="testUpdateLostLease"),
        pytest.param({"owner": "bar"}, True, False, id="testLeaseLoss, testUpdateOldLease"),
        pytest.param({"owner": None}, False, False, id="evicted"),
        pytest.param(
            {"owner": "bar", "leaving": "one"},
            True,
            True,
            id="testRenewalRenewShutdownRequestedLeasesIfCheckpointOwnerMatches",
        ),
        pytest.param(
            {"owner": "bar", "leaving": "third"},
            True,
            False,
            id="testRenewalDropsLeaseWhenCheckpointOwnerMismatch",
        ),
    ],
)
async def test_the_scenarios_of_the_kcls_renewer(
    group: Group,
    change: dict[str, str],
    *,
    looks: bool,
    is_held: bool,
) -> None:
    """Only who has the lease records progress; who ``looks`` notices before that it is lost."""
    one = await group.working("one", SHARDS)
    if change:
        await rewrite(group, SHARDS[0], **change)
    if looks:
        await one.look()
    await one.leases.write({SHARDS[0].key: at(1), SHARDS[1].key: at(1)})
    assert one.leases.get(SHARDS[0].key) == (at(1) if is_held else None)
    assert group.progress(SHARDS[0]) == (at(1) if is_held else BEGINNING)
    assert group.progress(SHARDS[1]) == at(1)
    await group.clock.advance(FAILOVER / 2)
    await one.leases.taker.look()
    assert one.leases.get(SHARDS[1].key) == at(1)


async def test_two_workers_of_one_name_never_have_the_same_shard(group: Group) -> None:
    first = await group.begin("same", SHARDS[:1])
    second = await group.begin("same", SHARDS[:1])
    first.leases.shards.mine(first.shards)
    second.leases.shards.mine(second.shards)
    load, second.store.error = second.store.load, None

    async def load_then_be_late() -> object:
        rows = await load()
        await first.look()
        return rows

    second.store.load = load_then_be_late  # type: ignore[assignment, method-assign]
    await second.leases.taker.look()
    assert (first.readable, second.readable) == ({0}, set())


async def test_the_younger_of_two_workers_of_one_name_ends_with_an_error(group: Group) -> None:
    first = await group.working("same", SHARDS)
    await first.leases.write({SHARDS[0].key: at(1), SHARDS[1].key: at(1)})
    second = await group.working("same", SHARDS)
    assert (first.readable, second.readable) == ({0, 1}, set())
    for _ in range(2):
        # The first time it could be the last write of one that was killed.
        await second.look()
        await group.clock.advance(FAILOVER / 2)
        await first.look()
    with pytest.raises(LeaseError, match=r"kinesis\.lease\.workerid"):
        await second.look()
    await second.leases.close()
    assert first.readable == {0, 1}
    assert [group.lease(one).owner for one in SHARDS] == ["same", "same"]
    assert [group.progress(one) for one in SHARDS] == [at(1), at(1)]


async def test_a_hand_over_to_a_former_run_of_a_worker_shows_no_second_one(group: Group) -> None:
    one, _ = await asking(group)
    again = await group.begin("thief", SHARDS)
    await one.look()
    (key,) = one.leases.shards.leaving()
    await one.leases.write({key: at(1)})
    one.store.loses_answers = True
    await again.look()
    with pytest.raises(ConnectionFailedError):
        await one.leases.shards.release([key])
    released = group.rows[key]
    # It is not written again and again: by that, a worker knows another process of its name.
    for _ in range(3):
        await again.look()
        await one.leases.shards.release([key])
    assert group.rows[key] == released
    await again.look_for(FAILOVER, group.clock)
    assert again.leases.get(key) == at(1)


async def test_a_stop_while_another_worker_asks(group: Group) -> None:
    one, _ = await asking(group)
    await one.leases.close()
    assert {group.lease(shard).holder for shard in SHARDS} == {None, "thief"}
    assert sum(isinstance(event, LeaseReleased) for event in one.events) == len(SHARDS)
    assert not any(isinstance(event, LeaseLost) for event in one.events)


async def test_nothing_more_is_delivered_of_what_another_worker_waits_for(group: Group) -> None:
    # A process that is suspended just then goes on when the other one's patience has ended.
    one, thief = await asking(group)
    await one.look()
    await one.look_for(HANDOVER - 1, group.clock)
    await thief.look()
    await group.clock.advance(1)
    await thief.look()
    assert one.readable | thief.readable == {0, 1}
    assert not one.readable & thief.readable


async def test_what_was_asked_for_before_a_stop_is_released_when_it_comes(group: Group) -> None:
    one, thief = await asking(group)
    closing = asyncio.create_task(thief.leases.close())
    await group.clock.settle()
    await one.look()
    await one.hand_over()
    await group.clock.advance(2)
    await closing
    assert {group.lease(shard).holder for shard in SHARDS} == {None, "one"}


async def test_what_was_lost_is_not_taken_before_the_fetcher_knows(group: Group) -> None:
    one = await group.working("one", SHARDS[:1])
    other = await group.working("other", SHARDS[:1])
    await other.look_for(FAILOVER, group.clock)
    await other.leases.write({SHARDS[0].key: at(200)})
    await other.leases.close()
    await one.leases.taker.look()
    assert one.leases.shards.mine(one.shards) == set()
    # Of the time before: dropped, and not written over what the other one has done.
    await one.leases.write({SHARDS[0].key: at(100)})
    assert group.progress(SHARDS[0]) == at(200)
    await one.look()
    assert one.readable == {0}
    assert one.leases.get(SHARDS[0].key) == at(200)


async def test_a_checkpoint_whose_answer_was_lost_is_not_set_back_by_a_renewal(
    group: Group,
) -> None:
    # Rules 3 and 4.
    one = await group.working("one", SHARDS[:1])
    one.store.loses_answers = True
    with pytest.raises(ConnectionFailedError):
        await one.leases.write({SHARDS[0].key: at(7)})
    one.store.loses_answers = False
    await group.clock.advance(FAILOVER / 2)
    await one.look()
    assert group.progress(SHARDS[0]) == at(7)
    assert one.readable == {0}


async def test_nothing_is_delivered_of_what_may_have_been_released(group: Group) -> None:
    one = await group.working("one", SHARDS[:1])
    one.store.loses_answers = True
    with pytest.raises(ConnectionFailedError):
        await one.leases.shards.release([SHARDS[0].key])
    assert one.readable == set()


async def test_an_end_whose_write_has_failed_is_written_when_the_store_is_back(
    group: Group,
) -> None:
    one = await group.working("one", SHARDS)
    checkpointer = Checkpointer(one.leases, CONFIG, group.clock)
    async with checkpointer.running():
        one.store.error = down()
        checkpointer.record(SHARDS[0].key, at(5, ended=True))
        await group.clock.advance(1)
        assert not group.progress(SHARDS[0]).is_ended
        one.store.error = None
        await group.clock.advance(5)
        assert group.progress(SHARDS[0]).is_ended
        one.store.error = down()
        checkpointer.record(SHARDS[1].key, at(6))
        await group.clock.advance(5)
        one.store.error = None
    # What has failed for a while does not keep the leases.
    await checkpointer.release()
    assert [group.lease(shard).owner for shard in SHARDS] == [None, None]


async def recording(group: Group, worker: Worker, error: type[Exception] | None) -> None:
    """Process a record of the first shard, and end."""
    checkpointer = Checkpointer(worker.leases, CONFIG, group.clock)
    with suppress(ZeroDivisionError):
        async with checkpointer.running():
            checkpointer.record(SHARDS[0].key, at(5))
            if error is not None:
                raise error


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
async def test_a_last_write_that_takes_too_long_is_made_again(
    group: Group, error: type[Exception] | None
) -> None:
    one = await group.working("one", SHARDS)
    one.store.write_seconds = FAILOVER
    ending = asyncio.create_task(recording(group, one, error))
    await group.clock.advance(FAILOVER / 2)
    one.store.write_seconds = 0.0
    await group.clock.advance(FAILOVER / 2)
    await ending
    assert group.progress(SHARDS[0]) == at(5)


async def test_a_last_write_is_given_up_after_ten_seconds(group: Group) -> None:
    one = await group.working("one", SHARDS)
    one.store.write_seconds = FAILOVER
    ending = asyncio.create_task(recording(group, one, None))
    await group.clock.advance(10 + FAILOVER / 3)
    assert ending.done()
    with pytest.raises(ConnectionFailedError, match="has not answered in"):
        await ending


async def test_a_row_that_is_removed_under_a_worker_is_lost_and_said(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    one = await group.working("one", SHARDS)
    key = SHARDS[1].key
    await one.leases.write({key: at(3)})
    del group.rows[key]
    with caplog.at_level("WARNING", "kinesis_publishers.leases"):
        await one.look()
    assert one.readable == {0}
    assert LeaseLost(shard=key, owner=None, is_removed=True) in one.events
    assert f"The row of {key} was removed, and the checkpoint with it" in caplog.text
    # Not where it had read, for what waited to be processed is dropped.
    assert one.leases.shards.known_progress()[key] == at(3)
    await one.follow(at(9))
    assert group.progress(SHARDS[1]) == at(3)
    await one.look()
    assert one.readable == {0, 1}


async def test_the_age_of_an_idle_shard_is_written_with_the_next_renewal(group: Group) -> None:
    one = await group.working("one", SHARDS[:1])
    checkpointer = Checkpointer(one.leases, CONFIG, group.clock)
    seen = [at(3, as_of=group.clock.now() + timedelta(minutes=n)) for n in (0, 30)]
    checkpointer.record(SHARDS[0].key, seen[0])
    await checkpointer.flush()
    checkpointer.record(SHARDS[0].key, seen[1])
    calls = one.store.calls["save"]
    await checkpointer.flush()
    assert one.store.calls["save"] == calls, "a call of its own"
    await one.look_for(FAILOVER / 2, group.clock)
    assert group.progress(SHARDS[0]) == seen[1]


async def test_a_hand_over_is_passed_on_to_a_third_worker(group: Group) -> None:
    one, thief = await asking(group)
    await one.look()
    await one.hand_over()
    # What a third one writes before the thief one has looked.
    (found,) = (shard for shard in SHARDS if group.lease(shard).owner == "thief")
    await rewrite(group, found, owner="third", leaving="thief")
    await thief.look()
    assert group.lease(found) == evolve(group.lease(found), owner="third", leaving=None)
    assert thief.readable == set()


async def single_reader(group: Group) -> SingleReader:
    store = CountingStore(group.clock, group.memory)
    await store.open()
    return SingleReader(store, group.clock)


async def test_a_reader_without_leases_is_replaced_by_workers(group: Group) -> None:
    # An upgrade: its checkpoints are where the workers begin.
    alone = await single_reader(group)
    key = SHARDS[0].key
    await alone.take_over(IDENTITIES)
    await alone.follow(IDENTITIES, {key: SHARDS[0]}, {key: BEGINNING})
    await alone.write({key: at(3)})
    one = await group.working("one", SHARDS[:1])
    assert (one.readable, one.leases.get(key)) == ({0}, at(3))
    with pytest.raises(ReaderReplacedError):
        await alone.write({key: at(4)})
    assert group.progress(SHARDS[0]) == at(3)


async def test_a_reader_without_leases_ends_a_worker_and_the_way_back(group: Group) -> None:
    key = SHARDS[0].key
    one = await group.working("one", SHARDS[:1])
    await one.leases.write({key: at(3)})
    alone = await single_reader(group)
    found = await alone.take_over(IDENTITIES)
    assert found[STREAM_ARN].shards == {key.shard_id: at(3)}
    await alone.follow(IDENTITIES, {key: SHARDS[0]}, {key: at(3)})
    await alone.write({key: at(4)})
    with pytest.raises(LeaseError, match=r"kinesis\.lease\.enabled"):
        await one.look()
    await one.leases.close()
    assert group.progress(SHARDS[0]) == at(4)
    again = await group.working("again", SHARDS[:1])
    await again.look_for(FAILOVER, group.clock)
    assert again.leases.get(key) == at(4)


async def test_leases_are_released_although_a_leader_cannot_be_told(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def report(store: CountingStore, worker: str, *, is_leaving: bool = False) -> bool:
        if is_leaving:
            raise down()
        return False

    monkeypatch.setattr(CountingStore, "report", report, raising=False)
    one = await group.working("one", SHARDS[:1])
    await Checkpointer(one.leases, CONFIG, group.clock).release()
    assert group.lease(SHARDS[0]).owner is None


async def test_a_transaction_of_a_lost_shard_leaves_the_row_of_its_new_worker_alone() -> None:
    """A worker that stood still in a transaction, which has ended meanwhile, asks how it ended."""
    group, shard = Group(), SHARDS[0]
    slow = await group.working("slow", [shard])
    checkpointer = Checkpointer(slow.leases, CONFIG, group.clock)
    checkpointer.join(shard.key, at(1), None, {})
    new = await group.begin("new", [shard])
    await new.look_for(2 * FAILOVER, group.clock)
    before = group.rows[shard.key]
    await slow.look()
    with pytest.raises(StaleCheckpointError):
        await checkpointer.settle(shard.key, is_committed=None)
    assert group.rows[shard.key] == before
    await new.look()
    assert new.readable == {0}
