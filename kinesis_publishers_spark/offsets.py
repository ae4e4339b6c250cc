"""Offsets: how far every shard of every stream is read, as text in Spark's own offset log. Pure.

Nothing else is stored: one offset resumes a query, and two determine exactly which records a
micro-batch has.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from attrs import field, frozen

from kinesis_publishers import (
    SequenceNumber,
    ShardKey,
    ShardProgress,
    ShardRange,
    StartingPosition,
    StreamIdentity,
    StreamProgress,
)
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.readers import PositionType, is_refresh_due, stream_name_of

#: Version 2 lets a range end before a record; version 1 is still read.
OFFSET_VERSION = 2
_VERSIONS_READ = (1, OFFSET_VERSION)
OffsetJson: TypeAlias = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@frozen(kw_only=True)
class ShardOffset:
    """How far one shard is read.

    Attributes:
        progress: where reading continues.
        first: the first record of this shard in the micro-batch that the offset ends, if any: a
            replay begins with exactly this record, or reports that it is gone.
    """

    progress: ShardProgress
    first: SequenceNumber | None = None


@frozen(kw_only=True)
class Offset:
    """How far the streams are read.

    Attributes:
        streams: the identity of each stream, by ARN.
        shards: how far each shard is read.
        left_out: the streams that the query no longer reads; they keep their shards, too.
    """

    streams: Mapping[str, StreamIdentity] = field(factory=dict)
    shards: Mapping[ShardKey, ShardOffset] = field(factory=dict)
    left_out: frozenset[str] = frozenset()

    @classmethod
    def of(cls, progress: Mapping[str, StreamProgress]) -> Offset:
        """Return the offset of a fetcher's progress."""
        return cls(
            streams={arn: stream.identity for arn, stream in progress.items()},
            shards={
                ShardKey(arn, shard_id): ShardOffset(progress=one)
                for arn, stream in progress.items()
                for shard_id, one in stream.shards.items()
            },
            left_out=frozenset(arn for arn, stream in progress.items() if stream.is_left_out),
        )

    @property
    def progress(self) -> dict[str, StreamProgress]:
        """The progress at which a fetcher resumes."""
        return {
            arn: StreamProgress(
                identity=identity,
                shards={
                    key.shard_id: one.progress
                    for key, one in self.shards.items()
                    if key.stream_arn == arn
                },
                is_left_out=arn in self.left_out,
            )
            for arn, identity in self.streams.items()
        }

    def ranges_since(self, start: Offset) -> list[ShardRange]:
        """Return the ranges between two offsets, in a fixed order; only shards with records.

        A shard that ended in between, at an unnamed record, is read to its end.
        """
        ranges = []
        for key, end in sorted(self.shards.items(), key=lambda item: str(item[0])):
            arn = key.stream_arn
            is_same_stream = start.streams.get(arn) == self.streams.get(arn)
            begin = start.shards.get(key) if is_same_stream else None
            between = _range_between(key, begin, end)
            if between is not None:
                ranges.append(between)
        return ranges

    def to_json(self) -> OffsetJson:
        """Return the offset as Spark stores it.

        Spark compares offsets as text, so that equal offsets give the same keys in the same order.
        """
        return {
            "version": OFFSET_VERSION,
            "streams": {
                arn: {
                    "created": _to_micros(self.streams[arn].created_at),
                    **({"leftOut": True} if arn in self.left_out else {}),
                    "shards": {
                        key.shard_id: _shard_to_json(self.shards[key])
                        for key in sorted(self.shards, key=str)
                        if key.stream_arn == arn
                    },
                }
                for arn in sorted(self.streams)
            },
        }

    @classmethod
    def from_json(cls, text: object) -> Offset:
        """Return the offset that :meth:`to_json` wrote.

        Raises:
            CheckpointError: it was written by a newer version, or by hand.
        """
        version = text.get("version") if isinstance(text, dict) else None
        if not isinstance(text, dict) or version not in _VERSIONS_READ:
            raise CheckpointError(
                f"The checkpoint holds a Kinesis offset of version {version!r}, but this version "
                f"of kinesis-publishers reads the versions {_VERSIONS_READ}: install the version "
                "that wrote it (or a newer one), or start with a new checkpoint location."
            )
        try:
            return _from_json(text)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise CheckpointError(
                f"The checkpoint holds a Kinesis offset that is damaged ({error!r}) or was not "
                f"written by this source: {text!r:.500}. Restore the offset log, or start with a "
                "new checkpoint location."
            ) from error


def _range_between(key: ShardKey, begin: ShardOffset | None, end: ShardOffset) -> ShardRange | None:
    as_of = None
    if end.first is not None:
        start = StartingPosition.at(end.first)
    elif begin is not None:
        start, as_of = begin.progress.position, begin.progress.as_of
    else:
        # Either it was read before, as are ancestors that the offset lists as ended, or it has no
        # records yet: its first micro-batch with records names the first one.
        return None
    until = end.progress.position
    last, has_moved = until.sequence_number, begin is None or until != begin.progress.position
    if last is not None and has_moved:
        is_before = end.progress.processed is None
        return ShardRange(shard=key, start=start, end=last, as_of=as_of, excludes_end=is_before)
    if end.progress.is_ended and not (begin is not None and begin.progress.is_ended):
        return ShardRange(shard=key, start=start, end=None, as_of=as_of)
    return None


def _from_json(text: OffsetJson) -> Offset:
    streams, shards = {}, {}
    left_out = frozenset(arn for arn, one in text["streams"].items() if one.get("leftOut", False))
    for arn, stream in text["streams"].items():
        streams[arn] = StreamIdentity(
            name=stream_name_of(arn), arn=arn, created_at=_from_micros(stream["created"])
        )
        for shard_id, shard in stream["shards"].items():
            shards[ShardKey(arn, shard_id)] = _shard_from_json(shard)
    return Offset(streams=streams, shards=shards, left_out=left_out)


def _shard_to_json(offset: ShardOffset) -> dict[str, Any]:
    progress = offset.progress
    position, number = progress.position, progress.position.sequence_number
    text: dict[str, Any] = {}
    if number is not None:
        is_after = position.type is PositionType.AFTER_SEQUENCE_NUMBER
        text["after" if is_after else "at"] = number.sequence_number
        if number.sub_sequence_number is not None:
            text["sub"] = number.sub_sequence_number
    elif position.timestamp is not None:
        text["from"] = _to_micros(position.timestamp)
    else:
        text["from"] = position.type.value
    if offset.first is not None:
        text["first"] = offset.first.sequence_number
    if progress.as_of is not None:
        text["asOf"] = _to_micros(progress.as_of)
    if progress.is_ended:
        text["ended"] = True
    return text


def _shard_from_json(text: Mapping[str, Any]) -> ShardOffset:
    sub = None if "sub" not in text else _checked_int(text["sub"])
    if "after" in text:
        position = StartingPosition.after(SequenceNumber(text["after"], sub))
    elif "at" in text:
        position = StartingPosition.at(SequenceNumber(text["at"], sub))
    elif isinstance(text["from"], int):
        position = StartingPosition.at_timestamp(_from_micros(text["from"]))
    else:
        position = StartingPosition(PositionType(text["from"]))
    return ShardOffset(
        progress=ShardProgress(
            position=position,
            as_of=_from_micros(text["asOf"]) if "asOf" in text else None,
            is_ended=bool(text.get("ended", False)),
        ),
        first=SequenceNumber(text["first"]) if "first" in text else None,
    )


def _to_micros(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND


def _from_micros(micros: object) -> datetime:
    return _EPOCH + _checked_int(micros) * _MICROSECOND


def _checked_int(value: object) -> int:
    # bool is an int to Python, and a float times a timedelta is one, too.
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    return value


def needs_refresh(start: Offset, known: Offset, now: datetime) -> bool:
    """Return whether ``start`` should be replaced although there are no records.

    Four changes need it. The pinned start of a new stream must survive a restart. A stream that is
    left out is reported once. Children, and a restart, rely on the end of a shard. The position of
    an idle shard must be renewed every few hours: a restart would take an older one for lost data.
    """
    if (known.streams, known.left_out) != (start.streams, start.left_out):
        return True
    for key, one in known.shards.items():
        before = start.shards.get(key)
        if before is None or before.progress.is_ended:
            continue
        if one.progress.is_ended:
            return True
        if is_refresh_due(before.progress.as_of, one.progress.as_of, now):
            return True
    return False
