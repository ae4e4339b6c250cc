"""The room for records that are not written yet: where it ends, ``put`` waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from attrs import define, field

from kinesis_publishers.config import ProducerConfig, WhenFull
from kinesis_publishers.errors import BufferFullError
from kinesis_publishers.producing.queues import ShardQueue, ShardQueues

# What of one shard may wait, as a multiple of the room that is left.
_MULTIPLE: Final = 8


@define(eq=False)
class _Waiter:
    partition_key: str
    explicit_hash_key: str | None
    records: int
    size: int
    granted: asyncio.Future[None]
    number: int


@define(eq=False)
class Buffer:
    """Counts the records that are waiting or being sent, over all shards.

    Of one shard a multiple of what is free may wait: a shard that throttles leaves room for the
    others, however much is put for it.

    Attributes:
        records, bytes: what the buffer holds.
        on_wait: called when someone has to wait.
    """

    _queues: ShardQueues
    _config: ProducerConfig
    on_wait: Callable[[], None] = field(default=lambda: None, init=False)
    records: int = field(default=0, init=False)
    bytes: int = field(default=0, init=False)
    _end: Exception | None = field(default=None, init=False)
    _lines: dict[ShardQueue, deque[_Waiter]] = field(factory=dict, init=False)
    _last_number: int = field(default=0, init=False)
    # Whether the room that becomes free is for one who waits.
    _is_reserved: bool = field(default=False, init=False)

    @property
    def waiters(self) -> int:
        """How many callers wait for room."""
        return sum(map(len, self._lines.values()))

    async def enter(
        self, partition_key: str, explicit_hash_key: str | None, records: int, size: int
    ) -> None:
        """Take room for records of one shard, behind those who wait for room there.

        Raises:
            BufferFullError: there is none, and nobody is to wait.
            ClosedError: nobody waits any more.
        """
        if self._end is not None:
            raise self._end
        queue = self._queues.queue_of(partition_key, explicit_hash_key)
        is_behind = self._is_reserved or queue in self._lines
        if not is_behind and self._take(queue, records, size):
            return
        if self._config.when_full is WhenFull.FAIL:
            raise BufferFullError(
                f"The buffer is full, with {self.records:,} records and {self.bytes:,} bytes "
                f"({ProducerConfig.max_records.full_key}, {ProducerConfig.max_bytes.full_key}), "
                f"or has too many of {queue.shard}"
            )
        self.on_wait()
        await self._wait(partition_key, explicit_hash_key, records, size)

    def _take(self, queue: ShardQueue, records: int, size: int) -> bool:
        # What is larger than the whole buffer passes alone.
        if self.records and not self._has_share(queue, records, size):
            return False
        self.records += records
        self.bytes += size
        return True

    def _has_share(self, queue: ShardQueue, records: int, size: int) -> bool:
        """Return whether there is room for so much more, and whether it is this queue's."""
        free = self._config.max_records - self.records - records
        free_bytes = self._config.max_bytes - self.bytes - size
        return (
            free >= 0
            and free_bytes >= 0
            and queue.records + queue.aside <= _MULTIPLE * free
            and queue.size <= _MULTIPLE * free_bytes
        )

    async def _wait(
        self, partition_key: str, explicit_hash_key: str | None, records: int, size: int
    ) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last_number += 1
        number = self._last_number
        waiter = _Waiter(partition_key, explicit_hash_key, records, size, granted, number)
        self._join(waiter)
        try:
            await granted
            if self._end is not None:
                raise self._end
        except BaseException:
            # Served, and cancelled or closed in the same turn.
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self.release(records, size)
            else:
                self._leave(waiter)
            raise

    def _join(self, waiter: _Waiter) -> None:
        queue = self._queues.queue_of(waiter.partition_key, waiter.explicit_hash_key)
        self._lines.setdefault(queue, deque()).append(waiter)

    def _leave(self, waiter: _Waiter) -> None:
        """Let nobody stand behind one who waits no more."""
        for queue, line in list(self._lines.items()):
            if waiter in line:
                line.remove(waiter)
                if not line:
                    del self._lines[queue]
        self.serve()

    def release(self, records: int, size: int) -> None:
        """Give room back."""
        self.records -= records
        self.bytes -= size
        if self._lines:
            self.serve()

    def serve(self) -> None:
        """Let those who wait pass if there is room, in their order.

        Nobody passes one whose shard has nothing in the buffer: a large record would wait as long
        as there are small ones for others.
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
                    self._is_reserved = queue.is_idle
                    break
            if not line:
                del self._lines[queue]

    def follow(self) -> None:
        """Let those who wait join the lines of the queues that there are now."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            for waiter in line:
                self._join(waiter)
        self.serve()

    def close(self, error: Exception) -> None:
        """Refuse those who wait, also those who were served and have not gone on yet."""
        self._end = error
        for line in self._lines.values():
            for waiter in line:
                if not waiter.granted.done():
                    waiter.granted.set_exception(error)
        self._lines.clear()
