"""Two offsets say exactly which records a micro-batch has: a model of streams that are fetched."""

from __future__ import annotations

import json

from attrs import evolve
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kinesis_publishers import SequenceNumber, ShardKey, ShardProgress, ShardRange, StartingPosition
from kinesis_publishers.model import PositionType
from kinesis_publishers_spark.chunks import Chunk, next_offset
from kinesis_publishers_spark.limits import BatchLimit
from kinesis_publishers_spark.offsets import Offset
from kinesis_publishers_spark.waiting import take
from tests.examples import examples
from tests.unit.spark.spark_builders import (
    ARN,
    NOON,
    after,
    arrival,
    chunk,
    numbers_in,
    offset,
    shard,
)


def place_of(position: StartingPosition, records: list[int]) -> int:
    """Return the index at which reading from ``position`` begins."""
    if position.type is PositionType.TRIM_HORIZON:
        return 0
    if position.timestamp is not None:
        return sum(arrival(number) < position.timestamp for number in records)
    assert position.sequence_number is not None
    number = int(position.sequence_number.sequence_number)
    if position.type is PositionType.AT_SEQUENCE_NUMBER:
        assert number in records, "AT names a record that does not exist"
        return records.index(number)
    return sum(one <= number for one in records)


class PlannedStream(RuleBasedStateMachine):
    """Fetches, plans and reshards at random; every plan goes through the text of the offset log."""

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[ShardKey, list[int]] = {}
        self.fetched: dict[ShardKey, int] = {}
        self.progress: dict[ShardKey, ShardProgress] = {}
        self.waiting: list[Chunk] = []
        self.first_index: dict[ShardKey, int] = {}
        self.handed_out: list[tuple[str, int]] = []
        self.offset = self.begun = Offset()
        self.forgotten: set[ShardKey] = set()
        self.next_number = 1

    @initialize(begin=st.sampled_from(["horizon", "timestamp"]), old=st.integers(0, 3))
    def begin_query(self, begin: str, old: int) -> None:
        for number in (0, 1):
            self.records[shard(number)] = [self._new_number() for _ in range(old)]
            position = StartingPosition.trim_horizon()
            if begin == "timestamp":
                position = StartingPosition.at_timestamp(arrival(self.next_number))
            self._add_shard(shard(number), position)
        self.begun = offset(self.progress)
        self.offset = self._through_the_log(self.begun)

    def _new_number(self) -> int:
        self.next_number += 1
        return self.next_number

    def _add_shard(self, key: ShardKey, position: StartingPosition) -> None:
        records = self.records.setdefault(key, [])
        self.fetched[key] = self.first_index[key] = place_of(position, records)
        self.progress[key] = ShardProgress(position=position)

    def _through_the_log(self, one: Offset) -> Offset:
        return Offset.from_json(json.loads(json.dumps(one.to_json())))

    @rule(data=st.data(), count=st.integers(1, 4))
    def put(self, data: st.DataObject, count: int) -> None:
        open_shards = [key for key, one in self.progress.items() if not one.is_ended]
        if open_shards:
            key = data.draw(st.sampled_from(open_shards))
            self.records[key] += [self._new_number() for _ in range(count)]

    @rule(data=st.data(), count=st.integers(1, 5))
    def fetch(self, data: st.DataObject, count: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.progress, key=str)))
        start = self.fetched[key]
        numbers = self.records[key][start : start + count]
        if numbers and not self.progress[key].is_ended:
            self.waiting.append(chunk(key, numbers, [b"x" * (n % 4) for n in numbers]))
            self.fetched[key] += len(numbers)
            self.progress[key] = after(numbers[-1])

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.progress, key=str)))
        if self.fetched[key] == len(self.records[key]):
            self.progress[key] = self.progress[key].ended()

    @rule(data=st.data())
    def leave_the_retention(self, data: st.DataObject) -> None:
        ended = sorted((key for key, one in self.progress.items() if one.is_ended), key=str)
        if ended:
            self.forgotten.add(data.draw(st.sampled_from(ended)))

    @rule(old=st.integers(0, 3))
    def discover(self, old: int) -> None:
        key = shard(len(self.progress))
        self.records[key] = [self._new_number() for _ in range(old)]
        self._add_shard(key, StartingPosition.trim_horizon())

    @rule(
        records=st.one_of(st.none(), st.integers(1, 6)),
        payload_bytes=st.one_of(st.none(), st.integers(1, 8)),
    )
    def plan(self, records: int | None, payload_bytes: int | None) -> None:
        start = self.offset
        taken, rest = take(self.waiting, BatchLimit(records=records, payload_bytes=payload_bytes))
        known = offset({k: one for k, one in self.progress.items() if k not in self.forgotten})
        end = next_offset(start, taken, rest, known=known, begun=self.begun)
        assert not taken or end != start
        end = self._through_the_log(end)
        rows = numbers_in(one.rows for one in taken)
        replayed = [row for one in end.ranges_since(start) for row in self._rows_of(one)]
        assert sorted(replayed) == sorted(rows)
        assert end.ranges_since(end) == []
        self.handed_out += rows
        self.waiting, self.offset = rest, end

    def _rows_of(self, one: ShardRange) -> list[tuple[str, int]]:
        records = self.records[one.shard]
        begin = place_of(one.start, records)
        stop = max(records, default=0) if one.end is None else int(one.end.sequence_number)
        return [(one.shard.shard_id, n) for n in records[begin:] if n <= stop]

    @invariant()
    def an_offset_resumes_right_after_what_was_handed_out(self) -> None:
        assert len(set(self.handed_out)) == len(self.handed_out)
        for key, one in self.offset.shards.items():
            records = self.records[key]
            place = place_of(one.progress.position, records)
            seen = [number for shard_id, number in self.handed_out if shard_id == key.shard_id]
            assert seen == records[self.first_index[key] : place]
            assert not (one.progress.is_ended and place < len(records))

    @invariant()
    def no_shard_that_handed_something_out_is_missing(self) -> None:
        waiting = {one.shard for one in self.waiting}
        named = {key.shard_id for key in self.offset.shards}
        named |= {key.shard_id for key in self.forgotten - waiting}
        assert {shard_id for shard_id, _ in self.handed_out} <= named


TestPlannedStream = PlannedStream.TestCase
TestPlannedStream.settings = settings(max_examples=examples(60), stateful_step_count=30)


def test_a_shard_without_new_records_has_no_range() -> None:
    start = offset({shard(0): after(5), shard(1): after(7)})
    end = offset({shard(0): after(9), shard(1): after(7)}, first={shard(0): 6})
    ranges = end.ranges_since(start)
    assert [one.shard for one in ranges] == [shard(0)]
    assert ranges[0].start == StartingPosition.at(SequenceNumber("6"))
    assert ranges[0].end == SequenceNumber("9")


def test_a_range_may_end_immediately_before_a_record_which_begins_the_next_one() -> None:
    at_9 = ShardProgress(position=StartingPosition.at(SequenceNumber("9")))
    start, end = offset({shard(0): after(5)}), offset({shard(0): at_9})
    (one,) = Offset.from_json(end.to_json()).ranges_since(start)
    assert (one.end, one.excludes_end) == (SequenceNumber("9"), True)
    assert end.ranges_since(end) == []
    (rest,) = offset({shard(0): after(9)}, first={shard(0): 9}).ranges_since(end)
    assert (rest.start, rest.end, rest.excludes_end) == (at_9.position, one.end, False)
    (last,) = offset({shard(0): at_9.ended()}).ranges_since(end)
    assert (last.start, last.end) == (at_9.position, None)


def test_a_shard_that_has_ended_since_is_read_to_its_end() -> None:
    start = offset({shard(0): after(5), shard(1): after(7, ended=True)})
    end = offset({shard(0): after(5, ended=True), shard(1): after(7, ended=True)})
    (one,) = end.ranges_since(start)
    assert (one.shard, one.start, one.end) == (
        shard(0),
        StartingPosition.after(SequenceNumber("5")),
        None,
    )
    assert end.ranges_since(end) == []


def test_an_ancestor_that_only_the_end_notes_as_ended_is_not_read() -> None:
    horizon = ShardProgress(position=StartingPosition.trim_horizon())
    start = offset({shard(1): after(7)})
    end = offset({shard(0): horizon.ended(), shard(1): after(7)})
    assert end.ranges_since(start) == []


def test_positions_of_a_stream_that_was_created_again_are_not_mixed() -> None:
    start = offset({shard(0): after(50)})
    again = {arn: evolve(one, created_at=NOON) for arn, one in start.streams.items()}
    end = evolve(offset({shard(0): after(9)}, first={shard(0): 3}), streams=again)
    (one,) = end.ranges_since(start)
    assert one.start == StartingPosition.at(SequenceNumber("3"))
    assert one.end == SequenceNumber("9")


def test_ranges_come_in_the_order_of_the_shards_for_any_order_of_insertion() -> None:
    numbers = [3, 10, 1, 2]
    end = offset({shard(n): after(5) for n in numbers}, first={shard(n): 5 for n in numbers})
    ids = [one.shard.shard_id for one in end.ranges_since(Offset())]
    assert ids == [shard(n).shard_id for n in sorted(numbers)]


def test_without_the_mark_a_range_begins_where_the_start_says() -> None:
    pinned = ShardProgress(position=StartingPosition.at_timestamp(NOON), as_of=NOON)
    (one,) = offset({shard(0): after(9)}).ranges_since(offset({shard(0): pinned}))
    assert one.start == pinned.position
    assert one.shard.stream_arn == ARN


def test_a_shard_that_appeared_and_ended_between_two_offsets_is_read_to_its_end() -> None:
    horizon = ShardProgress(position=StartingPosition.trim_horizon())
    start = offset({shard(0): after(5, ended=True)})
    end = offset({**_progress(start), shard(1): horizon.ended()}, first={shard(1): 6})
    (one,) = end.ranges_since(start)
    assert one == ShardRange(
        shard=shard(1), start=StartingPosition.at(SequenceNumber("6")), end=None
    )
    later = offset({**_progress(start), shard(1): horizon.ended()})
    assert later.ranges_since(end) == []


def test_a_shard_of_an_added_stream_that_begins_after_a_record_and_has_none_is_not_read() -> None:
    end = offset({shard(0): after(9)})
    assert end.ranges_since(Offset()) == []


def _progress(one: Offset) -> dict[ShardKey, ShardProgress]:
    return {key: shard.progress for key, shard in one.shards.items()}
