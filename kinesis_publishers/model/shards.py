"""Streams and shards as values: identity, lineage, hash keys."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Self

from attrs import frozen

from kinesis_publishers.model.native import native
from kinesis_publishers.model.sources import stream_name_of

#: With its partition key; a stream may allow less (API reference, UpdateMaxRecordSize).
MAX_RECORD_BYTES: Final = 10 * 1024 * 1024
MAX_HASH_KEY: Final = 2**128 - 1
LONGEST_HASH_KEY: Final = len(str(MAX_HASH_KEY))


@frozen(cache_hash=True)
class ShardKey:
    """Identifies a shard everywhere: its stream's ARN and its own id."""

    stream_arn: str
    shard_id: str

    @property
    def stream_name(self) -> str:
        return stream_name_of(self.stream_arn)

    def __str__(self) -> str:
        return f"{self.stream_name}/{self.shard_id}"


@frozen(kw_only=True)
class StreamIdentity:
    """A stream as it exists now; deleted and created again, it has another identity."""

    name: str
    arn: str
    created_at: datetime


@frozen(kw_only=True)
class StreamSummary:
    """The answer of DescribeStreamSummary, as far as reading and writing need it.

    Attributes:
        max_record_bytes: the maximum size of a record with its partition key; what no stream
            exceeds where the service does not say.
        is_auto_distributed: whether the service spreads records over the shards, with any keys or
            none (``RecordDistributionStrategy`` AUTO).
    """

    identity: StreamIdentity
    status: str
    retention_seconds: float
    max_record_bytes: int = MAX_RECORD_BYTES
    is_auto_distributed: bool = False


@frozen(kw_only=True)
class StreamListing:
    """A stream as ListStreams names it; what the service leaves out is ``None``."""

    name: str
    arn: str | None
    status: str | None
    # PROVISIONED or ON_DEMAND.
    mode: str | None
    created_at: datetime | None


@frozen(kw_only=True)
class StreamConsumer:
    """A consumer that is registered for enhanced fan-out on one stream.

    Attributes:
        arn: identifies this registration; a later one under the same name has another ARN.
        status: ``CREATING``, ``ACTIVE`` or ``DELETING``.
    """

    name: str
    arn: str
    status: str
    created_at: datetime


@frozen(kw_only=True)
class ChildShard:
    """A shard that continues one that has ended (``ChildShards`` of GetRecords)."""

    shard_id: str
    parent_shard_ids: tuple[str, ...]
    starting_hash_key: str
    ending_hash_key: str


@frozen(kw_only=True)
class Shard:
    """One shard of a stream (``Shard`` of ListShards).

    Attributes:
        ending_sequence_number: set once the shard is closed: it takes no more records, but those it
            has stay readable until the retention removes them.
    """

    stream_arn: str
    shard_id: str
    parent_shard_id: str | None = None
    adjacent_parent_shard_id: str | None = None
    starting_hash_key: str = "0"
    ending_hash_key: str = str(MAX_HASH_KEY)
    starting_sequence_number: str = "0"
    ending_sequence_number: str | None = None

    @classmethod
    def of_child(cls, stream_arn: str, child: ChildShard) -> Self:
        """Return what the last answer of a shard says of one that continues it."""
        return cls(
            stream_arn=stream_arn,
            shard_id=child.shard_id,
            parent_shard_id=next(iter(child.parent_shard_ids), None),
            adjacent_parent_shard_id=next(iter(child.parent_shard_ids[1:]), None),
            starting_hash_key=child.starting_hash_key,
            ending_hash_key=child.ending_hash_key,
        )

    @property
    def key(self) -> ShardKey:
        return ShardKey(self.stream_arn, self.shard_id)

    @property
    def stream_name(self) -> str:
        return stream_name_of(self.stream_arn)

    @property
    def parent_keys(self) -> tuple[ShardKey, ...]:
        """The shards that this one continues: none, one (split) or two (merge)."""
        ids = (self.parent_shard_id, self.adjacent_parent_shard_id)
        return tuple(ShardKey(self.stream_arn, shard_id) for shard_id in ids if shard_id)

    @property
    def is_closed(self) -> bool:
        return self.ending_sequence_number is not None

    def __str__(self) -> str:
        return str(self.key)


def hash_key_of(partition_key: str, explicit_hash_key: str | None = None) -> int:
    """Return the hash key by which Kinesis chooses the shard of a record.

    It is the explicit one, or the MD5 of the partition key (AWS API reference, *PutRecord*). Raises
    as :func:`parse_hash_key`.
    """
    if explicit_hash_key is not None:
        return parse_hash_key(explicit_hash_key)
    digest = hashlib.md5(partition_key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def hash_keys_of(partition_keys: Sequence[str]) -> Sequence[int]:
    """Return the hash keys of records that have no explicit ones."""
    functions = native()
    if functions is None:
        return list(map(hash_key_of, partition_keys))
    return functions.hash_keys(partition_keys)


def parse_hash_key(text: str) -> int:
    """Return a hash key as a number; raises ``ValueError`` unless it is one up to 2**128 - 1."""
    is_number = text.isascii() and text.isdigit() and len(text) <= LONGEST_HASH_KEY
    if not is_number or int(text) > MAX_HASH_KEY:
        raise ValueError(f"{text!r} is not a hash key: a decimal number from 0 to 2**128 - 1")
    return int(text)


@frozen
class HashRange:
    """The hash keys that belong to one shard, both ends included."""

    first: int = 0
    last: int = MAX_HASH_KEY

    @classmethod
    def of(cls, shard: Shard) -> Self:
        return cls.between(shard.starting_hash_key, shard.ending_hash_key)

    @classmethod
    def between(cls, first: str, last: str) -> Self:
        """Return the range from ``first`` to ``last``; raises as :func:`parse_hash_key`."""
        return cls(parse_hash_key(first), parse_hash_key(last))

    def __contains__(self, hash_key: int) -> bool:
        return self.first <= hash_key <= self.last
