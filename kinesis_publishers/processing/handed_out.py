"""How deliveries are cut into what one call or one worker gets, and what of them is done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from attrs import define, field, frozen

from kinesis_publishers.engine.delivery import Delivery, Gathering
from kinesis_publishers.model import RecordBatch, ShardKey

# Of the records of a shard that may be in flight: small parts end at about the same time.
_PARTS_IN_FLIGHT: Final = 4
# Records without an order in one part: a slow one holds up the others.
_UNORDERED: Final = 4
# For each worker: keys that share a lane wait for each other.
_LANES: Final = 64
_ORDERS: Final = ("shard", "partition_key", None)


@frozen(kw_only=True)
class Cutting:
    """How a delivery is cut into parts, each of which one worker gets: as ``scan`` was told.

    Parts of the same lane are processed one after another; those without a lane in any order.

    Attributes:
        ordered_by: which records come one after another: those of a ``shard``, those of a
            ``partition_key`` in it, or none (``None``).
        workers: how many there are.
        max_records: the most records of a part; ``None`` for any number.
        max_bytes: the most payload bytes of a part with several records; ``None`` for any number.
        max_wait_seconds: how long records wait for further ones.
        max_in_flight: how many records of a shard may be between the first one that is not done and
            the last one that was handed out, unless they are ordered by shard.
    """

    ordered_by: str | None = "shard"
    workers: int = 1
    per_batch: bool = False
    max_records: int | None = None
    max_bytes: int | None = None
    max_wait_seconds: float = 0.0
    max_in_flight: int = 1000

    def __attrs_post_init__(self) -> None:
        if self.ordered_by not in _ORDERS:
            raise ValueError(f"ordered_by must be one of {_ORDERS}, not {self.ordered_by!r}")
        for name in ("workers", "max_records", "max_bytes", "max_in_flight"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, not {number}")
        if self.max_wait_seconds < 0:
            raise ValueError(f"max_wait must not be negative, not {self.max_wait_seconds:g} s")
        if not self.per_batch and (self.max_records or self.max_bytes or self.max_wait_seconds):
            raise ValueError("max_records, max_bytes and max_wait are for per_batch=True")

    @property
    def is_whole(self) -> bool:
        """Whether a delivery is one part."""
        is_limited = self.max_records is not None or self.max_bytes is not None
        return self.ordered_by == "shard" and not is_limited

    @property
    def overlaps(self) -> bool:
        """Whether records of a delivery may be processed before those of an earlier one."""
        return self.ordered_by != "shard"

    @property
    def gathering(self) -> Gathering | None:
        """How long records wait for further ones of their shard; ``None`` if they do not."""
        if not self.max_wait_seconds:
            return None
        return Gathering(
            max_wait_seconds=self.max_wait_seconds,
            max_records=self.max_records,
            max_bytes=self.max_bytes,
        )

    @property
    def records_at_once(self) -> int | None:
        """How many records are cut at once; ``None`` for the whole delivery."""
        if not self.overlaps:
            return None
        return max(1, self.max_in_flight // _PARTS_IN_FLIGHT, self.max_records or 0)

    def cut(
        self, batch: RecordBatch, start: int, stop: int
    ) -> Iterator[tuple[int | None, Sequence[int]]]:
        """Yield the lane of each part of a range of ``batch``, and the indices of its records."""
        lanes: dict[int, Sequence[int]] = {0: range(start, stop)}
        if self.ordered_by is None and not self.per_batch:
            firsts = range(start, stop, _UNORDERED)
            lanes = {first: range(first, min(first + _UNORDERED, stop)) for first in firsts}
        elif self.ordered_by == "partition_key":
            count = self.workers * (1 if self.per_batch else _LANES)
            by_key: dict[int, list[int]] = {}
            for index in range(start, stop):
                key = batch.partition_keys[index]
                # Records without a key have no order among them.
                by_key.setdefault(hash(index if key is None else key) % count, []).append(index)
            lanes = dict(by_key)
        for lane, indices in lanes.items():
            named = None if self.ordered_by is None else lane
            yield from ((named, part) for part in self._limited(batch, indices))

    def _limited(self, batch: RecordBatch, indices: Sequence[int]) -> Iterator[Sequence[int]]:
        first = size = 0
        for at, index in enumerate(indices):
            payload_bytes = len(batch.payloads[index]) if self.max_bytes is not None else 0
            is_full = at - first == self.max_records or (
                self.max_bytes is not None and size + payload_bytes > self.max_bytes
            )
            if is_full and at > first:
                yield indices[first:at]
                first, size = at, 0
            size += payload_bytes
        yield indices[first:]


@define(eq=False)
class Work:
    """A delivery in progress: which of its records are done, in any order.

    Attributes:
        opened: records before this index have been handed out, or wait in their lanes.
        parts: the parts of them that are not finished.
        done: how many records are done, from the first one on.
        limit: records from this index on are not begun here.
        is_withdrawn: whether another worker reads the records behind the limit.
        is_lost: whether that worker has begun. Progress here is no longer recorded.
        is_left: whether its reader has stopped, or continues with the next delivery.
        has_ended: whether nothing more of it is processed here.
    """

    delivery: Delivery
    cutting: Cutting
    opened: int = field(default=0, init=False)
    parts: list[HandedOut] = field(factory=list, init=False)
    done: int = field(default=0, init=False)
    limit: int = field(init=False)
    is_withdrawn: bool = field(default=False, init=False)
    is_lost: bool = field(default=False, init=False)
    is_left: bool = field(default=False, init=False)
    has_ended: asyncio.Event = field(factory=asyncio.Event, init=False)
    _records: int = field(init=False)
    # One byte for each record, in parts that are not the whole.
    _marks: bytearray | None = field(default=None, init=False)
    # Threads begin records while the event loop sets the limit.
    lock: threading.Lock = field(factory=threading.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.limit = self._records = len(self.delivery.batch)

    @property
    def key(self) -> ShardKey:
        return self.delivery.shard.key

    @property
    def is_cut(self) -> bool:
        """Whether some of the records are left to another worker or to the next run."""
        return self.limit < self._records

    @property
    def farthest(self) -> int:
        """The place behind the last record that has been begun, or is done."""
        done = self.done if self._marks is None else self._marks.rfind(1) + 1
        return max(done, *(part.begun for part in self.parts), 0)

    def cut(self) -> None:
        """Begin no record behind the last one that has begun."""
        with self.lock:
            limit = self.farthest
            # A call that takes a record before the limit takes all of its part.
            in_order = sorted(self.parts, key=lambda part: part.place_of(0))
            for part in in_order if self.cutting.per_batch else ():
                if not part.begun and part.place_of(0) < limit:
                    limit = max(limit, part.place_of(len(part.batch) - 1) + 1)
            self.limit = min(self.limit, limit)
            self.opened = max(self.opened, self.limit)

    def mark(self, places: Sequence[int]) -> None:
        """Note records as done."""
        if self._marks is None:
            self._marks = bytearray(self._records)
        for place in places:
            self._marks[place] = 1
        first_undone = self._marks.find(0, self.done)
        self.done = len(self._marks) if first_undone < 0 else first_undone


@define(eq=False)
class HandedOut:
    """Records of one delivery that one worker processes, in their order.

    Attributes:
        batch: the records, at least one.
        order: its place among what was handed out.
        lane: parts of one lane come one after another; ``None`` if it is in no lane.
        places: the indices of the records in their delivery; ``None`` if they are all of it.
        noted: how many of the first records have been noted as done.
        begun: records of the delivery from this index on have not been begun by this part.
    """

    work: Work
    batch: RecordBatch
    order: int
    lane: int | None = 0
    places: Sequence[int] | None = None
    noted: int = field(default=0, init=False)
    begun: int = field(default=0, init=False)

    @property
    def key(self) -> ShardKey:
        return self.work.key

    def place_of(self, index: int) -> int:
        """Return the place of a record of the batch in its delivery."""
        return index if self.places is None else self.places[index]

    def begin(self, index: int) -> bool:
        """Return whether a record may be begun, and those before it. Any thread may call this."""
        place, work = self.place_of(index), self.work
        with work.lock:
            if place >= work.limit:
                return False
            self.begun = place + 1
        return True

    def leave(self, count: int) -> None:
        """Take back the begin of all but the first ``count`` records: their call has failed."""
        self.begun = self.place_of(count - 1) + 1 if count else 0

    def leave_rest(self, count: int) -> None:
        """Leave all but the first ``count`` records to the next run."""
        self.work.limit = min(self.work.limit, self.place_of(count))

    def may_begin(self, index: int) -> bool:
        """Return whether :meth:`begin` would allow a record now."""
        return self.place_of(index) < self.work.limit

    def note(self, count: int, scattered: Sequence[int] = ()) -> bool:
        """Note the first ``count`` records as done, and ``scattered`` ones behind them.

        Return whether more of the delivery than before is done without a gap.
        """
        before = self.work.done
        if not self.work.cutting.overlaps:
            # It covers what has skipped its checkpoint, too.
            self.work.done = max(before, self.place_of(count - 1) + 1 if count else 0)
        else:
            indices = (*range(self.noted, count), *scattered)
            self.work.mark([self.place_of(index) for index in indices])
        self.noted = max(self.noted, count)
        return self.work.done > before
