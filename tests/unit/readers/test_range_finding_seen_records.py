"""What was seen of a shard, made into ranges."""

from __future__ import annotations

from kinesis_publishers import SequenceNumber, ShardProgress, ShardRange, StartingPosition
from kinesis_publishers.model import RangeSize, resume_after
from kinesis_publishers.readers.ranges.rules import Sample
from kinesis_publishers.readers.ranges.seen_records import RangeEnd, SeenRecords
from kinesis_publishers.testing.fakes import batch_of, sample_records, sample_shard

# A record each second, of which looks say that it stands for 1,000 bytes.
RECORDS = sample_records(100)
SAMPLE = Sample(bytes_per_second=1000, record_bytes=100, user_record_bytes=20)


def test_each_range_says_when_its_first_record_arrived():
    records = sample_records(10)
    seen = SeenRecords(ShardProgress(position=StartingPosition.trim_horizon()))
    seen.add(batch_of(records), [1] * 10)
    ends = []
    for _ in range(3):
        end, seen = seen.take(4)
        ends.append(end)
    assert [end.first_arrival for end in ends] == [
        records[index].approximate_arrival_timestamp for index in (0, 4, 8)
    ]


def number(index: int) -> SequenceNumber:
    return SequenceNumber(RECORDS[index].sequence_number)


def progress(index: int) -> ShardProgress:
    """Return how far the shard is read with the record ``index`` included."""
    arrival = RECORDS[index].approximate_arrival_timestamp
    return ShardProgress(position=resume_after(number(index)), as_of=arrival)


def leap(seen: SeenRecords, index: int) -> None:
    found = RECORDS[index]
    seen.add(batch_of([found]), [1], since=found.approximate_arrival_timestamp)


def cut(seen: SeenRecords, index: int) -> None:
    found = RECORDS[index]
    seen.cut(batch_of([found]), found.approximate_arrival_timestamp)


def end_of(seen: SeenRecords) -> RangeEnd:
    end, _ = seen.take()
    assert end is not None
    return end.guessed(SAMPLE, seen.begun, is_dense=False)


def test_cuts_are_inside_of_the_range_and_each_comes_after_the_one_before():
    seen = SeenRecords(progress(10))
    assert not seen.needs_cuts, "nothing is unseen"
    leap(seen, 90)
    assert seen.needs_cuts
    for index in (5, 10, 30, 30, 20, 60, 90, 95):
        cut(seen, index)
    assert [one.progress for one in end_of(seen).cuts] == [progress(30), progress(60)]


def test_nothing_is_cut_before_the_first_record_that_was_seen():
    seen = SeenRecords(ShardProgress(position=StartingPosition.trim_horizon()))
    seen.add(batch_of(RECORDS[20:30]), [1] * 10)
    leap(seen, 90)
    for index in (10, 20, 50):
        cut(seen, index)
    assert [one.progress for one in end_of(seen).cuts] == [progress(50)]


def test_a_range_with_a_gap_ends_before_the_record_that_was_seen_or_after_it():
    seen = SeenRecords(progress(10))
    leap(seen, 90)
    seen_at = RECORDS[90].approximate_arrival_timestamp
    assert seen.count_before(seen_at) == 0
    end, rest = seen.take(0)
    assert end.progress == ShardProgress(position=StartingPosition.at(number(90)), as_of=seen_at)
    assert end.size == RangeSize(records=None, seen_since=seen_at, seen_records=1)
    last, rest = rest.take()
    assert (last.progress, last.first) == (progress(90), number(90))
    assert rest.take() == (None, rest)
    whole, _ = seen.take()
    assert whole.progress == progress(90)


def test_a_range_is_divided_where_its_pieces_touch():
    seen = SeenRecords(progress(10))
    leap(seen, 90)
    cut(seen, 40)
    start = StartingPosition.at(number(11))
    first = ShardRange(shard=sample_shard().key, start=start, end=number(90))
    end = end_of(seen)
    assert (end.payload_bytes, end.user_records) == (80_000, 4_000)
    (one, one_bytes), (other, other_bytes) = end.divided(first)
    assert (one.start, one.end) == (start, number(40))
    assert (other.start, other.end) == (StartingPosition.after(number(40)), number(90))
    assert other.as_of == progress(40).as_of
    assert (one_bytes, other_bytes) == (30_000, 50_000)
    sizes = [piece.size for piece in (one, other)]
    assert sizes == [
        RangeSize(records=records, seen_since=progress(index).as_of, seen_records=1)
        for records, index in ((330, 40), (550, 90))
    ]


def test_a_range_without_cuts_is_one_piece():
    seen = SeenRecords(progress(10))
    seen.add(batch_of(RECORDS[11:21]), [3] * 10)
    end, _ = seen.take()
    whole = ShardRange(shard=sample_shard().key, start=progress(10).position, end=number(20))
    ((piece, payload_bytes),) = end.divided(whole)
    assert (piece, piece.size, payload_bytes) == (
        whole,
        RangeSize(records=10),
        100,
    )
    assert end.user_records == 30
