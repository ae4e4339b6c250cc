"""Which shards are read, from where, in which order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers import SequenceNumber, Shard, ShardKey, ShardProgress, StartingPosition
from kinesis_publishers.engine.lineage import (
    ancestors,
    blocked_shards,
    descendants,
    generations,
    gone_shards,
    pinned_progress,
    resumed_progress,
    startable,
    starting_progress,
    uncovered_hash_keys,
)
from kinesis_publishers.model import HashRange
from kinesis_publishers.testing.fakes import sample_shard
from tests.unit.engine.reshard_histories import reshard_histories

TRIM_HORIZON = ShardProgress(position=StartingPosition.trim_horizon())
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HALFWAY = ShardProgress(position=StartingPosition.after(SequenceNumber("5")))


def read_everything(
    shards: list[Shard], progress: dict[ShardKey, ShardProgress], choose: st.DataObject
) -> list[ShardKey]:
    """End one startable shard after the other until none is left; return the order."""
    order = []
    while ready := startable(shards, progress):
        shard = choose.draw(st.sampled_from(ready))
        order.append(shard.key)
        progress[shard.key] = progress[shard.key].ended()
    return order


@given(reshard_histories(), st.data())
def test_every_shard_is_read_exactly_once_and_after_its_parents(
    shards: list[Shard], data: st.DataObject
):
    order = read_everything(shards, starting_progress(shards, {}, TRIM_HORIZON), data)
    assert sorted(order, key=str) == sorted((one.key for one in shards), key=str)
    for shard in shards:
        for parent in shard.parent_keys:
            assert order.index(parent) < order.index(shard.key)


@given(reshard_histories(), st.data())
def test_shards_that_appear_while_others_are_read_are_read_once_too(
    shards: list[Shard], data: st.DataObject
):
    by_age = sorted(shards, key=lambda one: one.shard_id)
    seen = data.draw(st.integers(1, len(by_age)))
    progress = starting_progress(by_age[:seen], {}, TRIM_HORIZON)
    order = read_everything(by_age[:seen], progress, data)
    progress.update(starting_progress(by_age, progress, None))
    order += read_everything(by_age, progress, data)
    assert sorted(order, key=str) == sorted((one.key for one in shards), key=str)


@given(reshard_histories(), st.data())
def test_progress_on_a_child_alone_does_not_read_its_ancestors_again(
    shards: list[Shard], data: st.DataObject
):
    child = data.draw(st.sampled_from(shards))
    progress = {child.key: HALFWAY}
    older = ancestors(progress, {one.key: one for one in shards})
    progress.update(starting_progress(shards, progress, None))
    order = read_everything(shards, progress, data)
    assert older.isdisjoint(order)
    assert {*order} | older == {one.key for one in shards}


@given(reshard_histories(), st.data())
def test_a_restart_reads_on_what_was_not_finished_and_nothing_else(
    shards: list[Shard], data: st.DataObject
):
    progress = starting_progress(shards, {}, TRIM_HORIZON)
    finished = []
    for _ in range(data.draw(st.integers(0, len(shards)))):
        ready = startable(shards, progress)
        finished.append(data.draw(st.sampled_from(ready)).key)
        progress[finished[-1]] = progress[finished[-1]].ended()
    restarted = {**progress, **starting_progress(shards, progress, None)}
    rest = read_everything(shards, restarted, data)
    assert sorted(finished + rest, key=str) == sorted((one.key for one in shards), key=str)


@given(reshard_histories(), st.data())
def test_a_parent_that_is_not_listed_any_more_counts_as_ended(
    shards: list[Shard], data: st.DataObject
):
    gone = data.draw(st.sets(st.sampled_from(shards)))
    listed = [one for one in shards if one not in gone]
    order = read_everything(listed, starting_progress(listed, {}, TRIM_HORIZON), data)
    assert sorted(order, key=str) == sorted((one.key for one in listed), key=str)


@given(reshard_histories(), st.data())
def test_a_shard_descends_from_exactly_those_that_are_its_ancestors(
    shards: list[Shard], data: st.DataObject
):
    listed = {one.key: one for one in shards if data.draw(st.booleans())}
    keys = data.draw(st.sets(st.sampled_from([one.key for one in shards])))
    expected = {key for key in listed if not ancestors([key], listed).isdisjoint(keys)}
    assert descendants(keys, listed) == expected


@given(reshard_histories(), st.data())
def test_nothing_is_startable_before_the_last_of_its_listed_ancestors_has_ended(
    shards: list[Shard], data: st.DataObject
):
    listed = {one.key: one for one in shards}
    progress = {
        key: TRIM_HORIZON.ended() if data.draw(st.booleans()) else TRIM_HORIZON for key in listed
    }
    assert {one.key for one in startable(shards, progress)} == {
        key
        for key, one in progress.items()
        if not one.is_ended and all(progress[older].is_ended for older in ancestors([key], listed))
    }


def test_a_long_chain_of_generations_is_gone_through_once():
    count = 20_000
    shards = [sample_shard(0), *(sample_shard(one, parent=one - 1) for one in range(1, count))]
    progress = starting_progress(shards, {}, TRIM_HORIZON)
    assert startable(shards, progress) == shards[:1]


@given(reshard_histories(), st.data())
def test_what_is_blocked_can_never_start_and_the_rest_is_read(
    shards: list[Shard], data: st.DataObject
):
    finished = data.draw(st.sets(st.sampled_from([one.key for one in shards])))
    progress = starting_progress(shards, {}, TRIM_HORIZON)
    while ready := [one for one in startable(shards, progress) if one.key not in finished]:
        progress[ready[0].key] = progress[ready[0].key].ended()
    unread = {key for key, one in progress.items() if not one.is_ended}
    assert unread - finished <= blocked_shards({one.key: one for one in shards}, progress, finished)


def test_latest_is_pinned_and_other_positions_are_kept():
    latest = ShardProgress(position=StartingPosition.latest())
    pinned = ShardProgress(position=StartingPosition.at_timestamp(NOW), as_of=NOW)
    assert pinned_progress(latest, NOW) == pinned
    assert pinned_progress(HALFWAY, NOW) is HALFWAY


def test_a_stored_instant_says_how_old_the_progress_is():
    instant = ShardProgress(position=StartingPosition.at_timestamp(NOW))
    assert resumed_progress(instant) == ShardProgress(position=instant.position, as_of=NOW)
    younger = ShardProgress(position=instant.position, as_of=NOW + timedelta(hours=1))
    assert resumed_progress(younger) is younger
    assert resumed_progress(HALFWAY) is HALFWAY


def test_without_parents_first_only_its_own_end_stops_a_shard():
    shards = [sample_shard(0), sample_shard(1, parent=0)]
    progress = starting_progress(shards, {}, TRIM_HORIZON)
    assert startable(shards, progress, parents_first=False) == shards
    progress[shards[1].key] = progress[shards[1].key].ended()
    assert startable(shards, progress, parents_first=False) == shards[:1]


def test_a_stream_that_is_read_for_the_first_time_begins_at_its_initial_position():
    shards = [sample_shard(0), sample_shard(1, parent=0)]
    initial = ShardProgress(position=StartingPosition.after(SequenceNumber("3")))
    assert starting_progress(shards, {}, initial) == {one.key: initial for one in shards}


def test_the_sibling_of_a_known_child_is_read_from_its_beginning():
    parent, known, sibling = sample_shard(0), sample_shard(1, parent=0), sample_shard(2, parent=0)
    found = starting_progress([parent, known, sibling], {known.key: HALFWAY}, None)
    assert found == {parent.key: TRIM_HORIZON.ended(), sibling.key: TRIM_HORIZON}


def test_what_is_known_keeps_its_progress():
    shard = sample_shard(0)
    assert starting_progress([shard], {shard.key: HALFWAY}, TRIM_HORIZON) == {}


def test_a_shard_without_progress_is_not_started():
    assert startable([sample_shard(0)], {}) == []


def test_shards_that_a_listing_lacks_are_gone_unless_they_are_newer_than_the_listing():
    gone, there, also_gone, newest, newer = (sample_shard(number).key for number in range(5))
    listed = [sample_shard(3), sample_shard(1)]
    assert gone_shards([newer, newest, also_gone, there, gone], listed) == [gone, also_gone]
    assert gone_shards([gone], []) == []


def test_shards_of_the_same_name_in_two_streams_are_not_mixed_up():
    here = sample_shard(0)
    there = sample_shard(0, stream_arn="arn:aws:kinesis:eu-west-1:123456789012:stream/payments")
    progress = {here.key: HALFWAY, there.key: HALFWAY.ended()}
    assert startable([here, there], progress) == [here]


@given(reshard_histories(), st.randoms())
def test_generations_have_every_shard_once_and_its_ancestors_before_it(shards, chance):
    listed = list(shards)
    chance.shuffle(listed)
    found = generations(listed)
    position = {shard.key: n for n, group in enumerate(found) for shard in group}
    assert sorted(position, key=str) == sorted((one.key for one in shards), key=str)
    assert sum(map(len, found)) == len(shards)
    for shard in shards:
        assert all(position[parent] < position[shard.key] for parent in shard.parent_keys)


def test_shards_that_descend_from_each_other_are_one_generation():
    circle = [sample_shard(0, parent=1), sample_shard(1, parent=0)]
    assert generations(circle) == [circle]


@given(st.sets(st.integers(1, 2**128 - 1), max_size=8), st.data())
def test_hash_keys_are_missing_exactly_where_a_shard_is(cuts: set[int], data: st.DataObject):
    firsts = [0, *sorted(cuts)]
    ranges = list(zip(firsts, [*(cut - 1 for cut in firsts[1:]), 2**128 - 1], strict=True))
    shards = [
        evolve(sample_shard(number), starting_hash_key=str(first), ending_hash_key=str(last))
        for number, (first, last) in enumerate(ranges)
    ]
    closed = sample_shard(99, is_closed=True)
    assert uncovered_hash_keys([*shards, closed]) == []
    missing = data.draw(st.sampled_from(shards))
    others = [shard for shard in data.draw(st.permutations(shards)) if shard is not missing]
    assert uncovered_hash_keys([*others, closed]) == [HashRange.of(missing)]
