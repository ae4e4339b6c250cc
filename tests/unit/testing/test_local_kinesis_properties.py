"""After any history of a stream each record is readable once, in order, in one shard."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pybase64
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kinesis_publishers.testing.local_kinesis import Behaviour, Limits
from kinesis_publishers.testing.local_kinesis.operations import OPERATIONS
from kinesis_publishers.testing.local_kinesis.requests import Request
from kinesis_publishers.testing.local_kinesis.sequence_numbers import CreationSeconds, SequenceSpace
from kinesis_publishers.testing.local_kinesis.state import ServiceState
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.examples import examples


class StreamMachine(RuleBasedStateMachine):
    """Puts, reshards and lets time pass; remembers for each hash key what was put, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.state = ServiceState(self.clock, Behaviour(), Limits.off())
        self.call("CreateStream", ShardCount=2)
        self.put_count = 0
        self.expected: dict[str, list[int]] = {}

    def call(self, operation: str, **fields: Any) -> Any:
        if "ShardIterator" not in fields:
            fields["StreamName"] = "s"
        answer = OPERATIONS[operation](self.state, Request.parse(orjson.dumps(fields)))
        return orjson.loads(answer) if isinstance(answer, bytes) else answer

    @property
    def open_shards(self) -> list[Any]:
        return self.state.find("s").open_shards

    @rule(keys=st.lists(st.integers(0, 2**128 - 1), min_size=1, max_size=5))
    def put(self, keys: list[int]) -> None:
        entries = []
        for key in keys:
            self.expected.setdefault(str(key), []).append(self.put_count)
            data = pybase64.b64encode(str(self.put_count).encode()).decode()
            entries.append({"Data": data, "PartitionKey": str(key), "ExplicitHashKey": str(key)})
            self.put_count += 1
        answer = self.call("PutRecords", Records=entries)
        open_ids = {shard.shard_id for shard in self.open_shards}
        assert {result["ShardId"] for result in answer["Records"]} <= open_ids

    @rule(data=st.data())
    @precondition(lambda self: len(self.open_shards) < 12)
    def split(self, data: st.DataObject) -> None:
        shard = data.draw(st.sampled_from(self.open_shards), "shard")
        if shard.last_hash_key - shard.first_hash_key < 4:
            return
        key = data.draw(st.integers(shard.first_hash_key + 2, shard.last_hash_key - 1), "key")
        self.call("SplitShard", ShardToSplit=shard.shard_id, NewStartingHashKey=str(key))

    @rule(data=st.data())
    @precondition(lambda self: len(self.open_shards) > 1)
    def merge(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.open_shards) - 2), "index")
        one, other = self.open_shards[index : index + 2]
        self.call("MergeShards", ShardToMerge=one.shard_id, AdjacentShardToMerge=other.shard_id)

    @rule(count=st.integers(1, 6))
    def scale(self, count: int) -> None:
        self.call("UpdateShardCount", TargetShardCount=count, ScalingType="UNIFORM_SCALING")
        assert len(self.open_shards) == count

    @rule(seconds=st.floats(0, 100))
    def wait(self, seconds: float) -> None:
        asyncio.run(self.clock.advance(seconds))

    @invariant()
    def open_shards_cover_the_hash_keys(self) -> None:
        following = 0
        for shard in self.open_shards:
            assert shard.first_hash_key == following
            following = shard.last_hash_key + 1
        assert following == 2**128

    def teardown(self) -> None:
        numbers: dict[str, list[tuple[int, int]]] = {}
        for shard in self.call("ListShards")["Shards"]:
            parents = {shard.get("ParentShardId"), shard.get("AdjacentParentShardId")} - {None}
            first = int(shard["SequenceNumberRange"]["StartingSequenceNumber"])
            for parent in parents:
                stored = self.state.find("s").shards[parent]
                assert first > (stored.ending_number or 0) > stored.last_number
            for record in self.drain(shard["ShardId"]):
                number = int(record["SequenceNumber"])
                assert number > first
                entry = (number, int(pybase64.b64decode(record["Data"])))
                numbers.setdefault(record["PartitionKey"], []).append(entry)
        # By sequence number over all shards, a key's records are in the order of the puts.
        assert {key: [put for _, put in sorted(found)] for key, found in numbers.items()} == (
            self.expected
        )

    def drain(self, shard_id: str) -> list[dict[str, Any]]:
        """Read a shard to its end, or to its tip if it is open, in answers of two records."""
        start = self.call("GetShardIterator", ShardId=shard_id, ShardIteratorType="TRIM_HORIZON")
        iterator: str | None = start["ShardIterator"]
        records: list[dict[str, Any]] = []
        while iterator is not None:
            answer = self.call("GetRecords", ShardIterator=iterator, Limit=2)
            records += answer["Records"]
            iterator = answer["NextShardIterator"]
            if answer["MillisBehindLatest"] == 0:
                break
        read = [int(record["SequenceNumber"]) for record in records]
        assert read == sorted(set(read))
        return records


TestStream = StreamMachine.TestCase
TestStream.settings = settings(max_examples=examples(60), stateful_step_count=25)


SECONDS = st.integers(0, 2**36 - 1)
INDEXES = st.integers(0, 100_000)
POSITIONS = st.integers(0, 2**62)


@given(INDEXES, SECONDS, POSITIONS, SECONDS)
def test_a_number_has_56_digits(index: int, created: int, position: int, second: int) -> None:
    assert len(str(SequenceSpace(index, created).number(position, second))) == 56


@given(INDEXES, SECONDS, POSITIONS, SECONDS, SECONDS)
def test_numbers_grow_with_the_position_under_any_clock(
    index: int, created: int, position: int, second: int, later: int
) -> None:
    space = SequenceSpace(index, created)
    first, following = space.number(position, second), space.number(position + 1, later)
    assert space.starting() < following
    assert first < following < space.ending(0)


@given(INDEXES, INDEXES, st.integers(0, 2**35), POSITIONS, SECONDS)
def test_a_child_starts_above_every_number_of_its_parent(
    parent: int, child: int, created: int, position: int, second: int
) -> None:
    parent_space = SequenceSpace(parent, created)
    child_space = SequenceSpace(child, created + 1)
    assert child_space.starting() > parent_space.ending(second) > 0
    assert child_space.starting() > parent_space.number(position, second)


@given(INDEXES, INDEXES, SECONDS, POSITIONS, SECONDS)
def test_a_shard_knows_its_own_numbers(
    index: int, other: int, created: int, position: int, second: int
) -> None:
    number = SequenceSpace(index, created).number(position, second)
    assert SequenceSpace(index, created).owns(number)
    assert SequenceSpace(other, created).owns(number) is (index == other)
    assert not SequenceSpace(index, created).owns(number + 1)


def test_creation_seconds_never_repeat() -> None:
    seconds = CreationSeconds()
    given_out = [seconds.next(5_000), seconds.next(5_000), seconds.next(4_000), seconds.next(9_000)]
    assert given_out == [5, 6, 7, 9]
