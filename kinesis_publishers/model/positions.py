"""Places in a shard, and the rule for where reading continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import total_ordering
from typing import Any, NamedTuple

from attrs import evolve, field, frozen

from kinesis_publishers.model.shards import ShardKey, StreamIdentity


def _validate_decimal(_: object, attribute: Any, value: str) -> None:
    if not (value.isascii() and value.isdigit()):
        raise ValueError(f"{attribute.name} must be a decimal number, not {value!r}")


@total_ordering
@frozen
class SequenceNumber:
    """The place of a record: AWS's sequence number, and the index inside an aggregate.

    Sequence numbers of varying length are compared as integers (AWS API reference, *Record*). A
    whole Kinesis record sorts after its sub-records: having processed it means having processed
    them.

    Attributes:
        sub_sequence_number: 0-based index of a user record inside an aggregate; ``None`` stands for
            the whole Kinesis record.
    """

    sequence_number: str = field(validator=_validate_decimal)
    sub_sequence_number: int | None = None

    @property
    def whole(self) -> SequenceNumber:
        """The Kinesis record that this place is, or is inside."""
        return self if self.sub_sequence_number is None else SequenceNumber(self.sequence_number)

    def _sort_key(self) -> tuple[int, float]:
        sub = self.sub_sequence_number
        return int(self.sequence_number), float("inf") if sub is None else sub

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, SequenceNumber):
            return NotImplemented
        return self._sort_key() < other._sort_key()

    def __str__(self) -> str:
        if self.sub_sequence_number is None:
            return self.sequence_number
        return f"{self.sequence_number}:{self.sub_sequence_number}"


class PositionType(Enum):
    """The kinds of position; the values are AWS's ``ShardIteratorType``."""

    TRIM_HORIZON = "TRIM_HORIZON"
    LATEST = "LATEST"
    AT_TIMESTAMP = "AT_TIMESTAMP"
    AT_SEQUENCE_NUMBER = "AT_SEQUENCE_NUMBER"
    AFTER_SEQUENCE_NUMBER = "AFTER_SEQUENCE_NUMBER"


_NOW = timedelta()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WITH_SEQUENCE_NUMBER = (PositionType.AT_SEQUENCE_NUMBER, PositionType.AFTER_SEQUENCE_NUMBER)


@frozen
class StartingPosition:
    """Where reading of a shard begins (``StartingPosition`` of SubscribeToShard).

    Build one with the class methods. LATEST exists only to be pinned: see :meth:`pinned`.

    Attributes:
        ago: for LATEST alone: how long before the instant of pinning.
    """

    type: PositionType
    sequence_number: SequenceNumber | None = None
    timestamp: datetime | None = None
    ago: timedelta = _NOW

    def __attrs_post_init__(self) -> None:
        if (self.sequence_number is not None) != (self.type in _WITH_SEQUENCE_NUMBER):
            raise ValueError(f"{self.type.value} and {self.sequence_number!r} do not go together")
        if (self.timestamp is not None) != (self.type is PositionType.AT_TIMESTAMP):
            raise ValueError(f"{self.type.value} and {self.timestamp!r} do not go together")
        if self.timestamp is not None and self.timestamp.tzinfo is None:
            raise ValueError("the timestamp of a position must have a time zone")
        if self.ago < _NOW or (self.ago and self.type is not PositionType.LATEST):
            raise ValueError(f"{self.type.value} and {self.ago!r} ago do not go together")

    @classmethod
    def trim_horizon(cls) -> StartingPosition:
        """The oldest record that the shard still holds."""
        return cls(PositionType.TRIM_HORIZON)

    @classmethod
    def latest(cls, ago: timedelta = _NOW) -> StartingPosition:
        """Just after the newest record at the time of the request, or ``ago``: pin it first."""
        return cls(PositionType.LATEST, ago=ago)

    @classmethod
    def at_timestamp(cls, timestamp: datetime) -> StartingPosition:
        """The first record that arrived at or after ``timestamp`` (aware)."""
        return cls(PositionType.AT_TIMESTAMP, timestamp=timestamp)

    @classmethod
    def at(cls, sequence_number: SequenceNumber) -> StartingPosition:
        """The record ``sequence_number`` itself."""
        return cls(PositionType.AT_SEQUENCE_NUMBER, sequence_number)

    @classmethod
    def after(cls, sequence_number: SequenceNumber) -> StartingPosition:
        """The record that follows ``sequence_number``."""
        return cls(PositionType.AFTER_SEQUENCE_NUMBER, sequence_number)

    def pinned(self, now: datetime) -> StartingPosition:
        """Return the same place, with LATEST replaced by the instant ``now``, less :attr:`ago`.

        Do so once, before anything is read. LATEST means another place with each request, and a
        restart would skip what arrived in between.
        """
        if self.type is PositionType.LATEST:
            return StartingPosition.at_timestamp(now - min(self.ago, now - _EPOCH))
        return self

    def require_pinned(self) -> StartingPosition:
        """Return the same place; raises ``ValueError`` for LATEST."""
        if self.type is PositionType.LATEST:
            raise ValueError("LATEST must be pinned to an instant before it is read from")
        return self

    def __str__(self) -> str:
        if self.sequence_number is not None:
            return f"{self.type.value} {self.sequence_number}"
        if self.timestamp is not None:
            return f"{self.type.value} {self.timestamp.isoformat()}"
        return f"{self.ago} ago" if self.ago else self.type.value


class Scope(NamedTuple):
    """What a position is for: a shard, or (with an empty ``shard_id``) all shards of a stream.

    Attributes:
        stream: the name or the ARN of a stream; empty for the only one.
    """

    stream: str = ""
    shard_id: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, self))


@frozen
class Positions:
    """A default position, and others for single streams and shards.

    Attributes:
        own: what takes precedence, a shard's before that of its stream; ``None`` is the end of a
            shard.
    """

    default: StartingPosition
    own: Mapping[Scope, StartingPosition | None] = field(factory=dict)

    def of(self, shard: ShardKey) -> StartingPosition | None:
        """Return the position of a shard, ``None`` for its end."""
        for shard_id in (shard.shard_id, ""):
            for stream in (shard.stream_arn, shard.stream_name, ""):
                if (scope := Scope(stream, shard_id)) in self.own:
                    return self.own[scope]
        return self.default

    def of_stream(self, stream_arn: str) -> StartingPosition:
        """Return the position of the shards of a stream that have none of their own."""
        return self.of(ShardKey(stream_arn, "")) or self.default

    def of_shards(self, stream_arn: str) -> dict[str, StartingPosition | None]:
        """Return the positions of the shards of a stream that have their own, by shard id."""
        streams = ("", stream_arn, ShardKey(stream_arn, "").stream_name)
        named = [one.shard_id for one in self.own if one.shard_id and one.stream in streams]
        return {shard_id: self.of(ShardKey(stream_arn, shard_id)) for shard_id in named}

    def moved(self, move: Callable[[StartingPosition], StartingPosition]) -> Positions:
        """Return the same with each position moved; the ends of shards stay."""
        own = {scope: one and move(one) for scope, one in self.own.items()}
        return Positions(move(self.default), own)

    def __iter__(self) -> Iterator[StartingPosition]:
        yield self.default
        yield from filter(None, self.own.values())


def is_after(start: StartingPosition, until: StartingPosition) -> bool:
    """Return whether one is certainly later; a number and an instant cannot be compared."""
    if start.timestamp is not None and until.timestamp is not None:
        return start.timestamp > until.timestamp
    if start.sequence_number is not None and until.sequence_number is not None:
        return start.sequence_number > until.sequence_number
    return False


def resume_after(processed: SequenceNumber) -> StartingPosition:
    """Return where a restart continues, given the last record that was processed."""
    # Inside an aggregate, AFTER would skip the sub-records that were not processed. The reader
    # drops those up to ``processed``.
    if processed.sub_sequence_number is not None:
        return StartingPosition.at(processed)
    return StartingPosition.after(processed)


def continue_from(current: StartingPosition, processed: SequenceNumber | None) -> StartingPosition:
    """Return where a publisher continues after a delivery that began at ``current``."""
    # An empty first batch says nothing about the position: without AT_TIMESTAMP, records that
    # arrive before the first one is seen would be skipped.
    return current if processed is None else resume_after(processed)


@frozen(kw_only=True)
class ShardProgress:
    """How far a shard has been read: what a checkpoint or an offset stores.

    Attributes:
        position: where reading continues.
        as_of: everything that arrived before this instant has been read; ``None`` while unknown.
            It distinguishes an idle shard from one whose unread records the retention has removed.
        is_ended: the shard has been read to its end and is never read again.
    """

    position: StartingPosition
    as_of: datetime | None = None
    is_ended: bool = False

    @property
    def processed(self) -> SequenceNumber | None:
        """The last processed record, or ``None`` if there is none yet."""
        number = self.position.sequence_number
        if number is None or self.position.type is PositionType.AFTER_SEQUENCE_NUMBER:
            return number
        # AT a whole record means that this record itself comes next.
        return None if number.sub_sequence_number is None else number

    def ended(self) -> ShardProgress:
        return evolve(self, is_ended=True)


@frozen(kw_only=True)
class StreamProgress:
    """How far a stream has been read.

    Attributes:
        shards: the progress of each shard, by shard id.
        is_left_out: the last reader recorded that it did not read the stream.
    """

    identity: StreamIdentity
    shards: Mapping[str, ShardProgress]
    is_left_out: bool = False


@frozen(kw_only=True)
class RangeSize:
    """What the planner of a range knows about its size.

    Attributes:
        records: how many Kinesis records it has, exactly or about; ``None`` if unknown.
        seen_since: if only its end was read, from which instant on; ``None`` if
            :attr:`records` is exact.
        seen_records: how many were read, with the one that the range ends before.
    """

    records: int | None
    seen_since: datetime | None = None
    seen_records: int = 0


@frozen(kw_only=True)
class ShardRange:
    """Some records of one shard.

    Attributes:
        end: its last record, included; ``None`` means the end of the closed shard, unless
            ``until`` is given.
        excludes_end: whether the range ends immediately before ``end`` instead.
        until: the range ends at the tip, or before the first record that arrived at or after this
            instant. There was none when the range was planned, long enough after the instant for
            everything that had arrived before it to be visible.
        as_of: what arrived earlier precedes the range; ``None`` if the range names its first
            record. It shows whether records at its beginning may have been removed.
        size: lets a reader fetch little beyond the end.
    """

    shard: ShardKey
    start: StartingPosition
    end: SequenceNumber | None
    as_of: datetime | None = field(default=None, eq=False)
    size: RangeSize | None = field(default=None, eq=False)
    excludes_end: bool = False
    until: datetime | None = None


# A quarter of the shortest retention: an idle shard's progress is renewed long before its age would
# look like data loss.
_REFRESH_AFTER = timedelta(hours=6)


def is_refresh_due(written: datetime | None, current: datetime | None, now: datetime) -> bool:
    """Return whether an idle shard's ``current`` ``as_of`` should replace the ``written`` one."""
    if current is None:
        return False
    return written is None or (now - written > _REFRESH_AFTER and current > written)
