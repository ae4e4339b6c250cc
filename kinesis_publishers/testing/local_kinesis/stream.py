"""One stream: its settings, shards and consumers, and how answers show them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter
from typing import Literal

from attrs import define, field, frozen

from kinesis_publishers.testing.local_kinesis.answers import (
    ApiError,
    resource_not_found,
    throughput_exceeded,
)
from kinesis_publishers.testing.local_kinesis.requests import violation
from kinesis_publishers.testing.local_kinesis.sequence_numbers import CreationSeconds, SequenceSpace
from kinesis_publishers.testing.local_kinesis.shard import Page, Shard, even_ranges

_HOUR_MS = 3_600_000
#: What EnableEnhancedMonitoring can switch on, in the order in which answers name it.
METRICS = (
    "IncomingBytes",
    "IncomingRecords",
    "OutgoingBytes",
    "OutgoingRecords",
    "WriteProvisionedThroughputExceeded",
    "ReadProvisionedThroughputExceeded",
    "IteratorAgeMilliseconds",
)

StreamMode = Literal["PROVISIONED", "ON_DEMAND"]
StreamStatus = Literal["CREATING", "DELETING", "ACTIVE", "UPDATING"]


ConsumerStatus = Literal["CREATING", "DELETING", "ACTIVE"]

_ARN = re.compile(
    r"(?P<stream_arn>arn:aws[^:]*:kinesis:[^:]*:\d{12}:stream/(?P<stream>[a-zA-Z0-9_.-]+))"
    r"/consumer/(?P<name>[a-zA-Z0-9_.-]+):[0-9]+"
)


@frozen
class ConsumerArn:
    """The parts of a ConsumerARN."""

    stream_arn: str
    stream_name: str
    consumer_name: str

    @classmethod
    def parse(cls, text: str) -> ConsumerArn:
        """Read a ConsumerARN; ValidationException if it is none."""
        match = _ARN.fullmatch(text)
        if match is None:
            raise violation(
                "ConsumerARN",
                text,
                "Member must satisfy regular expression pattern: " + _ARN.pattern,
            )
        return cls(match["stream_arn"], match["stream"], match["name"])


@define(eq=False)
class Consumer:
    """A registered consumer.

    Attributes:
        arn: ends in the second of ``created_ms``: one that is registered again has another.
        active_ms: when it stops being CREATING.
        deleted_ms: when it is gone, once it has been deregistered.
    """

    name: str
    arn: str
    created_ms: int
    active_ms: int
    deleted_ms: int | None = None
    tags: dict[str, str] = field(factory=dict)
    policy: str | None = None

    def status(self, now_ms: int) -> ConsumerStatus:
        if self.deleted_ms is not None:
            return "DELETING"
        return "CREATING" if now_ms < self.active_ms else "ACTIVE"


@define(eq=False)
class Stream:
    """A stream, its shards and its consumers.

    Times are in milliseconds since the epoch and passed in: a stream has no clock. A change that
    takes a while is held in ``_pending`` and happens when a caller settles the stream.
    """

    name: str
    arn: str
    account_id: str
    mode: StreamMode
    created_ms: int
    creation_seconds: CreationSeconds
    active_ms: int
    max_record_kib: int | None = None
    #: Whether it spreads records over its shards, for any keys.
    is_auto_distributed: bool = False
    retention_hours: int = 24
    deleted_ms: int | None = None
    tags: dict[str, str] = field(factory=dict)
    policy: str | None = None
    #: Of the key that records are encrypted with; None if they are not.
    key_id: str | None = None
    metrics: tuple[str, ...] = ()
    warm_mibps: int | None = None
    shards: dict[str, Shard] = field(factory=dict)
    #: In the order of their hash key ranges.
    open_shards: list[Shard] = field(factory=list)
    consumers: dict[str, Consumer] = field(factory=dict)
    _next_index: int = 0
    _turn: int = 0
    _pending: tuple[int, Callable[[int], object]] | None = None

    @property
    def retention_ms(self) -> int:
        return self.retention_hours * _HOUR_MS

    def status(self, now_ms: int) -> StreamStatus:
        if self.deleted_ms is not None:
            return "DELETING"
        if now_ms < self.active_ms:
            return "CREATING"
        return "UPDATING" if self._pending else "ACTIVE"

    def add_initial_shards(self, count: int, now_ms: int) -> None:
        second = self.creation_seconds.next(now_ms)
        for hash_keys in even_ranges(count):
            self.add_shard(second, hash_keys, now_ms)
        self.index_open_shards()

    def add_shard(
        self, second: int, hash_keys: tuple[int, int], now_ms: int, parents: tuple[str, ...] = ()
    ) -> Shard:
        """Append an open shard; the caller calls ``index_open_shards`` once it is done."""
        shard = Shard(
            SequenceSpace(self._next_index, second), hash_keys[0], hash_keys[1], now_ms, parents
        )
        self._next_index += 1
        self.shards[shard.shard_id] = shard
        return shard

    def index_open_shards(self) -> None:
        open_shards = (shard for shard in self.shards.values() if shard.is_open)
        self.open_shards = sorted(open_shards, key=attrgetter("first_hash_key"))

    def destination(self, hash_key: int | None) -> Shard:
        """Return the shard for a record: that of its hash key or, with AUTO, one after another."""
        if hash_key is not None and not self.is_auto_distributed:
            return self.route(hash_key)
        self._turn += 1
        return self.open_shards[self._turn % len(self.open_shards)]

    def route(self, hash_key: int) -> Shard:
        """Return the open shard whose range contains ``hash_key``."""
        found = bisect_right(self.open_shards, hash_key, key=attrgetter("first_hash_key"))
        return self.open_shards[found - 1]

    def consumer(self, name: str, now_ms: int) -> Consumer | None:
        """Return a consumer, unless its deletion is over."""
        consumer = self.consumers.get(name)
        if consumer is None or consumer.deleted_ms is None or consumer.deleted_ms > now_ms:
            return consumer
        del self.consumers[name]
        return None

    def present_consumers(self, now_ms: int) -> list[Consumer]:
        """Return those that DescribeStreamConsumer knows, in the order of their names."""
        found = (self.consumer(name, now_ms) for name in sorted(self.consumers))
        return [consumer for consumer in found if consumer is not None]

    def rate_exceeded(self, shard: Shard) -> ApiError:
        return throughput_exceeded(
            f"Rate exceeded for shard {shard.shard_id} in stream {self.name} under account "
            f"{self.account_id}."
        )

    @property
    def pending_due_ms(self) -> int | None:
        """When the change that it is UPDATING for happens, if there is one."""
        return self._pending[0] if self._pending is not None else None

    def change_later(self, due_ms: int, change: Callable[[int], object]) -> None:
        """Keep the stream UPDATING until ``due_ms`` and call ``change(due_ms)`` then."""
        self._pending = (due_ms, change)
        # Readers that wait for records look again: the change may close the shard.
        for shard in self.shards.values():
            shard.ring()

    def settle(self, now_ms: int) -> None:
        """Apply a change that is due."""
        if self._pending is not None and self._pending[0] <= now_ms:
            due_ms, change = self._pending
            self._pending = None
            change(due_ms)

    def shard(self, shard_id: str, now_ms: int) -> Shard:
        """Return a shard that is within the retention, with its expired records removed."""
        shard = self.shards.get(shard_id)
        if shard is None or self._expire_shard(shard, now_ms):
            raise resource_not_found(
                f"Shard {shard_id} in stream {self.name} under account {self.account_id} "
                "does not exist"
            )
        return shard

    def retained_shards(self, now_ms: int) -> list[Shard]:
        """Return all shards within the retention, in the order of their ids."""
        for shard in list(self.shards.values()):
            self._expire_shard(shard, now_ms)
        return list(self.shards.values())

    def _expire_shard(self, shard: Shard, now_ms: int) -> bool:
        horizon_ms = now_ms - self.retention_ms
        shard.trim_arrived_before(horizon_ms)
        if shard.closed_ms is None or shard.closed_ms > horizon_ms:
            return False
        # Data that arrived in the very millisecond of the reshard is still within the retention.
        if shard.record_count:
            return False
        del self.shards[shard.shard_id]
        return True


def shard_shape(shard: Shard) -> dict[str, object]:
    """Return the ``Shard`` of ListShards and DescribeStream."""
    numbers = {"StartingSequenceNumber": str(shard.space.starting())}
    if shard.ending_number is not None:
        numbers["EndingSequenceNumber"] = str(shard.ending_number)
    shape: dict[str, object] = {
        "ShardId": shard.shard_id,
        "HashKeyRange": _hash_key_range(shard),
        "SequenceNumberRange": numbers,
    }
    # Parents are named even when they have left the retention, as AWS does.
    members = "ParentShardId", "AdjacentParentShardId"
    return shape | dict(zip(members, shard.parent_ids, strict=False))


def child_shards_of(stream: Stream, shard: Shard) -> list[dict[str, object]]:
    """Return the ChildShards of the last page of a closed shard."""
    children = (stream.shards.get(child_id) for child_id in shard.child_ids)
    return [
        {
            "ShardId": child.shard_id,
            "ParentShards": list(child.parent_ids),
            "HashKeyRange": _hash_key_range(child),
        }
        for child in children
        if child is not None
    ]


def millis_behind(page: Page, now_ms: int) -> int:
    """Return the MillisBehindLatest of a page."""
    if page.next_arrival_ms is None:
        return 0
    # Zero would say that there is nothing left, even to a reader who came in the same millisecond.
    return max(1, now_ms - page.next_arrival_ms)


def _hash_key_range(shard: Shard) -> dict[str, str]:
    return {"StartingHashKey": str(shard.first_hash_key), "EndingHashKey": str(shard.last_hash_key)}
