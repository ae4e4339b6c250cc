"""Records and the columnar batch in which they travel."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from itertools import islice, repeat
from operator import lt
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from attrs import Factory, evolve, field, frozen

from kinesis_publishers.model.html import html_table
from kinesis_publishers.model.native import PackedColumn
from kinesis_publishers.model.positions import SequenceNumber
from kinesis_publishers.model.shards import ChildShard, Shard

if TYPE_CHECKING:
    import pyarrow as pa

AGGREGATE_MAGIC: Final = b"\xf3\x89\x9a\xc2"

_T = TypeVar("_T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# More records of the same instant may follow the last record, whose lag an answer may name.
_LAG_MARGIN = timedelta(seconds=5)
_EMPTY: tuple[Any, ...] = ()
_COLUMNS = (
    "payloads",
    "partition_keys",
    "sequence_numbers",
    "arrival_epoch_seconds",
    "encryption_types",
    "sub_sequence_numbers",
    "explicit_hash_keys",
    "markers",
)


def _instant(epoch_seconds: float) -> datetime:
    # Whole seconds and fraction separately: the product of a current epoch and 1e6 is not exact.
    whole = int(epoch_seconds)
    micros = round((epoch_seconds - whole) * 1_000_000)
    return _EPOCH + timedelta(seconds=whole, microseconds=micros)


# A NamedTuple, although other values are attrs classes: a batch builds it at C speed, four times as
# fast, and it is the only object that is made per record.
class Record(NamedTuple):
    """What Kinesis stored for one PutRecord.

    Attributes:
        data: the payload, 0 bytes to 10 MiB.
        partition_key: 1 to 256 characters; ``None`` if the stream distributes records without one.
        sequence_number: decimal digits; unique within the shard, increasing.
        arrival_epoch_seconds: when Kinesis took the record, in seconds since 1970; neither exact
            nor monotonic within a shard.
        encryption_type: ``KMS``, ``NONE``, or ``None`` if AWS does not say.
        sub_sequence_number: 0-based index inside the aggregate in which the producer put the
            record; ``None`` for a record that was put by itself.
        explicit_hash_key: decimal; only for a record inside an aggregate, if the producer set one.
        marker: by which the record is recognized if its producer has written it again; only for a
            record inside an aggregate of :class:`~kinesis_publishers.KinesisProducer`.
    """

    data: bytes
    partition_key: str | None
    sequence_number: str
    arrival_epoch_seconds: float
    encryption_type: str | None
    shard_id: str
    stream_name: str
    sub_sequence_number: int | None = None
    explicit_hash_key: str | None = None
    marker: str | None = None

    @property
    def id(self) -> str:
        """The identity of the record, the same whenever and however it is read.

        ``STREAM NAME/SHARD ID/SEQUENCE NUMBER/SUB-SEQUENCE NUMBER``, with nothing after the last
        slash for a record that was put by itself. It is unique in an account and region: a stream
        that is created again under the same name has higher sequence numbers.
        """
        sub = "" if self.sub_sequence_number is None else self.sub_sequence_number
        return f"{self.stream_name}/{self.shard_id}/{self.sequence_number}/{sub}"

    @property
    def value(self) -> Any:
        """What ``decode`` has made of the payload, where records are read with it."""
        raise AttributeError("a record has a value where it is read with decode=..., as 'json'")

    @property
    def aggregated(self) -> bool:
        """Whether the producer put the record inside an aggregate."""
        return self.sub_sequence_number is not None

    @property
    def is_undecoded_aggregate(self) -> bool:
        """Whether ``data`` begins like an aggregate that is invalid, or whose decoding is off."""
        return not self.aggregated and self.data.startswith(AGGREGATE_MAGIC)

    @property
    def approximate_arrival_timestamp(self) -> datetime:
        """When Kinesis took the record, aware UTC, to the microsecond."""
        return _instant(self.arrival_epoch_seconds)

    def _repr_html_(self) -> str:
        return html_table(f"Record {self.id}", [_row(self)])


_SHOWN_RECORDS = 5


def _row(record: Record) -> dict[str, object]:
    """Return the columns of a record in a notebook, with its value if it has one."""
    columns: dict[str, object] = {
        "partition key": record.partition_key,
        "sequence number": record.sequence_number,
        "arrived": record.approximate_arrival_timestamp.isoformat(timespec="milliseconds"),
        "data": record.data,
    }
    return columns | {"value": record.value} if "value" in record._fields else columns


# ``Record._make`` without its check of the length, which the zipped columns determine, in Python.
_make_record: Callable[[tuple[Any, ...]], Record] = partial(tuple.__new__, Record)


@frozen(kw_only=True, eq=False)
class RecordPage:
    """The answer to one GetRecords, or one event of a subscription, as columns of equal length.

    Attributes:
        partition_keys: ``None`` for a record that has none.
        sequence_numbers: increasing.
        encryption_types: per record, or ``None`` if no record names one.
        next_shard_iterator: for the next call; ``None`` when the shard has ended.
        millis_behind_latest: distance of the answer from the tip, in ms; ``None`` if unknown.
        child_shards: the shards that continue this one, once it has ended.
    """

    payloads: Sequence[bytes] = _EMPTY
    partition_keys: Sequence[str | None] = _EMPTY
    sequence_numbers: Sequence[str] = _EMPTY
    arrival_epoch_seconds: Sequence[float] = _EMPTY
    encryption_types: Sequence[str | None] | None = None
    next_shard_iterator: str | None = None
    millis_behind_latest: int | None = None
    child_shards: tuple[ChildShard, ...] = ()


@frozen(kw_only=True, eq=False)
class RecordBatch:
    """One delivery to the consumer: records of one shard, in their order, as columns.

    Only iteration makes :class:`Record` objects; :meth:`to_arrow` uses the columns.

    Attributes:
        requested_at: when the service was asked (aware UTC): with ``millis_behind_latest`` 0,
            everything that arrived before this instant has been delivered.
        sub_sequence_numbers: indices inside aggregates; ``None`` outside, and if there are none.
        explicit_hash_keys: per record that was inside an aggregate, or ``None`` as above.
        markers: per record inside an aggregate whose producer has marked it, or ``None`` as above.
        child_shards: the shards that continue this one, if it ends here; a listing names others.
        has_arrival_times: whether the source knows them; otherwise they say when it was read.
        failures: by id, why records have no event time; ``None`` if no error policy takes them.
    """

    shard: Shard
    requested_at: datetime
    payloads: Sequence[bytes] = _EMPTY
    partition_keys: Sequence[str | None] = _EMPTY
    sequence_numbers: Sequence[str] = _EMPTY
    arrival_epoch_seconds: Sequence[float] = _EMPTY
    encryption_types: Sequence[str | None] | None = None
    millis_behind_latest: int | None = None
    sub_sequence_numbers: Sequence[int | None] | None = None
    explicit_hash_keys: Sequence[str | None] | None = None
    markers: Sequence[str | None] | None = None
    child_shards: tuple[ChildShard, ...] = ()
    has_arrival_times: bool = True
    failures: dict[str, Exception] | None = None
    payload_bytes: int = field(
        init=False, default=Factory(lambda self: _bytes_in(self.payloads), takes_self=True)
    )

    @classmethod
    def from_page(cls, page: RecordPage, *, shard: Shard, requested_at: datetime) -> RecordBatch:
        return cls(
            shard=shard,
            requested_at=requested_at,
            payloads=page.payloads,
            partition_keys=page.partition_keys,
            sequence_numbers=page.sequence_numbers,
            arrival_epoch_seconds=page.arrival_epoch_seconds,
            encryption_types=page.encryption_types,
            millis_behind_latest=page.millis_behind_latest,
            child_shards=page.child_shards,
        )

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[Record]:
        count = len(self.payloads)
        return map(
            _make_record,
            zip(
                self.payloads,
                self.partition_keys,
                self.sequence_numbers,
                self.arrival_epoch_seconds,
                _column(self.encryption_types, count),
                repeat(self.shard.shard_id, count),
                repeat(self.shard.stream_name, count),
                _column(self.sub_sequence_numbers, count),
                _column(self.explicit_hash_keys, count),
                _column(self.markers, count),
                strict=True,
            ),
        )

    @property
    def first_sequence_number(self) -> SequenceNumber:
        """The place of the first record, which must exist."""
        return self._number_at(0)

    @property
    def last_sequence_number(self) -> SequenceNumber | None:
        """The place of the last record, or ``None`` in an empty batch."""
        return self._number_at(-1) if self.sequence_numbers else None

    def _number_at(self, index: int) -> SequenceNumber:
        subs = self.sub_sequence_numbers
        return SequenceNumber(self.sequence_numbers[index], None if subs is None else subs[index])

    @property
    def last_arrival(self) -> datetime | None:
        """The latest arrival time in the batch, or ``None`` in an empty batch."""
        latest = max(self.arrival_epoch_seconds, default=None)
        return None if latest is None else _instant(latest)

    @property
    def read_until(self) -> datetime | None:
        """By the reader's clock: what arrived earlier is in this answer or a previous one.

        ``None`` if the answer has no lag. The service's clock measures both ends of the lag, and
        the two clocks need not agree.
        """
        if not self.millis_behind_latest:
            return None if self.millis_behind_latest is None else self.requested_at
        return self.requested_at - timedelta(milliseconds=self.millis_behind_latest) - _LAG_MARGIN

    def slice(self, start: int, stop: int) -> RecordBatch:
        """Return the records from index ``start`` to before ``stop``."""
        if start <= 0 and stop >= len(self):
            return self
        return self._select(lambda column: column[start:stop])

    def take(self, places: Sequence[int]) -> RecordBatch:
        """Return the records with these indices, which ascend."""
        if isinstance(places, range) and places.step == 1:
            return self.slice(places.start, places.stop)
        return self._select(lambda column: [column[place] for place in places])

    def cut(self, count: int) -> RecordBatch:
        """Return the first ``count`` records, which say nothing about the tip."""
        return evolve(self.slice(0, count), millis_behind_latest=None)

    def joined(self, following: RecordBatch) -> RecordBatch:
        """Return both as one batch, which is as complete as ``following``."""
        pairs = {name: (getattr(self, name), getattr(following, name)) for name in _COLUMNS}
        columns: dict[str, Any] = {
            name: [*_column(own, len(self)), *_column(further, len(following))]
            for name, (own, further) in pairs.items()
            if own is not None or further is not None
        }
        has_times = self.has_arrival_times and following.has_arrival_times
        return evolve(following, has_arrival_times=has_times, **columns)

    def in_order(self) -> RecordBatch:
        """Return the records in ascending order, each place once; the batch itself if possible."""
        numbers = self.sequence_numbers
        if isinstance(numbers, PackedColumn) and numbers.is_ascending:
            return self
        places = self._places()
        if all(map(lt, places, islice(places, 1, None))):
            return self
        # Of several records at one place the first one stays.
        indices = {place: index for index, place in reversed(list(enumerate(places)))}
        kept = [indices[place] for place in sorted(indices)]
        return self.take(kept)

    def _places(self) -> Sequence[Any]:
        numbers = self.sequence_numbers
        if self.sub_sequence_numbers is not None:
            return list(map(self._number_at, range(len(numbers))))
        # Decimal numbers of equal length sort as text, at a fraction of the cost of integers.
        return numbers if len(set(map(len, numbers))) < 2 else list(map(int, numbers))

    def unpacked(self) -> RecordBatch:
        """Return the records with columns of objects, for what looks at each of them."""
        return self._select(list) if isinstance(self.payloads, PackedColumn) else self

    def _select(self, pick: Callable[[Sequence[Any]], Sequence[Any]]) -> RecordBatch:
        columns: dict[str, Any] = {
            name: pick(one) for name in _COLUMNS if (one := getattr(self, name)) is not None
        }
        return evolve(self, **columns)

    def count_up_to(self, sequence_number: SequenceNumber) -> int:
        """Return how many records are at or before ``sequence_number``."""
        return bisect_right(range(len(self)), sequence_number, key=self._number_at)

    def _repr_html_(self) -> str:
        shown = self.slice(0, _SHOWN_RECORDS)
        first = "" if shown is self else f", the first {_SHOWN_RECORDS} of which are"
        caption = f"{self.shard}: {len(self):,} records of {self.payload_bytes:,} bytes{first}"
        return html_table(caption, list(map(_row, shown)))

    def to_arrow(self) -> pa.RecordBatch:
        """Return the batch as Arrow columns.

        They are ``data`` binary, ``stream_name``, ``shard_id`` and ``sequence_number`` string,
        ``partition_key`` string or null, ``approximate_arrival_timestamp`` timestamp in
        microseconds, UTC, and ``sub_sequence_number`` 64-bit integer or null.
        """
        try:
            from kinesis_publishers.model.arrow import to_arrow
        except ModuleNotFoundError as error:
            error.msg += ", which to_arrow() needs: pip install 'kinesis-publishers[arrow]'"
            raise

        return to_arrow(
            self.shard,
            self.payloads,
            self.sequence_numbers,
            self.partition_keys,
            self.arrival_epoch_seconds,
            self.sub_sequence_numbers,
        )


def _bytes_in(payloads: Sequence[bytes]) -> int:
    if isinstance(payloads, PackedColumn):
        return payloads.total_bytes
    return sum(map(len, payloads))


def _column(values: Sequence[_T | None] | None, count: int) -> Iterable[_T | None]:
    return repeat(None, count) if values is None else values


class RunResult(Enum):
    """The result of one ``RecordPublisher.run`` (FLIP-128)."""

    COMPLETE = "COMPLETE"
    """The shard has ended and all of its records were delivered."""
    INCOMPLETE = "INCOMPLETE"
    """There may be more: call ``run`` again."""
    CANCELLED = "CANCELLED"
    """The publisher was told to stop."""


@frozen(kw_only=True, eq=False)
class SubscriptionEvent:
    """One ``SubscribeToShardEvent`` (AWS API reference).

    Attributes:
        page: the records, the lag, and the child shards of a shard that has ended.
        continuation_sequence_number: a later subscription that begins after it misses and repeats
            nothing; ``None`` when the shard has ended.
    """

    page: RecordPage
    continuation_sequence_number: SequenceNumber | None
