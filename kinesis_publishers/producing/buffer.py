"""The buffer of unwritten records: when it is full, ``put`` waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from attrs import define, field

from kinesis_publishers.config import ProducerConfig, WhenFull
from kinesis_publishers.errors import BufferFullError
from kinesis_publishers.producing.queues import ShardQueue, ShardQueues

# The limit of one shard, as a multiple of the free room.
_MULTIPLE: Final = 8


@define(eq=False)
class _Waiter:
    partition_key: str
    explicit_hash_key: str | None
    records: int
    size: int
    granted: asyncio.Future[None]
    number: int
    is_from_disk: bool


@define(eq=False)
class Buffer:
    """Counts the records of all shards that wait or are being sent.

    One shard may use a multiple of the free room: a shard that throttles leaves room for the
    others.

    ``on_wait`` is called when a caller must wait. While ``on_disk`` counts records, no others enter
    than those from there.
    """

    _queues: ShardQueues
    _config: ProducerConfig
    on_wait: Callable[[], None] = field(default=lambda: None, init=False)
    records: int = field(default=0, init=False)
    bytes: int = field(default=0, init=False)
    on_disk: int = field(default=0, init=False)
    _is_away: bool = field(default=False, init=False)
    _end: Exception | None = field(default=None, init=False)
    _lines: dict[ShardQueue, deque[_Waiter]] = field(factory=dict, init=False)
    _last_number: int = field(default=0, init=False)
    # Whether released room is reserved for a waiter.
    _is_reserved: bool = field(default=False, init=False)

    @property
    def has_waiters(self) -> bool:
        return any(self._lines.values())

    def note_service(self, *, is_away: bool) -> None:
        """Turn callers away that wait for a service which is away, if records may go to disk."""
        self._is_away = is_away and self._config.spill_path is not None
        for queue, line in self._lines.items() if self._is_away else ():
            for waiter in line:
                if not (waiter.is_from_disk or waiter.granted.done()):
                    waiter.granted.set_exception(self._full(queue))

    async def enter(
        self,
        partition_key: str,
        explicit_hash_key: str | None,
        records: int,
        size: int,
        *,
        is_from_disk: bool = False,
    ) -> None:
        """Reserve room for records of one shard, after earlier callers for that shard.

        Raises:
            BufferFullError: there is no room, and the configuration forbids waiting; or the disk
                has room instead, and the service is away or records there come first.
            KinesisPublishersError: the producer has ended.
        """
        if self._end is not None:
            raise self._end
        queue = self._queues.queue_of(partition_key, explicit_hash_key)
        is_behind = self._is_reserved or queue in self._lines
        is_next = is_from_disk or not self.on_disk
        if is_next and not is_behind and self._take(queue, records, size):
            return
        fails = self._config.when_full is WhenFull.FAIL
        if not is_from_disk and (fails or self.on_disk or self._is_away):
            raise self._full(queue)
        self.on_wait()
        self._last_number += 1
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request = partition_key, explicit_hash_key, records, size
        await self._wait(_Waiter(*request, granted, self._last_number, is_from_disk))

    def _full(self, queue: ShardQueue) -> BufferFullError:
        return BufferFullError(
            f"The buffer is full, with {self.records:,} records and {self.bytes:,} bytes "
            f"({ProducerConfig.max_records.full_key}, {ProducerConfig.max_bytes.full_key}), "
            f"or has too many of {queue.shard}"
        )

    def _take(self, queue: ShardQueue, records: int, size: int) -> bool:
        """Reserve room if there is enough in the buffer, and in the share of the queue."""
        free = self._config.max_records - self.records - records
        free_bytes = self._config.max_bytes - self.bytes - size
        fits = (
            free >= 0
            and free_bytes >= 0
            and queue.records + queue.aside <= _MULTIPLE * free
            and queue.size <= _MULTIPLE * free_bytes
        )
        # A request that is larger than the whole buffer is admitted when the buffer is empty.
        if self.records and not fits:
            return False
        self.records += records
        self.bytes += size
        return True

    async def _wait(self, waiter: _Waiter) -> None:
        granted = waiter.granted
        self._join(waiter)
        try:
            await granted
            if self._end is not None:
                raise self._end
        except BaseException:
            # The waiter was served, and cancelled or closed in the same turn of the loop.
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self.release(waiter.records, waiter.size)
            else:
                self._leave(waiter)
            raise

    def _join(self, waiter: _Waiter) -> None:
        queue = self._queues.queue_of(waiter.partition_key, waiter.explicit_hash_key)
        self._lines.setdefault(queue, deque()).append(waiter)

    def _leave(self, waiter: _Waiter) -> None:
        """Remove a waiter that gave up, and serve the next."""
        for queue, line in list(self._lines.items()):
            if waiter in line:
                line.remove(waiter)
                if not line:
                    del self._lines[queue]
        self.serve()

    def release(self, records: int, size: int) -> None:
        self.records -= records
        self.bytes -= size
        if self._lines:
            self.serve()

    def serve(self) -> None:
        """Serve waiters in order while there is room.

        No one overtakes a waiter whose shard has nothing in the buffer: otherwise a large record
        would wait as long as other shards have small ones.
        """
        self._is_reserved = False
        for queue, line in sorted(self._lines.items(), key=lambda item: item[1][0].number):
            while line and not self._is_reserved:
                one = line[0]
                if one.granted.done():
                    line.popleft()
                elif self._take(queue, one.records, one.size):
                    line.popleft()
                    one.granted.set_result(None)
                else:
                    self._is_reserved = not (queue.records or queue.aside or queue.sending)
                    break
            if not line:
                del self._lines[queue]

    def follow(self) -> None:
        """Move waiters to the lines of the current queues."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            for waiter in line:
                self._join(waiter)
        self.serve()

    def close(self, error: Exception) -> None:
        """Refuse all waiters, including those that were served and have not continued yet."""
        self._end = error
        for line in self._lines.values():
            for waiter in line:
                if not waiter.granted.done():
                    waiter.granted.set_exception(error)
        self._lines.clear()
