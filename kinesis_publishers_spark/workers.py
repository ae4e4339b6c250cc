"""Keeps range readers and producers from task to task in one Python worker process.

Spark reuses its worker processes. Clients with their connections serve the next task with the same
properties.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Condition, RLock
from typing import Any, Generic, Protocol, TypeVar

from attrs import define, field

from kinesis_publishers import Delivery, DeliverySink, Properties, ShardRange
from kinesis_publishers.event_loop import OpenInThread
from kinesis_publishers.readers import KinesisRangeReader

_T = TypeVar("_T", bound="Closable")
# A task needs one reader for its query and publisher; a worker serves all queries of its
# application.
_MOST_KEPT = 4


class Closable(Protocol):
    """A reader or producer that can be kept."""

    def close(self) -> None:
        """Free its resources; it is not in use."""


class WorkerReader:
    """A :class:`~kinesis_publishers.readers.ranges.reader.KinesisRangeReader` in its own thread.

    Attributes:
        is_new: whether it has not read yet.

    Raises:
        ConfigError: the properties cannot work.
    """

    def __init__(self, properties: Properties) -> None:
        reader = KinesisRangeReader.from_properties(properties, packs_columns=True)
        self._open = OpenInThread(reader, name="kinesis-ranges")
        self._loop = self._open.loop
        self.is_new = True

    def read(
        self, ranges: Collection[ShardRange], expected_bytes: int | None = None
    ) -> Generator[list[Delivery]]:
        """Yield the records of ``ranges`` as they arrive; deliveries count as taken with the next.

        Closing the iterator stops the reading; what has not been taken is dropped.

        Raises:
            KinesisPublishersError: the first failure of any range.
        """
        self.is_new = False
        queue, reading = DeliveryQueue(), _Reading()
        work = self._open.value.read(ranges, queue, expected_bytes=expected_bytes)
        result = self._loop.start(reading.run(work))
        result.add_done_callback(lambda done: queue.end(has_failed=_has_failed(done)))
        taken: list[Delivery] = []
        try:
            while taken := queue.take():
                yield taken
                self._loop.call(release_all, tuple(taken))
                # Do not hold what has left the pool while waiting for the next records.
                taken.clear()
            result.result()
        finally:
            # Not waited for: the garbage collector may close this iterator in the loop's thread, or
            # at the exit of the interpreter, when that thread has stopped.
            if not sys.is_finalizing():
                self._loop.start(reading.stop(queue, taken))

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._open.close()


class _Reading:
    """One reading; its coroutines run one after another, in the order of their start."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.current_task()
        await work

    async def stop(self, queue: DeliveryQueue, taken: Iterable[Delivery]) -> None:
        """Cancel the reading unless it is over, and release its deliveries."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        release_all([*taken, *queue.take_rest()])


def _has_failed(result: Future[None]) -> bool:
    return result.cancelled() or result.exception() is not None


@define(eq=False)
class _Entry(Generic[_T]):
    value: _T
    users: int = 0
    is_dropped: bool = False


@define(eq=False)
class WorkerCache(Generic[_T]):
    """Lends one object for each configuration, and keeps the most recently used; thread-safe.

    Args:
        make: makes one.
        most: how many are kept; more exist only in use.
    """

    _make: Callable[[Properties], _T]
    _most: int = _MOST_KEPT
    _lock: RLock = field(factory=RLock, init=False)
    # In the order of their last use.
    _entries: dict[Properties, _Entry[_T]] = field(factory=dict, init=False)
    _abandoned: list[dict[Properties, _Entry[_T]]] = field(factory=list, init=False)

    def __len__(self) -> int:
        return len(self._entries)

    @contextmanager
    def lend(self, properties: Properties) -> Iterator[_T]:
        """Yield the one for ``properties``; one that fails meanwhile is not lent again."""
        entry = self._take(properties)
        try:
            yield entry.value
        except Exception:
            self._drop(properties, entry)
            raise
        finally:
            self._give_back(entry)

    def _take(self, properties: Properties) -> _Entry[_T]:
        entry = self._take_kept(properties)
        if entry is None:
            # Without the lock: it takes long, and meanwhile the garbage collector may end a task,
            # in any thread, which gives back what it has.
            entry = _Entry(self._make(properties), users=1)
            self._keep(properties, entry)
        self._close_surplus()
        return entry

    def _take_kept(self, properties: Properties) -> _Entry[_T] | None:
        with self._lock:
            entry = self._entries.pop(properties, None)
            if entry is not None:
                entry.users += 1
                self._entries[properties] = entry
            return entry

    def _keep(self, properties: Properties, entry: _Entry[_T]) -> None:
        with self._lock:
            # If another thread was faster, this one serves a single task.
            entry.is_dropped = self._entries.setdefault(properties, entry) is not entry

    def _close_surplus(self) -> None:
        with self._lock:
            unused = [one for one in self._entries.items() if one[1].users == 0]
            surplus = unused[: max(0, len(self._entries) - self._most)]
            for key, _ in surplus:
                del self._entries[key]
        for _, one in surplus:
            one.value.close()

    def _drop(self, properties: Properties, entry: _Entry[_T]) -> None:
        with self._lock:
            entry.is_dropped = True
            if self._entries.get(properties) is entry:
                del self._entries[properties]

    def _give_back(self, entry: _Entry[_T]) -> None:
        with self._lock:
            entry.users -= 1
            is_last = entry.is_dropped and entry.users == 0
        if is_last:
            entry.value.close()

    def close(self) -> None:
        """Close everything; nothing may be in use."""
        with self._lock:
            entries, self._entries = self._entries, {}
        for entry in entries.values():
            entry.value.close()

    def abandon(self) -> None:
        """Start over in a process that was forked: the threads of the parent are not in it.

        Nothing is closed or collected: the parent uses the sockets and selectors.
        """
        self._lock = RLock()
        self._abandoned.append(self._entries)
        self._entries = {}


READERS = WorkerCache(WorkerReader)
lend_reader = READERS.lend
os.register_at_fork(after_in_child=READERS.abandon)


# Below either, one more Arrow batch costs Spark more than its rows.
_MIN_BATCH_RECORDS = 10_000
_MIN_BATCH_BYTES = 1024 * 1024


class DeliveryQueue(DeliverySink):
    """Takes deliveries in one thread and hands them out in another, in the order of arrival.

    It needs no bound of its own: each delivery holds its share of the pending pool until it is
    released, and the pool is bounded.
    """

    def __init__(self) -> None:
        self._deliveries: deque[Delivery] = deque()
        self._changed = Condition()
        self._is_over = self._has_failed = False

    async def deliver(self, delivery: Delivery) -> None:
        with self._changed:
            self._deliveries.append(delivery)
            self._changed.notify()

    def end(self, *, has_failed: bool) -> None:
        """End the deliveries; the rest of a failed reading is not handed out."""
        with self._changed:
            self._is_over, self._has_failed = True, has_failed
            self._changed.notify()

    def take(self) -> list[Delivery]:
        """Wait for deliveries; return those of the next batch, none at the end.

        Small deliveries are taken together, without waiting for others to fill the batch.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._deliveries or self._is_over)
            if self._has_failed:
                return []
            return self._take_batch()

    def _take_batch(self) -> list[Delivery]:
        taken: list[Delivery] = []
        records = payload_bytes = 0
        while (
            self._deliveries and records < _MIN_BATCH_RECORDS and payload_bytes < _MIN_BATCH_BYTES
        ):
            taken.append(self._deliveries.popleft())
            records += len(taken[-1].batch)
            payload_bytes += taken[-1].batch.payload_bytes
        return taken

    def take_rest(self) -> list[Delivery]:
        """Return everything that was not handed out."""
        with self._changed:
            rest = list(self._deliveries)
            self._deliveries.clear()
            return rest


def release_all(deliveries: Iterable[Delivery]) -> None:
    """Return the shares of the pool; in the loop's thread only."""
    for delivery in deliveries:
        delivery.release()
