"""Tracks the records that are neither written nor given up, and the callers that wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from typing import Final

from attrs import define, field

from kinesis_publishers.errors import ClosedError, KinesisPublishersError, RecordsNotWrittenError
from kinesis_publishers.events import EventSink, RecordsFailed
from kinesis_publishers.producing.buffer import Buffer
from kinesis_publishers.producing.collector import Part
from kinesis_publishers.producing.queues import ShardQueue, ShardQueues
from kinesis_publishers.producing.records import Run

# The number of failed records in the message of `flush` and `close`, and in their results.
_NAMED_FAILURES: Final = 3
_MOST_RESULTS: Final = 1_000


@define(eq=False)
class _Flush:
    """A caller that waits until every record up to a number is written or has failed."""

    up_to: int
    left: int
    done: asyncio.Future[None]


def not_decided(error: BaseException | None) -> KinesisPublishersError:
    """Return the error of records whose deciding task was ended by ``error``."""
    if isinstance(error, asyncio.CancelledError):
        return ClosedError("the producer was closed before it knew whether the record was written")
    lost = RecordsNotWrittenError(f"the producer has failed: {error!r}")
    lost.__cause__ = error
    return lost


@define(eq=False)
class Outstanding:
    """Removes the records of a call from the buffer, or puts them back into the queues.

    ``records`` is the number of those in the queues or being sent.
    """

    _queues: ShardQueues
    buffer: Buffer
    _events: EventSink
    records: int = field(default=0, init=False)
    # The number of failed records, that of the raised ones, and the first others: their number,
    # partition key, size and error.
    _failed: int = field(default=0, init=False)
    _raised: int = field(default=0, init=False)
    _failures: list[tuple[int, str, int, Exception]] = field(factory=list, init=False)
    _flushes: list[_Flush] = field(factory=list, init=False)
    # The number of raised failures at the start of each current wait.
    _raising: list[int] = field(factory=list, init=False)

    @property
    def hurries(self) -> bool:
        """Whether to skip the linger time: a caller waits for records, or for room."""
        return bool(self._flushes or self.buffer.has_waiters)

    def settle(
        self, part: Part, shard_ids: Sequence[str], numbers: Sequence[str], now: float
    ) -> None:
        """Report where the entries of a call were written, and release its records."""
        part.settle(shard_ids, numbers, now)
        self._queues.end(part.queue, part.runs)
        self._leave(part.runs)

    def fail(self, part: Part, error: KinesisPublishersError) -> None:
        self._queues.end(part.queue, part.runs)
        self.give_up(part.queue, part.runs, error)

    def wait_again(self, part: Part, runs: Sequence[Run] = ()) -> None:
        """Put the records of a call, or their replacements, in front of the queues again."""
        self._queues.end(part.queue, part.runs)
        self._queues.put_again(runs or [run.again() for run in part.runs])
        self._queues.free(part.runs)

    def give_up(
        self, queue: ShardQueue, runs: Sequence[Run], error: KinesisPublishersError
    ) -> None:
        """Fail records that are not being sent, and release their room."""
        self._fail(queue, runs, error)
        self._leave(runs)

    def refuse(self, run: Run, error: KinesisPublishersError) -> None:
        """Fail records of one shard that have no room in the buffer."""
        queue = self._queues.queue_of(run.partition_keys[0], run.hash_key_at(0))
        self._fail(queue, [run], error)

    def _fail(self, queue: ShardQueue, runs: Sequence[Run], error: KinesisPublishersError) -> None:
        records = sum(map(len, runs))
        code = getattr(error, "code", "") or type(error).__name__
        self._events(RecordsFailed(shard=queue.shard, code=code, records=records))
        for run in runs:
            named = zip(count(self._failed), run.partition_keys, run.payloads, strict=False)
            left = _MOST_RESULTS - len(self._failures)
            self._failures += [(n, key, len(data), error) for n, key, data in islice(named, left)]
            self._failed += len(run)
            run.put.fail(run.places, error)

    def give_up_all(self, error: KinesisPublishersError) -> None:
        """Give up every record that is not being sent."""
        self._queues.free_all()
        for queue in self._queues:
            if queue.records:
                self.give_up(queue, queue.take(queue.records), error)

    def _leave(self, runs: Sequence[Run]) -> None:
        self._queues.free(runs)
        records = sum(map(len, runs))
        self.records -= records
        self.buffer.release(records, sum([run.size for run in runs]))
        for flush in self._flushes:
            flush.left -= sum([len(run) for run in runs if run.number <= flush.up_to])
            if flush.left <= 0 and not flush.done.done():
                flush.done.set_result(None)

    async def wait(self, up_to: int) -> None:
        if not self.records:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flush = _Flush(up_to, self.records, done)
        self._flushes.append(flush)
        try:
            await done
        finally:
            self._flushes.remove(flush)

    @contextmanager
    def raising_failures(self, stream: str) -> Iterator[None]:
        """Raise on leaving if records have failed that were not raised before the context.

        Concurrent contexts each raise. The message names the first records.
        """
        first = self._raised
        self._raising.append(first)
        try:
            yield
        finally:
            self._raising.remove(first)
        failed, self._raised = self._failed - first, self._failed
        failures = [one for one in self._failures if one[0] >= first]
        least = min(self._raising, default=self._raised)
        self._failures = [one for one in self._failures if one[0] >= least]
        if not failed:
            return
        named = "; ".join(
            f"{key!r:.300} ({size:,} bytes): {error}"
            for _, key, size, error in failures[:_NAMED_FAILURES]
        )
        more = f"; and {failed - _NAMED_FAILURES:,} more" if failed > _NAMED_FAILURES else ""
        raise RecordsNotWrittenError(
            f"{failed:,} of the records for {stream} were not written, or not for certain. By "
            f"partition key: {named}{more}",
            results=[error for *_, error in failures],
        ) from failures[0][-1]
