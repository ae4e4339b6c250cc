"""Offsets as text: they come back as they were, equal ones look equal, and damage is an error."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers import (
    SequenceNumber,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StreamIdentity,
)
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers_spark.offsets import Offset, ShardOffset
from tests.examples import examples
from tests.unit.spark.spark_builders import ARN, IDENTITY, NOON, after, arrival, offset, shard

FAST = settings(max_examples=examples(80))

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
instants = st.timedeltas(timedelta(0), timedelta(days=80_000)).map(lambda since: EPOCH + since)
whole_numbers = st.integers(0, 10**57).map(str).map(SequenceNumber)
numbers = st.builds(
    SequenceNumber,
    st.integers(0, 10**57).map(str),
    st.one_of(st.none(), st.integers(0, 10_000)),
)
positions = st.one_of(
    st.just(StartingPosition.trim_horizon()),
    st.just(StartingPosition.latest()),
    instants.map(StartingPosition.at_timestamp),
    numbers.map(StartingPosition.at),
    numbers.map(StartingPosition.after),
)
shard_offsets = st.builds(
    ShardOffset,
    progress=st.builds(
        ShardProgress,
        position=positions,
        as_of=st.one_of(st.none(), instants),
        is_ended=st.booleans(),
    ),
    first=st.one_of(st.none(), whole_numbers),
)
stream_names = st.from_regex(r"[a-zA-Z0-9_.-]{1,20}", fullmatch=True)


@st.composite
def offsets(draw: st.DrawFn) -> Offset:
    streams, shards = {}, {}
    for name in draw(st.lists(stream_names, unique=True, max_size=3)):
        arn = f"arn:aws:kinesis:us-east-1:123456789012:stream/{name}"
        streams[arn] = StreamIdentity(name=name, arn=arn, created_at=draw(instants))
        for shard_number in draw(st.sets(st.integers(0, 20), max_size=4)):
            shards[ShardKey(arn, f"shardId-{shard_number:012d}")] = draw(shard_offsets)
    left_out = draw(st.frozensets(st.sampled_from(sorted(streams)))) if streams else frozenset()
    return Offset(streams=streams, shards=shards, left_out=left_out)


@FAST
@given(offsets())
def test_an_offset_comes_back_from_its_text_as_it_was(one: Offset) -> None:
    assert Offset.from_json(json.loads(json.dumps(one.to_json()))) == one


@FAST
@given(offsets(), st.randoms(use_true_random=False))
def test_equal_offsets_have_equal_text_in_any_order_of_insertion(one: Offset, random: Any) -> None:
    streams, shards = list(one.streams.items()), list(one.shards.items())
    random.shuffle(streams)
    random.shuffle(shards)
    other = Offset(streams=dict(streams), shards=dict(shards), left_out=one.left_out)
    assert json.dumps(other.to_json()) == json.dumps(one.to_json())


@FAST
@given(offsets())
def test_text_that_is_read_and_written_again_is_byte_equal(one: Offset) -> None:
    text = json.dumps(one.to_json())
    assert json.dumps(Offset.from_json(json.loads(text)).to_json()) == text


@FAST
@given(offsets())
def test_progress_and_offset_say_the_same(one: Offset) -> None:
    unmarked = {key: evolve(shard, first=None) for key, shard in one.shards.items()}
    assert Offset.of(one.progress) == evolve(one, shards=unmarked)


def test_two_streams_keep_their_own_shards_of_the_same_id() -> None:
    other_arn = ARN + "-2"
    identity = StreamIdentity(name="orders-2", arn=other_arn, created_at=NOON)
    one = offset({shard(0): after(1)})
    both = Offset(
        streams={**one.streams, other_arn: identity},
        shards={
            **one.shards,
            ShardKey(other_arn, shard(0).shard_id): ShardOffset(progress=after(2)),
        },
    )
    assert Offset.from_json(both.to_json()) == both
    assert {arn: dict(s.shards) for arn, s in both.progress.items()} == {
        ARN: {shard(0).shard_id: after(1)},
        other_arn: {shard(0).shard_id: after(2)},
    }


@pytest.mark.parametrize("version", [3, 99, "1", None, 0])
def test_another_version_is_refused_with_what_to_do(version: object) -> None:
    text = offset({shard(0): after(1)}).to_json() | {"version": version}
    with pytest.raises(CheckpointError, match=r"version .*newer one.*checkpoint location"):
        Offset.from_json(text)


@pytest.mark.parametrize("text", [None, [], "x", 1, {}, {"index": 5}])
def test_json_of_something_else_is_refused(text: object) -> None:
    with pytest.raises(CheckpointError, match=r"version None.*new checkpoint location"):
        Offset.from_json(text)


@pytest.mark.parametrize("created", ["yesterday", None])
def test_a_damaged_stream_is_refused_with_what_to_do(created: object) -> None:
    text = offset({shard(0): after(1)}).to_json()
    text["streams"][ARN]["created"] = created
    with pytest.raises(CheckpointError, match=rf"damaged.*{created}.*Restore the offset log"):
        Offset.from_json(text)
    with pytest.raises(CheckpointError, match="damaged"):
        Offset.from_json({"version": 1})


@pytest.mark.parametrize(
    "damage",
    [
        {"after": "abc"},
        {"after": 12},
        {"after": "-1"},
        {"after": "12", "sub": "3"},
        {"after": "12", "sub": True},
        {"from": "YESTERDAY"},
        {"from": "AFTER_SEQUENCE_NUMBER"},
        {"from": True},
        {"from": 1.5},
        {"from": None},
        {"after": "1", "asOf": "noon"},
        {"after": "1", "asOf": 1.5},
        {"after": "1", "asOf": 10**30},
        {"after": "1", "first": 7},
        {},
        [],
        None,
    ],
)
def test_a_damaged_shard_is_refused_and_the_text_is_shown(damage: object) -> None:
    text = offset({shard(0): after(1)}).to_json()
    text["streams"][ARN]["shards"][shard(0).shard_id] = damage
    with pytest.raises(CheckpointError, match="damaged") as raised:
        Offset.from_json(text)
    assert ARN in str(raised.value)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def places_in(text: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) of every value within a JSON document."""
    if not isinstance(text, dict):
        return []
    return [(text, key) for key in text] + [p for v in text.values() for p in places_in(v)]


@settings(max_examples=examples(100))
@given(offsets(), json_values, st.data())
def test_any_edit_by_hand_is_read_or_refused_but_never_crashes(
    one: Offset, garbage: object, data: st.DataObject
) -> None:
    text = copy.deepcopy(one.to_json())
    container, key = data.draw(st.sampled_from(places_in(text)))
    if data.draw(st.booleans()):
        container[key] = garbage
    else:
        del container[key]
    with suppress(CheckpointError):
        assert isinstance(Offset.from_json(text), Offset)


@FAST
@given(json_values)
def test_any_json_is_read_or_refused_but_never_crashes(text: object) -> None:
    with pytest.raises(CheckpointError):
        Offset.from_json(text)


# As version 0.1.0 wrote it: offset logs of running queries are full of it.
STORED = """{"version": 1, "streams": {"arn:aws:kinesis:us-east-1:123456789012:stream/orders": \
{"created": 1766491200000000, "shards": {\
"shardId-000000000000": {"after": "49590338271490256608559692538361571095921575989136588898", \
"first": "49590338271490256608559692538361571095921575989136588890", \
"asOf": 1767268801000000, "ended": true}, \
"shardId-000000000001": {"after": "12", "sub": 3, "asOf": 1767268802500000}, \
"shardId-000000000002": {"at": "12"}, \
"shardId-000000000003": {"from": "TRIM_HORIZON"}, \
"shardId-000000000004": {"from": 1767268803000000}}}}}"""


def test_the_text_of_the_first_version_is_read_and_kept_but_for_the_version() -> None:
    one = Offset.from_json(json.loads(STORED))
    assert json.dumps(one.to_json() | {"version": 1}) == STORED
    assert one.streams == {ARN: IDENTITY}
    long = "495903382714902566085596925383615710959215759891365888"
    assert one.shards == {
        shard(0): ShardOffset(
            progress=ShardProgress(
                position=StartingPosition.after(SequenceNumber(long + "98")),
                as_of=arrival(1),
                is_ended=True,
            ),
            first=SequenceNumber(long + "90"),
        ),
        shard(1): ShardOffset(
            progress=ShardProgress(
                position=StartingPosition.after(SequenceNumber("12", 3)), as_of=arrival(2.5)
            )
        ),
        shard(2): ShardOffset(
            progress=ShardProgress(position=StartingPosition.at(SequenceNumber("12")))
        ),
        shard(3): ShardOffset(progress=ShardProgress(position=StartingPosition.trim_horizon())),
        shard(4): ShardOffset(
            progress=ShardProgress(position=StartingPosition.at_timestamp(arrival(3)))
        ),
    }


def test_a_mark_of_the_first_record_is_not_part_of_the_place() -> None:
    marked = offset({shard(0): after(9)}, first={shard(0): 4})
    assert marked != offset({shard(0): after(9)})
    assert Offset.of(marked.progress) == offset({shard(0): after(9)})
