"""What was seen of a shard, made into ranges."""

from __future__ import annotations

from kinesis_publishers import ShardProgress, StartingPosition
from kinesis_publishers.readers.range_ends.seen_records import Sighting
from kinesis_publishers.testing.fakes import batch_of, sample_records


def test_each_range_says_when_its_first_record_arrived():
    records = sample_records(10)
    sighting = Sighting(ShardProgress(position=StartingPosition.trim_horizon()))
    sighting.add(batch_of(records), [1] * 10)
    ends = []
    for _ in range(3):
        end, sighting = sighting.take(4)
        ends.append(end)
    assert [end.first_arrival for end in ends] == [
        records[index].approximate_arrival_timestamp for index in (0, 4, 8)
    ]
