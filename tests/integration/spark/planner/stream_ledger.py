"""What was ever put into a stream, and which of it lies between two offsets.

It knows nothing of the rules by which planners plan: a position is looked up in the list of a
shard's records, and what is between two positions is what a micro-batch must have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from kinesis_publishers import SequenceNumber, StartingPosition
from kinesis_publishers.model import PositionType

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from kinesis_publishers_spark.offsets import Offset, ShardOffset
    from tests.integration.spark.planner.planner_harness import Batch

#: The shard and the sequence number of a record.
Place = tuple[str, str]


def places(batch: Batch) -> list[Place]:
    """Return where the rows of a micro-batch are."""
    return [(shard_id, number) for shard_id, number, _ in batch.rows]


@define
class StreamLedger:
    """Puts records into one stream and remembers them, also when the server has dropped them.

    Payloads are numbers that only grow, so that they tell the order of a partition key.
    """

    server: LocalKinesis
    stream: str
    keys: int = 20
    count: int = 0
    records: dict[str, list[str]] = field(factory=dict)
    payloads: dict[Place, int] = field(factory=dict)
    partition_keys: dict[Place, str] = field(factory=dict)
    arrivals: dict[Place, datetime] = field(factory=dict)

    def put(self, count: int) -> None:
        """Put ``count`` records."""
        numbers = range(self.count, self.count + count)
        self.count += count
        pairs = [(f"key-{number % self.keys}", str(number).encode()) for number in numbers]
        places = self.server.put_many(self.stream, pairs)
        for place, number, (key, _) in zip(places, numbers, pairs, strict=True):
            self.records.setdefault(place[0], []).append(place[1])
            self.payloads[place] = number
            self.partition_keys[place] = key
        for shard_id, stored in self.server.records(self.stream).items():
            for one in stored:
                self.arrivals[shard_id, one.sequence_number] = one.arrival_time

    def between(self, start: Offset, end: Offset) -> list[Place]:
        """Return the records of a micro-batch, in the order of each shard."""
        found: list[Place] = []
        for key, offset in sorted(end.shards.items(), key=lambda item: str(item[0])):
            if key.stream_name != self.stream:
                continue
            begin = start.shards.get(key)
            first = 0 if begin is None else self._index(key.shard_id, begin)
            last = self._index(key.shard_id, offset)
            if begin is None and offset.progress.processed is None:
                # It was found as one that had been read to its end before.
                first = last
            numbers = self.records.get(key.shard_id, [])
            found += [(key.shard_id, number) for number in numbers[first:last]]
        return found

    def _index(self, shard_id: str, offset: ShardOffset) -> int:
        """Return how many records of a shard lie before an offset."""
        numbers = self.records.get(shard_id, [])
        if offset.progress.is_ended:
            return len(numbers)
        return self._index_of(shard_id, numbers, offset.progress.position)

    def _index_of(self, shard_id: str, numbers: list[str], position: StartingPosition) -> int:
        instant, number = position.timestamp, position.sequence_number
        if instant is not None:
            return sum(self.arrivals[shard_id, one] < instant for one in numbers)
        if number is None:
            assert position.type is PositionType.TRIM_HORIZON, position
            return 0
        assert number == SequenceNumber(number.sequence_number), "nothing is aggregated"
        index = numbers.index(number.sequence_number)
        return index + (position.type is PositionType.AFTER_SEQUENCE_NUMBER)

    def assert_is_between(self, start: Offset, end: Offset, rows: Iterable[Place]) -> None:
        """Check that ``rows`` are exactly what a micro-batch must have, each shard in order."""
        by_shard = sorted(rows, key=lambda place: place[0])
        assert by_shard == sorted(self.between(start, end), key=lambda place: place[0])

    def assert_in_order_per_key(self, batches: Iterable[Iterable[Place]]) -> None:
        """Check that a partition key's records come in the order in which they were put.

        The tasks of one micro-batch run at the same time: within one, a key may be in one shard
        only.
        """
        last: dict[str, int] = {}
        for rows in batches:
            shards: dict[str, str] = {}
            for place in rows:
                key, number = self.partition_keys[place], self.payloads[place]
                assert shards.setdefault(key, place[0]) == place[0], f"{key} is in two shards"
                assert number > last.get(key, -1), f"{key} is out of order at {place}"
                last[key] = number
