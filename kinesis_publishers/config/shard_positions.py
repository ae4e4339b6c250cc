"""The JSON text that gives a position per shard, as other Spark connectors for Kinesis write it."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

import orjson
from attrs import frozen

if TYPE_CHECKING:
    from kinesis_publishers.config.parsers import Scalar

__all__ = ["ShardIteratorKind", "ShardPosition", "ShardPositions"]

_SHARD_ID: Final = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_SEQUENCE_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,128}")
# Of the year 9999, with which calendars end.
_LAST_MILLISECOND: Final = 253_402_300_799_999


class ShardIteratorKind(Enum):
    """How a position of one shard is meant."""

    LATEST = "LATEST"
    TRIM_HORIZON = "TRIM_HORIZON"
    AT_TIMESTAMP = "AT_TIMESTAMP"
    AT_SEQUENCE_NUMBER = "AT_SEQUENCE_NUMBER"
    AFTER_SEQUENCE_NUMBER = "AFTER_SEQUENCE_NUMBER"
    SHARD_END = "SHARD_END"


@frozen(kw_only=True)
class ShardPosition:
    """Where to begin in one shard.

    Attributes:
        shard_id: the shard.
        kind: how ``marker`` is meant.
        marker: a sequence number, or epoch milliseconds for AT_TIMESTAMP; empty for the others.
    """

    shard_id: str
    kind: ShardIteratorKind
    marker: str = ""


class ShardPositions:
    """Parses ``{"shardId-...": {"iteratorType": ..., "iteratorPosition": ...}}``."""

    accepts = (
        'JSON such as {"shardId-000000000000": {"iteratorType": "AFTER_SEQUENCE_NUMBER", '
        '"iteratorPosition": "495..."}}, with milliseconds since 1970 for AT_TIMESTAMP'
    )
    unit = None

    def __call__(self, value: Scalar) -> tuple[ShardPosition, ...]:
        document = orjson.loads(str(value))
        if not isinstance(document, dict):
            raise ValueError("not an object")
        # "metadata" stands beside the shards in an offset that was copied from another connector.
        return tuple(
            _parse_position(shard_id, position)
            for shard_id, position in sorted(document.items())
            if shard_id != "metadata"
        )


def _parse_position(shard_id: str, position: object) -> ShardPosition:
    if not isinstance(position, dict) or not _SHARD_ID.fullmatch(shard_id):
        raise ValueError("not a position")
    kind = ShardIteratorKind(str(position.get("iteratorType")).upper())
    marker = str(position.get("iteratorPosition", ""))
    needs_number = kind.name.endswith(("TIMESTAMP", "SEQUENCE_NUMBER"))
    if needs_number and not _SEQUENCE_NUMBER.fullmatch(marker):
        raise ValueError("not a sequence number")
    if kind is ShardIteratorKind.AT_TIMESTAMP and int(marker) > _LAST_MILLISECOND:
        raise ValueError("beyond all calendars")
    return ShardPosition(shard_id=shard_id, kind=kind, marker=marker if needs_number else "")
