"""Selects the records of the next PutRecords call from the queues, and packs them if configured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain, count, islice, repeat
from typing import Final

from attrs import evolve, field, frozen

from kinesis_publishers.abc import PutColumns
from kinesis_publishers.aggregation import AggregatedRecord, pack_first, pack_plain
from kinesis_publishers.config import OuterKey, ProducerConfig
from kinesis_publishers.producing.queues import ShardQueue, ShardQueues
from kinesis_publishers.producing.records import Run, utf8_bytes

#: The maximum size of one shard in a call at its full rate: the KPL's number.
SHARD_BYTES: Final = 256 * 1024


@frozen(eq=False)
class Part:
    """The part of a call for one shard: plain records or aggregates of them, each with its runs."""

    queue: ShardQueue
    runs: Sequence[Run]
    aggregates: Sequence[tuple[AggregatedRecord, Sequence[Run]]] | None = None
    # The bytes of the entries.
    size: int = field()

    @size.default
    def _measure(self) -> int:
        if self.aggregates is None:
            return sum([run.size for run in self.runs])
        return sum([len(one.data) + utf8_bytes(one.partition_key) for one, _ in self.aggregates])

    @classmethod
    def packed(
        cls, queue: ShardQueue, aggregates: Sequence[tuple[AggregatedRecord, Sequence[Run]]]
    ) -> Part:
        return cls(queue, [run for _, runs in aggregates for run in runs], aggregates)

    @property
    def records(self) -> int:
        return sum(map(len, self.runs))

    @property
    def entries(self) -> int:
        """The number of Kinesis records: an aggregate counts as one."""
        return self.records if self.aggregates is None else len(self.aggregates)

    @property
    def oldest(self) -> float:
        return self.runs[0].put_at

    def is_divisible(self, index: int) -> bool:
        """Return whether the records of an entry may belong to several shards."""
        return self.aggregates is not None and self.aggregates[index][0].user_records > 1

    def pick(self, indices: Sequence[int]) -> Part:
        """Return some of the entries, by their indices in this part."""
        if self.aggregates is not None:
            return Part.packed(self.queue, [self.aggregates[one] for one in indices])
        runs, start = [], 0
        for run in self.runs:
            stop = start + len(run)
            own = [one - start for one in indices if start <= one < stop]
            runs += [run.pick(own)] if own else []
            start = stop
        return Part(self.queue, runs)

    def settle(self, shard_ids: Sequence[str], numbers: Sequence[str], now: float) -> None:
        if self.aggregates is None:
            start = 0
            for run in self.runs:
                own = slice(start, start + len(run))
                run.settle((shard_ids[own], numbers[own], [None] * len(run)), now)
                start = own.stop
            return
        for (one, runs), shard_id, number in zip(self.aggregates, shard_ids, numbers, strict=True):
            subs = iter(count() if one.is_aggregate else repeat(None))
            for run in runs:
                records = len(run)
                own_subs = list(islice(subs, records))
                run.settle(([shard_id] * records, [number] * records, own_subs), now)


def columns_of(parts: Iterable[Part]) -> PutColumns:
    payloads: list[bytes] = []
    keys: list[str | None] = []
    hash_keys: list[str | None] = []
    for part in parts:
        if part.aggregates is None:
            for run in part.runs:
                payloads += run.payloads
                keys += part.queue.keys_of(run.partition_keys)
                hash_keys += run.explicit_hash_keys or repeat(None, len(run))
        else:
            payloads += [one.data for one, _ in part.aggregates]
            keys += [one.partition_key for one, _ in part.aggregates]
            hash_keys += [one.explicit_hash_key for one, _ in part.aggregates]
    given = hash_keys if any(hash_keys) else None
    return PutColumns(payloads=payloads, partition_keys=keys, explicit_hash_keys=given)


class Collector:
    """Selects the records of the next call.

    A record is due after the linger time. A call is made when there is enough for a full one, or
    for the full part of a shard, or when a record is due. It then includes other waiting records.
    """

    def __init__(self, config: ProducerConfig, queues: ShardQueues) -> None:
        self._config = config
        self._queues = queues
        self._turn = 0
        # The maximum of one shard in a call: the shard would throttle a larger burst.
        self._shard_bytes = int(SHARD_BYTES * min(4.0, max(1.0, config.rate)))
        least = config.aggregate_bytes if config.aggregates else 0
        # The amount that triggers a call.
        self._enough_bytes = max(self._shard_bytes, least)

    def collect(self, now: float, *, hurries: bool) -> tuple[Sequence[Part], float]:
        """Return the next call, empty if there is none now, and the seconds until the next try."""
        due_before = math.inf if hurries else now - self._config.linger_seconds
        ready, delay = self._ready_queues(now, due_before)
        # The first queue changes each time: the last may find no room.
        self._turn += 1
        start = self._turn % len(ready) if ready else 0
        parts: list[Part] = []
        entries_left, bytes_left = self._config.batch_records, self._config.batch_bytes
        for queue in (*ready[start:], *ready[:start]):
            if entries_left < 1 or bytes_left < 1:
                break
            room = _Room(entries=entries_left, bytes=bytes_left, is_empty=not parts)
            taken: list[Run] = []
            try:
                part = self._take(queue, room, due_before, taken)
            except Exception:
                queue.prepend(taken)
                for part in parts:
                    self._queues.end(part.queue, part.runs)
                    part.queue.prepend(part.runs)
                raise
            if part is not None:
                parts.append(part)
                entries_left -= part.entries
                bytes_left -= part.size
        return parts, delay

    def _ready_queues(self, now: float, due_before: float) -> tuple[list[ShardQueue], float]:
        """Return the queues for a call now, and the time to wait if there are none."""
        config = self._config
        ready: list[ShardQueue] = []
        delay, records, size, is_due = math.inf, 0, 0, False
        for queue in self._queues:
            if not queue.waiting:
                continue
            wait = max(queue.blocked_until - now, self._limiter_delay(queue, now))
            if wait > 0:
                delay = min(delay, wait)
                continue
            is_own_due = _is_due(queue, due_before) or queue.size >= self._enough_bytes
            is_due = is_due or is_own_due
            # An aggregate with room waits for more records, even if other queues are sent.
            if is_own_due or not self._queues.aggregates or queue.size >= config.aggregate_bytes:
                ready.append(queue)
                records += queue.records
                size += queue.size
            if not is_own_due:
                delay = min(delay, queue.waiting[0].put_at - due_before)
        is_full = size >= config.batch_bytes or (
            records >= config.batch_records and not self._queues.aggregates
        )
        return (ready if is_due or is_full else []), delay

    def _limiter_delay(self, queue: ShardQueue, now: float) -> float:
        size, most = queue.size, self._config.aggregate_bytes
        if self._queues.aggregates:
            return queue.limiter.delay(-(-size // most), size, min(size, most), now)
        head = queue.waiting[0]
        first = len(head.payloads[0]) + utf8_bytes(head.partition_keys[0])
        return queue.limiter.delay(queue.records, size, first, now)

    def _take(
        self, queue: ShardQueue, room: _Room, due_before: float, taken: list[Run]
    ) -> Part | None:
        """Take the part of a queue that goes into the call; its runs are in ``taken`` at once."""
        allowed, allowed_bytes = queue.limiter.allowance()
        room = evolve(
            room,
            entries=min(room.entries, allowed),
            of_shard=min(room.bytes, allowed_bytes, self._shard_bytes * max(1, queue.choices)),
        )
        if self._queues.aggregates:
            part = self._take_aggregates(queue, room, due_before, taken)
        else:
            part = self._take_plain(queue, room, taken)
        if part is not None:
            queue.limiter.take(part.entries, part.size)
            self._queues.begin(queue, part.runs)
        return part

    def _take_plain(self, queue: ShardQueue, room: _Room, runs: list[Run]) -> Part | None:
        left, size = room.entries, 0
        if self._queues.has_order:
            # Each with another key: a call has no order.
            left = len(self._queues.admitted(queue, most=left, is_one_per_key=True))
        while queue.waiting and left:
            fitting = room.fitting(queue.waiting[0], left, size)
            if not fitting:
                break
            runs.append(queue.pop(fitting))
            size += runs[-1].size
            left -= fitting
        if not any(run.is_noted for run in runs):
            return Part(queue, runs, None, size) if runs else None
        # Only an aggregate can store the note of a record.
        singles = [run.slice(one, one + 1) for run in runs for one in range(len(run))]
        return Part.packed(queue, [(pack_first(one.rows()), (one,)) for one in singles])

    def _take_aggregates(
        self, queue: ShardQueue, room: _Room, due_before: float, taken: list[Run]
    ) -> Part | None:
        most_bytes = self._config.aggregate_bytes
        aggregates: list[tuple[AggregatedRecord, Sequence[Run]]] = []
        total = 0
        while queue.waiting and len(aggregates) < room.entries:
            estimated = min(queue.size, most_bytes)
            if aggregates and total + estimated > room.of_shard:
                break
            if estimated < most_bytes and not _is_due(queue, due_before):
                break
            candidates: Sequence[Run] = queue.waiting
            if self._queues.has_order:
                sent = {run.partition_keys[0] for run in taken}
                candidates = self._queues.admitted(queue, size=most_bytes, sent=sent)
            if not candidates:
                break
            packed = _packed(candidates, self._config)
            size = len(packed.data) + utf8_bytes(packed.partition_key)
            if not room.admits(size, total):
                break
            runs = queue.take(packed.user_records)
            taken += runs
            aggregates.append((packed, runs))
            total += size
        return Part.packed(queue, aggregates) if aggregates else None


def _packed(runs: Sequence[Run], config: ProducerConfig) -> AggregatedRecord:
    """Return an aggregate of the first records, under the partition key that is configured."""
    most_bytes, most = config.aggregate_bytes, config.aggregate_records
    if config.outer_key is OuterKey.KPL:
        return _packed_within(runs, most_bytes, most)
    key = runs[0].partition_keys[0]
    # The stream's limit counts the key, too. The explicit hash key decides the shard.
    return evolve(_packed_within(runs, most_bytes - utf8_bytes(key), most), partition_key=key)


def _packed_within(runs: Iterable[Run], most_bytes: int, most: int) -> AggregatedRecord:
    payloads: list[bytes] = []
    keys: list[str] = []
    size = 0
    for run in runs:
        if run.is_noted or run.explicit_hash_keys is not None:
            rows = chain.from_iterable([one.rows() for one in runs])
            return pack_first(rows, max_bytes=most_bytes, max_records=most)
        payloads += run.payloads
        keys += run.partition_keys
        size += run.size
        if size >= most_bytes:
            break
    # The same result for plain records, which most are, at a fraction of the cost.
    return pack_plain(payloads, keys, max_bytes=most_bytes, max_records=most)


def _is_due(queue: ShardQueue, due_before: float) -> bool:
    head = queue.waiting[0]
    # A refused record has waited for the linger time already.
    return head.attempts > 0 or head.put_at <= due_before


@frozen(kw_only=True)
class _Room:
    """The remaining room in a call, and whether the call is empty."""

    entries: int
    bytes: int
    is_empty: bool
    # The bytes up to its limit.
    of_shard: int = 0

    def admits(self, size: int, taken: int) -> bool:
        """Return whether an entry fits after ``taken`` bytes of its shard."""
        if taken:
            return taken + size <= self.of_shard
        # The limiter allows one entry of any size; one that is larger than a call goes alone.
        return size <= self.bytes or self.is_empty

    def fitting(self, run: Run, most: int, taken: int) -> int:
        """Return how many of the first records of a run fit, one by one."""
        if len(run) <= most and taken + run.size <= self.of_shard:
            return len(run)
        found = 0
        for data, key in zip(run.payloads[:most], run.partition_keys, strict=False):
            size = len(data) + utf8_bytes(key)
            if not self.admits(size, taken):
                break
            taken += size
            found += 1
        return found
