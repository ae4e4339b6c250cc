"""A checkpoint as named texts and numbers: the columns and attributes of every store. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from attrs import asdict

from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointVersion,
    HashRange,
    Lease,
    PositionType,
    SequenceNumber,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StoredCheckpoint,
)

Fields: TypeAlias = dict[str, str | int | None]


def instant_text(instant: datetime) -> str:
    """Return an instant in UTC, in ISO 8601."""
    return instant.astimezone(UTC).isoformat(timespec="microseconds")


def fields_of(checkpoint: Checkpoint, version: CheckpointVersion, written_at: datetime) -> Fields:
    """Return what is stored of a checkpoint; a field without a value is left out."""
    fields = {
        "version": version.number,
        "writer": version.writer,
        "written_at": instant_text(written_at),
        "stream_created_at": instant_text(checkpoint.stream_created_at),
        **progress_fields(checkpoint.progress),
        "lease": None if checkpoint.lease is None else _lease_text(checkpoint.lease),
    }
    return {name: value for name, value in fields.items() if value is not None}


def stored_version(fields: Mapping[str, Any] | None) -> tuple[CheckpointVersion | None, str | None]:
    """Return the version of what is stored, and when it was written; nothing has neither."""
    if not fields:
        return None, None
    number, writer = fields.get("version", 0), fields.get("writer", "an unknown writer")
    return CheckpointVersion(number=number, writer=writer), fields.get("written_at")


def progress_fields(progress: ShardProgress) -> Fields:
    """Return the fields that say how far a shard has been read; ``None`` has no value."""
    position, number = progress.position, progress.position.sequence_number
    return {
        "position": position.type.value,
        "sequence_number": None if number is None else number.sequence_number,
        "sub_sequence_number": None if number is None else number.sub_sequence_number,
        "timestamp": None if position.timestamp is None else instant_text(position.timestamp),
        "as_of": None if progress.as_of is None else instant_text(progress.as_of),
        "is_ended": int(progress.is_ended),
    }


def _lease_text(lease: Lease) -> str:
    """Return a lease as JSON, without what has no value."""
    fields = asdict(lease, filter=lambda _, value: value not in (None, ()), recurse=False)
    if lease.hash_range is not None:
        # As texts: a double has no room for them.
        fields["hash_range"] = [str(lease.hash_range.first), str(lease.hash_range.last)]
    if lease.watermark is not None:
        fields["watermark"] = instant_text(lease.watermark)
    return json.dumps(fields)


def _lease(text: str) -> Lease:
    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise TypeError(f"the lease {text!r:.200} is no JSON object")
    return lease_of_fields(fields)


def lease_of_fields(fields: Mapping[str, object]) -> Lease:
    """Return the lease that named values make; the errors are Python's."""
    return Lease(**{name: _LEASE_FIELDS[name](value) for name, value in fields.items()})


def stored_from_fields(
    shard: ShardKey, fields: Mapping[str, object], *, where: object
) -> StoredCheckpoint:
    """Return the checkpoint, and its version, of which :func:`fields_of` made the values.

    Raises:
        CheckpointError: they were written by hand, or are damaged.
    """
    lease = fields.get("lease")
    try:
        return StoredCheckpoint(
            checkpoint=Checkpoint(
                shard=shard,
                stream_created_at=instant_of(fields["stream_created_at"]),
                progress=progress_of(fields),
                lease=None if lease is None else _lease(_text(lease)),
            ),
            version=CheckpointVersion(
                number=_whole(fields["version"]), writer=_text(fields["writer"])
            ),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        shown = {name: value for name, value in fields.items() if value is not None}
        # Must not be removed: with children, the shard would count as read to its end.
        raise CheckpointError(
            f"The checkpoint of shard {shard.shard_id} of {shard.stream_arn} in {where} is damaged "
            f"({error}): {shown!r:.800}. Restore it from a backup; or mend it with position "
            "TRIM_HORIZON, is_ended 0 and neither sequence_number, sub_sequence_number, timestamp "
            "nor as_of, and the shard is read again from the beginning of the retention. Do not "
            "remove it: a shard without a checkpoint may count as read."
        ) from error


def progress_of(fields: Mapping[str, object]) -> ShardProgress:
    """Return the progress of which :func:`progress_fields` are; the errors are Python's."""
    number, timestamp, as_of = (
        fields.get(name) for name in ("sequence_number", "timestamp", "as_of")
    )
    sub = fields.get("sub_sequence_number")
    position = StartingPosition(
        PositionType(fields["position"]),
        None
        if number is None
        else SequenceNumber(_text(number), None if sub is None else _whole(sub)),
        None if timestamp is None else instant_of(timestamp),
    )
    return ShardProgress(
        position=position,
        as_of=None if as_of is None else instant_of(as_of),
        is_ended={0: False, 1: True}[_whole(fields["is_ended"])],
    )


def instant_of(value: object) -> datetime:
    """Return the instant of which :func:`instant_text` made the text."""
    instant = datetime.fromisoformat(_text(value))
    if instant.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone")
    return instant.astimezone(UTC)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is not a count")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{value!r} is not a list")
    return tuple(map(_text, value))


def _hash_range(value: object) -> HashRange:
    first, last = map(int, _texts(value))
    return HashRange(first, last)


_LEASE_FIELDS: dict[str, Callable[[object], Any]] = {
    "owner": _text,
    "leaving": _text,
    "switches": _whole,
    "parents": _texts,
    "children": _texts,
    "hash_range": _hash_range,
    "bytes_per_second": _whole,
    "settle_seconds": _whole,
    "consumer_arn": _text,
    "watermark": instant_of,
    "is_idle": bool,
    "is_at_tip": bool,
}
