"""The deliveries of one shard in progress, and the parts of them that wait for others."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from kinesis_publishers.engine.delivery import Delivery
from kinesis_publishers.processing.handed_out import Cutting, HandedOut, Work


class ShardWorks:
    """The deliveries of a shard that are queued or being processed, in their order.

    Args:
        order: numbers what is handed out.

    Attributes:
        has_begun: whether ``on_shard_begin`` has been queued for the shard.
        is_held_back: whether its last records were processed and must not be recorded yet.
    """

    def __init__(self, cutting: Cutting, order: Iterator[int]) -> None:
        self._cutting, self._order = cutting, order
        self._works: deque[Work] = deque()
        # By lane: the part that is queued or being processed, and what follows it.
        self._lanes: dict[int, deque[HandedOut]] = {}
        self.has_begun = self.is_held_back = False

    def __bool__(self) -> bool:
        return bool(self._works)

    @property
    def is_idle(self) -> bool:
        """Whether a new object would know as much of the shard."""
        return not (self._works or self.has_begun or self.is_held_back)

    @property
    def first(self) -> Work | None:
        """The delivery whose progress may be recorded."""
        return self._works[0] if self._works else None

    def add(self, delivery: Delivery) -> Work:
        """Add a delivery behind those in progress."""
        work = Work(delivery, self._cutting)
        self._works = deque([*(one for one in self._works if not one.is_left), work])
        return work

    def open(self) -> Iterator[HandedOut]:
        """Cut off what may be in flight, and yield the parts that may begin now."""
        in_flight = sum(work.opened - work.done for work in self._works)
        for work in self._works:
            records, at_once = len(work.delivery.batch), self._cutting.records_at_once
            while work.opened < work.limit:
                start = work.opened
                stop = records if at_once is None else min(start + at_once, records)
                is_much = in_flight + stop - start > self._cutting.max_in_flight
                if at_once is not None and in_flight and is_much:
                    return
                work.opened, in_flight = stop, in_flight + stop - start
                parts = self._parts(work, start, stop)
                work.parts += parts
                yield from (part for part in parts if self._enqueue(part))

    def _parts(self, work: Work, start: int, stop: int) -> list[HandedOut]:
        batch, order = work.delivery.batch, next(self._order)
        if self._cutting.is_whole:
            return [HandedOut(work, batch, order)]
        cut = self._cutting.cut(batch, start, stop)
        return [HandedOut(work, batch.take(places), order, lane, places) for lane, places in cut]

    def _enqueue(self, part: HandedOut) -> bool:
        if part.lane is None:
            return True
        lane = self._lanes.setdefault(part.lane, deque())
        lane.append(part)
        return len(lane) == 1

    def _followers(self) -> list[tuple[deque[HandedOut], HandedOut]]:
        return [(lane, part) for lane in self._lanes.values() for part in [*lane][1:]]

    @property
    def has_parts_to_come(self) -> bool:
        """Whether parts wait for those before them in their lanes."""
        return any(part.may_begin(0) for _, part in self._followers())

    def cut(self) -> None:
        """Leave the records behind the last one that was begun."""
        for work in reversed(self._works):
            work.cut()
            if work.limit:
                break
        self._drop_followers()

    def withdraw(self, *, is_lost: bool) -> None:
        """Do that for another worker; leave all records if it has begun to read them."""
        self.has_begun = self.is_held_back = False
        for work in self._works:
            work.is_withdrawn, work.is_lost = True, is_lost
            if is_lost:
                work.limit = 0
        if is_lost:
            self._drop_followers()
        else:
            self.cut()

    def _drop_followers(self) -> None:
        for lane, part in self._followers():
            if not part.may_begin(0):
                lane.remove(part)
                part.work.parts.remove(part)

    def finish(self, handed: HandedOut) -> Iterable[HandedOut]:
        """Finish a part; return the next one of its lane, if any."""
        work = handed.work
        if handed.noted < len(handed.batch) and not (work.is_cut or work.is_withdrawn):
            self.is_held_back = True
        work.parts.remove(handed)
        key = handed.lane
        if key is None or not (lane := self._lanes.get(key)) or lane[0] is not handed:
            return ()
        lane.popleft()
        if not lane:
            del self._lanes[key]
        return [*lane][:1]

    def end_first(self) -> bool:
        """End the first delivery if nothing of it is left to do; return whether that is so."""
        first = self.first
        if first is None or first.parts or first.opened < first.limit:
            return False
        if first.is_cut and not first.is_withdrawn:
            return False
        self._works.popleft()
        first.has_ended.set()
        for later in self._works if first.is_cut else ():
            # Another worker begins before them.
            later.is_lost, later.limit = True, 0
        return True
