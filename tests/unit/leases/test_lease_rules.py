"""The rules by which workers share shards.

What is named like ``testNonGreedyTake`` is a scenario of the KCL's tests of its taker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.checkpoints import CheckpointMemory
from kinesis_publishers.leases.rules import (
    Sightings,
    View,
    free_to_take,
    spilled,
    to_request,
    to_settle,
)
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointVersion,
    Lease,
    ShardKey,
    StoredCheckpoint,
)
from kinesis_publishers.testing.fakes import STREAM_ARN, sample_shard, shard_name
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.checkpoints.checkpoint_support import BEGINNING, CREATED_AT
from tests.unit.leases.lease_support import FAILOVER, HANDOVER, Worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ME = "me"


def key(number: int) -> ShardKey:
    return ShardKey(STREAM_ARN, shard_name(number))


def row(number: int, lease: Lease, version: int = 1) -> StoredCheckpoint:
    checkpoint = Checkpoint(
        shard=key(number), stream_created_at=CREATED_AT, progress=BEGINNING, lease=lease
    )
    return StoredCheckpoint(
        checkpoint=checkpoint, version=CheckpointVersion(number=version, writer="store")
    )


def view(
    leases: Sequence[Lease], *, ages: Mapping[int, float] | None = None, most: int | None = None
) -> View:
    """Return what this worker sees; rows are fresh unless ``ages`` says more."""
    return View(
        worker=_ME,
        rows={key(number): row(number, one) for number, one in enumerate(leases)},
        ages={key(number): (ages or {}).get(number, 0.0) for number in range(len(leases))},
        own={key(number) for number, one in enumerate(leases) if one.holder == _ME},
        failover_seconds=FAILOVER,
        max_leases=most,
    )


def owned(*counts: int) -> list[Lease]:
    """Return leases: so many of this worker, and of each of the others."""
    names = (_ME, *(f"other{number}" for number in range(1, len(counts))))
    return [
        Lease(owner=name) for name, count in zip(names, counts, strict=True) for _ in range(count)
    ]


def numbers(keys: Sequence[ShardKey]) -> list[int]:
    return sorted(int(one.shard_id[-12:]) for one in keys)


def test_a_version_that_changes_is_young_again() -> None:
    # Rule 2; testNotTakeUpdatedLease.
    seen = Sightings(FAILOVER)
    seen.note({key(0): row(0, Lease(owner="other"))}, 5.0)
    seen.note({key(0): row(0, Lease(owner="other"))}, 9.0)
    assert seen.ages(12.0) == {key(0): 7.0}
    seen.note({key(0): row(0, Lease(owner="other"), version=2)}, 13.0)
    assert seen.ages(14.0) == {key(0): 1.0}
    seen.note({}, 15.0)
    assert seen.ages(16.0) == {}


def test_nothing_is_old_after_a_gap_between_two_looks() -> None:
    seen = Sightings(5.0)
    rows = {key(0): row(0, Lease(owner="other"))}
    seen.note(rows, 0.0)
    seen.note(rows, 5.0)
    assert seen.ages(5.0) == {key(0): 5.0}
    seen.note(rows, 10.1)
    assert seen.ages(10.1) == {key(0): 0.0}


@pytest.mark.parametrize(
    ("lease", "age", "is_free"),
    [
        (Lease(), 0.0, True),
        (Lease(owner="other"), FAILOVER - 0.1, False),
        (Lease(owner="other"), FAILOVER, True),
        (Lease(owner="other", leaving="third"), FAILOVER, True),
        (Lease(owner=_ME), FAILOVER, False),  # its own: it renews it
    ],
)
def test_what_is_free(lease: Lease, age: float, *, is_free: bool) -> None:
    assert view([lease], ages={0: age}).is_free(key(0)) is is_free


def test_only_what_may_start_is_taken() -> None:
    # Rule 8: a child waits for its parents.
    assert free_to_take(view([Lease(), Lease()]), [key(1)]) == [key(1)]
    assert free_to_take(view([Lease(), Lease()]), [key(7)]) == []


_LATER = FAILOVER
_VERY_OLD = 3 * FAILOVER


@pytest.mark.parametrize(
    ("leases", "age", "takes", "asks"),
    [
        pytest.param([Lease()], 0, 1, 0, id="testSimpleLeaseTake"),
        pytest.param(owned(0, 1), 0, 0, 0, id="testNotTakeNewOwnedLease"),
        pytest.param(owned(0, 1), _LATER, 1, 0, id="testNotTakeNewOwnedLease, later"),
        pytest.param([*owned(0, 1), *[Lease()] * 3], 0, 2, 0, id="testNonGreedyTake"),
        pytest.param([*owned(0, 2, 2), *[Lease()] * 8], 0, 4, 0, id="three workers"),
        # The KCL takes all three of them, beyond its share.
        pytest.param([*owned(0, 1), *[Lease()] * 3], _VERY_OLD, 4, 0, id="testVeryOldLeaseTaker"),
        pytest.param(owned(1, 2, 2), 0, 0, 0, id="testNoStealWhenOffByOne"),
        pytest.param(owned(1, 2), 0, 0, 0, id="off by one, two workers"),
        pytest.param(owned(0, 1), 0, 0, 0, id="the only shard of another worker"),
        pytest.param(owned(0, 1, 5), 0, 0, 1, id="testSteal"),
        pytest.param(owned(1, 3), 0, 0, 1, id="one of three"),
        pytest.param(owned(2, 3, 4), 0, 0, 1, id="one of four"),
        pytest.param(owned(3, 3), 0, 0, 0, id="level"),
        pytest.param(owned(5, 1), 0, 0, 0, id="more than the other one"),
        pytest.param([Lease(), *owned(0, 3)], 0, 1, 0, id="testNoStealWhenExpiredLeases"),
    ],
)
def test_the_scenarios_of_the_kcls_taker(
    leases: list[Lease], age: float, takes: int, asks: int
) -> None:
    """Case by case; the rows that others have are all of one ``age``."""
    seen = view(leases, ages=dict.fromkeys(range(len(leases)), age))
    keys = [key(number) for number in range(len(leases))]
    asked = to_request(seen, keys)
    assert (len(free_to_take(seen, keys)), len(asked)) == (takes, asks)
    owners = [one.owner for one in leases]
    for one in asked:
        owner = owners[int(one.shard_id[-12:])]
        assert owners.count(owner) == max(map(owners.count, owners))


def test_who_counts_as_a_worker() -> None:
    # test_computeLeaseCounts_noExpiredLease and _withExpiredLease.
    leases = [Lease(), *owned(1, 1, 1)]
    alive = {_ME: [key(1)], "other1": [key(2)], "other2": [key(3)]}
    assert view(leases).owners() == alive
    silent = dict.fromkeys(range(4), FAILOVER)
    assert view(leases, ages=silent).owners() == {_ME: [key(1)]}


def test_what_nobody_has_taken_for_long_comes_first() -> None:
    # test_veryOldLeaseDurationNanosMultiplierGetsCorrectLeases.
    leases = [*owned(0, 4), *[Lease(owner="dead")] * 20]
    ages = dict.fromkeys(range(4, 24), FAILOVER) | {7: _VERY_OLD, 19: _VERY_OLD}
    taken = free_to_take(view(leases, ages=ages, most=2), [key(number) for number in range(24)])
    assert numbers(taken) == [7, 19]


def test_never_more_than_the_worker_may_have() -> None:
    # performAssignment_moreLeasesThanMaxConfigured_assertSomeUnassignedLeases.
    leases = [*owned(2), *[Lease()] * 5]
    keys = [key(number) for number in range(7)]
    assert len(free_to_take(view(leases, most=3), keys)) == 1
    assert free_to_take(view(leases, most=2), keys) == []
    assert to_request(view(owned(2, 9), most=2), [key(number) for number in range(11)]) == []
    assert spilled(view(leases, most=3), keys) == 4


@pytest.mark.parametrize("age", [0.0, FAILOVER])
def test_nothing_is_asked_for_while_there_is_something_free(age: float) -> None:
    leases = [*owned(0, 8), Lease(owner="dead")]
    asked = to_request(view(leases, ages={8: age}), [key(number) for number in range(9)])
    assert bool(asked) is (age < FAILOVER)


def test_nothing_more_is_asked_for_during_a_hand_over() -> None:
    leases = [Lease(owner=_ME, leaving="other1"), *owned(0, 8)]
    waiting = evolve(view(leases), own={key(0)})
    assert to_request(waiting, [key(number) for number in range(9)]) == []


def test_a_row_that_is_removed_while_it_is_taken_does_not_keep_from_asking() -> None:
    taken = evolve(view(owned(1, 8)), own={key(0), key(9)})
    assert to_request(taken, [key(number) for number in range(10)]) != []


def test_the_load_decides_where_it_is_known() -> None:
    # Rule 8: two workers with as many shards each, and one of them has all the traffic.
    busy = [Lease(owner="other1", bytes_per_second=1_000_000)] * 3
    idle = [Lease(owner=_ME, bytes_per_second=0)] * 3
    keys = [key(number) for number in range(6)]
    assert len(to_request(view([*idle, *busy]), keys)) == 1
    level = [Lease(owner=name, bytes_per_second=1000) for name in (_ME, "other1") * 3]
    assert to_request(view(level), keys) == []


def test_of_next_to_no_load_the_number_of_shards_decides() -> None:
    # What is left of the averages of a stream that has become idle.
    keys = [key(number) for number in range(8)]
    left = [Lease(owner="other1", bytes_per_second=rate) for rate in (3, 1, 0, 0)]
    idle = [Lease(owner=_ME, bytes_per_second=0)] * 4
    assert to_request(view([*idle, *left]), keys) == []
    assert len(to_request(view([*idle[1:], *left, left[0]]), keys)) == 1


@pytest.mark.parametrize(
    ("lease", "age", "seconds", "is_settled"),
    [
        (Lease(owner=_ME, leaving="other1"), 1.0, 1.0, False),
        (Lease(owner=_ME), 0.0, 1.0, True),
        (Lease(owner=_ME, leaving="other1"), FAILOVER, 11.0, True),
        (Lease(owner=_ME, leaving="other1"), 1.0, HANDOVER, True),
        (Lease(owner="third"), 0.0, HANDOVER, False),
    ],
)
def test_when_a_hand_over_is_settled(
    lease: Lease, age: float, seconds: float, *, is_settled: bool
) -> None:
    # Rule 9.
    found = to_settle(view([lease], ages={0: age}), {key(0): seconds}, HANDOVER)
    assert found == ([key(0)] if is_settled else [])


WORKERS = ["me", "a", "b", "c", "d"]
RATES = st.one_of(st.none(), st.integers(0, 10_000_000))
OWNED = st.builds(Lease, owner=st.sampled_from(WORKERS), bytes_per_second=RATES)


def _seen_by(worker: str, leases: Sequence[Lease]) -> View:
    own = {key(number) for number, one in enumerate(leases) if one.owner == worker}
    return evolve(view(leases), worker=worker, own=own)


@given(st.lists(OWNED, min_size=1, max_size=40))
def test_shards_never_go_back_and_forth(leases: list[Lease]) -> None:
    # Each step brings the loads closer together; so there is an end, and nothing is asked for then.
    keys = [key(number) for number in range(len(leases))]
    weights = view(leases).weights()

    def spread(owners: Mapping[str, Sequence[ShardKey]]) -> float:
        return sum(sum(weights[one] for one in keys) ** 2 for keys in owners.values())

    has_moved = True
    while has_moved:
        has_moved = False
        for worker in WORKERS:
            seen = _seen_by(worker, leases)
            before = spread(seen.owners())
            for one in to_request(seen, keys):
                number = int(one.shard_id[-12:])
                leases[number] = Lease(
                    owner=worker, bytes_per_second=leases[number].bytes_per_second
                )
                after = spread(_seen_by(worker, leases).owners())
                assert after < before
                before, has_moved = after, True


@given(
    st.lists(st.one_of(OWNED, st.builds(Lease)), min_size=1, max_size=40),
    st.sets(st.integers(0, 39)),
    st.integers(1, 12),
)
def test_what_is_taken_is_free_and_fits(
    leases: list[Lease], startable: set[int], most: int
) -> None:
    seen = view(leases, most=most)
    keys = [key(number) for number in startable]
    taken, asked = free_to_take(seen, keys), to_request(seen, keys)
    assert set(taken) | set(asked) <= set(keys) & seen.rows.keys()
    assert all(seen.is_free(one) for one in taken)
    assert not any(seen.is_free(one) or one in seen.own for one in asked)
    assert max(len(taken), len(asked)) <= max(0, most - len(seen.own))
    assert len({*taken}) == len(taken)


@pytest.mark.parametrize(
    "is_joining",
    [
        pytest.param(False, id="together", marks=pytest.mark.soak),
        pytest.param(True, id="one by one"),
    ],
)
async def test_many_shards_are_shared_within_five_looks(*, is_joining: bool) -> None:
    memory, clock = CheckpointMemory(), ManualClock()
    shards = [sample_shard(number) for number in range(200)]
    group: list[Worker] = []
    for number in range(10):
        group.append(await Worker.begin(f"w{number}", memory, clock, shards))
        if is_joining:
            await _share(group, clock)
    await _share(group, clock)
    while len(group) > 7:
        await group.pop().leases.close()
        await _share(group, clock)


async def test_workers_that_are_slower_than_the_stream_keep_their_shards() -> None:
    # Each of them finishes a batch of one of its shards after the other, in ten seconds.
    memory, clock = CheckpointMemory(), ManualClock()
    shards = [sample_shard(number) for number in range(8)]
    group = [await Worker.begin(f"w{number}", memory, clock, shards) for number in range(4)]
    counts = set()
    for second in range(300):
        await clock.advance(1)
        for number, one in enumerate(group):
            await one.look()
            await one.hand_over()
            held = sorted(one.readable)
            if held and (second + 3 * number) % 10 == 0:
                turn = held[(second // 10) % len(held)]
                one.leases.shards.note_delivery(shards[turn].key, 100_000)
        if second >= 30:
            counts.add(tuple(len(one.readable) for one in group))
    assert counts == {(2, 2, 2, 2)}


async def _share(group: list[Worker], clock: ManualClock) -> None:
    """Let all of them look five times, one after the other, and see what each of them has."""
    for _ in range(5):
        await clock.advance(1)
        for one in group:
            await one.look()
            await one.hand_over()
    counts = [len(one.readable) for one in group]
    assert sum(counts) == 200
    assert max(counts) - min(counts) <= 1, counts
