"""Events of fetchers, streams and shards: what is read, from when to when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from datetime import datetime

    from kinesis_publishers.model import SequenceNumber, ShardKey, StartingPosition

__all__ = [
    "FetcherStarted",
    "FetcherStopped",
    "StreamPrepared",
    "ShardsDiscovered",
    "ShardStarted",
    "ShardEnded",
    "ShardStopped",
    "RangeRead",
    "DataLossTolerated",
]


@frozen(kw_only=True)
class FetcherStarted:
    """A fetcher began to run.

    Attributes:
        streams: what it reads: names or ARNs.
    """

    streams: tuple[str, ...]


@frozen(kw_only=True)
class FetcherStopped:
    """A fetcher has stopped: none of its shards is being read any more.

    Attributes:
        streams: what it read: names or ARNs.
        seconds: how long it ran.
        error: what stopped it, in words; ``None`` if it was asked to stop.
    """

    streams: tuple[str, ...]
    seconds: float
    error: str | None


@frozen(kw_only=True)
class StreamPrepared:
    """A stream was found, and where its shards are read from is fixed.

    Attributes:
        stream_arn: which stream.
        shards: how many of its shards are known, those that have ended included.
        is_resumed: whether it goes on where an earlier reader was.
    """

    stream_arn: str
    shards: int
    is_resumed: bool


@frozen(kw_only=True)
class ShardsDiscovered:
    """ListShards, or the last answer of a parent, showed shards that were not known before."""

    stream_arn: str
    shard_ids: tuple[str, ...]


@frozen(kw_only=True)
class ShardStarted:
    """Reading of a shard began."""

    shard: ShardKey
    position: StartingPosition


@frozen(kw_only=True)
class ShardEnded:
    """A shard was read to its end, or has left the retention; it is not read any further."""

    shard: ShardKey


@frozen(kw_only=True)
class ShardStopped:
    """Reading of a shard was given up before its end; a later reader goes on there.

    Attributes:
        shard: which shard.
        position: where reading goes on.
        error: what it failed with, in words; ``None`` if it was asked to stop.
    """

    shard: ShardKey
    position: StartingPosition
    error: str | None


@frozen(kw_only=True)
class RangeRead:
    """An exact range of a shard was read and handed on.

    Attributes:
        shard: which shard.
        start: where the range begins.
        end: its last record; ``None`` for the end of the shard.
        seconds: how long it took.
    """

    shard: ShardKey
    start: StartingPosition
    end: SequenceNumber | None
    seconds: float


@frozen(kw_only=True)
class DataLossTolerated:
    """Records may be missing, and the configuration says to go on.

    Their number is unknown: sequence numbers have gaps.

    Attributes:
        shard: where they are missing; the id ``*`` stands for the whole stream.
        message: what is missing, in words.
        position: where reading was to go on: they come after it.
        since: everything that arrived earlier has been read, if that is known.
        until: they arrived before this instant, if that is known.
        next_record: what reading goes on with, if that is known.
    """

    shard: ShardKey
    message: str
    position: StartingPosition | None = None
    since: datetime | None = None
    until: datetime | None = None
    next_record: SequenceNumber | None = None
