"""One shard: its place in the lineage and in the hash key space, and its records as JSON."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from datetime import UTC, datetime
from hashlib import md5
from itertools import pairwise
from typing import Any, Literal

import orjson
import pybase64
from attrs import Factory, define, field, frozen

from kinesis_publishers.testing.local_kinesis.sequence_numbers import (
    SequenceSpace,
    shard_id_of_index,
)


@frozen
class Position:
    """Reading begins with the first record at or above ``number``; "stuck" never reads any."""

    number: int
    kind: Literal["live", "stuck"] = "live"


@frozen
class StoredRecord:
    """A record as the server keeps it."""

    sequence_number: str
    partition_key: str | None
    data: bytes
    arrival_time: datetime


def _stored_record(fields: dict[str, Any]) -> StoredRecord:
    return StoredRecord(
        fields["SequenceNumber"],
        fields.get("PartitionKey"),
        pybase64.b64decode(fields["Data"]),
        datetime.fromtimestamp(fields["ApproximateArrivalTimestamp"], UTC),
    )


@frozen
class Page:
    """What one GetRecords takes from a shard.

    Attributes:
        fragments: the records, each as the JSON object that goes into the answer.
        next_number: where the next page begins (the first record at or above it).
        next_arrival_ms: the arrival of the first record that was left over, if there is one.
        payload_bytes: data and partition keys, which is what AWS meters.
    """

    fragments: list[bytes]
    next_number: int
    next_arrival_ms: int | None
    payload_bytes: int


@define
class Shard:
    """A shard and its records.

    ``watchers`` are rung, once, by the next record and by the end of the shard.

    The lists run in parallel, one entry per record, oldest first. ``_ends`` holds running totals
    of bytes, so that the end of a page of at most n bytes is found by bisection.
    """

    space: SequenceSpace
    first_hash_key: int
    last_hash_key: int
    opened_ms: int
    parent_ids: tuple[str, ...] = ()
    child_ids: tuple[str, ...] = ()
    closed_ms: int | None = None
    ending_number: int | None = None
    trimmed_number: int = 0
    #: The number given out last; the starting number as long as there is none.
    last_number: int = Factory(lambda self: self.space.starting(), takes_self=True)
    watchers: set[Wakeup] = field(factory=set)
    _next_position: int = 1
    _tip_number: int = 0
    _numbers: list[int] = field(factory=list)
    _fragments: list[bytes] = field(factory=list)
    _arrivals_ms: list[int] = field(factory=list)
    _ends: list[int] = field(factory=list)
    _trimmed_bytes: int = 0

    @property
    def shard_id(self) -> str:
        return shard_id_of_index(self.space.shard_index)

    @property
    def is_open(self) -> bool:
        return self.closed_ms is None

    @property
    def tip_number(self) -> int:
        """The largest number that any client has seen, of a record or of the tip."""
        return max(self.last_number, self._tip_number)

    @property
    def record_count(self) -> int:
        return len(self._numbers)

    def stored_records(self) -> list[StoredRecord]:
        """Return all records, oldest first."""
        return [_stored_record(orjson.loads(fragment)) for fragment in self._fragments]

    def append(
        self, data_base64: str, key: str | None, size_bytes: int, now_ms: int, key_id: str | None
    ) -> int:
        """Store a record, whose payload is as in an answer; return its number."""
        number = self.space.number(self._next_position, now_ms // 1000)
        self._next_position += 1
        self.last_number = number
        arrival = f"{now_ms // 1000}.{now_ms % 1000:03d}"
        key_member = "" if key is None else f',"PartitionKey":{orjson.dumps(key).decode()}'
        encryption = ',"EncryptionType":"KMS"' if key_id is not None else ""
        self._fragments.append(
            f'{{"SequenceNumber":"{number}","ApproximateArrivalTimestamp":{arrival},'
            f'"Data":"{data_base64}"{key_member}{encryption}}}'.encode()
        )
        self._numbers.append(number)
        # The wall clock may step back; what is bisected and trimmed must not.
        self._arrivals_ms.append(
            max(now_ms, self._arrivals_ms[-1]) if self._arrivals_ms else now_ms
        )
        self._ends.append((self._ends[-1] if self._ends else self._trimmed_bytes) + size_bytes)
        if self.watchers:
            self.ring()
        return number

    def mark_tip(self, now_ms: int) -> int:
        """Return a number that moves with time, although nothing is put.

        Reading that continues after it misses nothing and, unlike the number of the last record, it
        stays valid when that record is trimmed.
        """
        mark = self.space.tip(self._next_position - 1, now_ms // 1000)
        self._tip_number = max(self._tip_number, mark)
        return self._tip_number

    def close(self, now_ms: int, child_ids: tuple[str, ...]) -> None:
        self.closed_ms = now_ms
        self.child_ids = child_ids
        self.ending_number = self.space.ending(now_ms // 1000)
        self.ring()

    def ring(self) -> None:
        """Wake all who wait for records."""
        watchers, self.watchers = self.watchers, set()
        for watcher in watchers:
            watcher.ring()

    def page(self, number: int, max_records: int | None, max_bytes: int | None) -> Page:
        """Return the records from ``number`` on; one record of any size always fits."""
        start = bisect_left(self._numbers, number)
        stop = len(self._numbers)
        if max_records is not None:
            stop = min(stop, start + max_records)
        before = self._ends[start - 1] if start else self._trimmed_bytes
        if max_bytes is not None and stop > start:
            fitting = bisect_right(self._ends, before + max_bytes, start, stop)
            stop = max(start + 1, fitting)
        if stop == start:
            return Page([], number, self._arrival_at(start), 0)
        return Page(
            self._fragments[start:stop],
            self._numbers[stop - 1] + 1,
            self._arrival_at(stop),
            self._ends[stop - 1] - before,
        )

    def first_number_since(self, instant_ms: float) -> int:
        """Return where reading begins for AT_TIMESTAMP; behind the tip if nothing is that new."""
        index = bisect_left(self._arrivals_ms, instant_ms)
        return self._numbers[index] if index < len(self._numbers) else self.last_number + 1

    def trim_arrived_before(self, instant_ms: int) -> None:
        if self._arrivals_ms and self._arrivals_ms[0] < instant_ms:
            self._trim(bisect_left(self._arrivals_ms, instant_ms))

    def trim_through(self, number: int) -> None:
        """Drop the records up to and including ``number``."""
        self._trim(bisect_right(self._numbers, number))

    def has_ended_at(self, number: int) -> bool:
        """Tell whether the shard is closed and nothing is left at or above ``number``."""
        return not self.is_open and (not self._numbers or self._numbers[-1] < number)

    def _trim(self, count: int) -> None:
        if count == 0:
            return
        self.trimmed_number = self._numbers[count - 1]
        self._trimmed_bytes = self._ends[count - 1]
        del self._numbers[:count]
        del self._fragments[:count]
        del self._arrivals_ms[:count]
        del self._ends[:count]

    def _arrival_at(self, index: int) -> int | None:
        return self._arrivals_ms[index] if index < len(self._arrivals_ms) else None


class Wakeup:
    """What one coroutine waits for and any other code rings.

    ``arm`` and ``ring`` are called under the service's lock. A ring after ``arm`` is never lost,
    whether or not the coroutine waits already; one before ``arm`` is forgotten, because what it
    announced has been seen under the same lock.
    """

    def __init__(self) -> None:
        self._armed: asyncio.Future[None] | None = None

    def arm(self) -> asyncio.Future[None]:
        """Return what the coroutine awaits; its loop must be running."""
        self._armed = asyncio.get_running_loop().create_future()
        return self._armed

    def ring(self) -> None:
        """Wake the coroutine; from any thread."""
        armed, self._armed = self._armed, None
        # A server that was stopped has closed its loop; no coroutine waits there now.
        if armed is not None and not armed.get_loop().is_closed():
            armed.get_loop().call_soon_threadsafe(_complete, armed)


def _complete(armed: asyncio.Future[None]) -> None:
    # The wait may have timed out meanwhile.
    if not armed.done():
        armed.set_result(None)


HASH_KEY_COUNT = 1 << 128


def hash_of_partition_key(partition_key: str) -> int:
    digest = md5(partition_key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def even_ranges(count: int) -> list[tuple[int, int]]:
    """Return the hash keys of ``count`` equal shards, as CreateStream lays them out."""
    starts = [HASH_KEY_COUNT // count * number for number in range(count)]
    return [(first, after - 1) for first, after in pairwise([*starts, HASH_KEY_COUNT])]
