"""Publishes one recorded shard."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from typing import TYPE_CHECKING

from kinesis_publishers import RecordBatch, RecordBatchConsumer, RecordPublisher, RunResult

if TYPE_CHECKING:
    from kinesis_publishers import Clock, Shard, StartingPosition
    from kinesis_replay.recording import RecordedShard, Recording
    from kinesis_replay.timeline import Timeline

__all__ = ["ReplayPublisher"]

# How often an idle shard delivers an empty batch, as Kinesis itself does.
_HEARTBEAT_SECONDS = 5.0


class ReplayPublisher(RecordPublisher):
    """Publishes the rows of one shard, each when it is due; one ``run`` is one delivery.

    A row that is not due has not arrived yet. All rows that are due are delivered together, so that
    each delivery reaches the tip: rows of a recording may be older than the retention of Kinesis,
    and between two deliveries behind the tip some would seem lost.

    A delivery needs no repetition, because reading a file does not fail halfway: the position moves
    with each delivery, regardless of the answers of the consumer.

    Args:
        shard: what to read.
        starting_position: where to begin; not LATEST.
        recording: where the rows are.
        timeline: when they are due.
        clock: the source of time.
    """

    def __init__(
        self,
        shard: Shard,
        starting_position: StartingPosition,
        recording: Recording,
        timeline: Timeline,
        clock: Clock,
    ) -> None:
        if starting_position.type.value == "LATEST":
            raise ValueError("LATEST must be pinned to an instant before it is read from")
        self._shard = shard
        self._position = starting_position
        self._recording = recording
        self._timeline = timeline
        self._clock = clock
        self._rows: RecordedShard | None = None
        self._next = 0

    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        if self._rows is None:
            # Reading files blocks, and the event loop reads all shards: use a thread.
            self._rows = await asyncio.to_thread(self._recording.read, self._shard)
            self._next = _first_row(self._rows, self._position)
        rows = self._rows
        # Before it reserves room, which other shards could not use while this one sleeps.
        await self._wait_for_next(rows)
        batch = self._due_batch(rows)
        if len(batch):
            await consumer.wait_for_space(len(batch), batch.payload_bytes)
        await consumer(batch)
        self._next += len(batch)
        is_done = self._next >= len(rows.sequence_numbers)
        return RunResult.COMPLETE if is_done else RunResult.INCOMPLETE

    async def _wait_for_next(self, rows: RecordedShard) -> None:
        if self._next < len(rows.sequence_numbers):
            seconds = self._timeline.seconds_until(rows.arrival_epoch_seconds[self._next])
            if seconds > 0:
                await self._clock.sleep(min(seconds, _HEARTBEAT_SECONDS))

    def _due_batch(self, rows: RecordedShard) -> RecordBatch:
        """Return the rows that are due by now; none if the wait was cut short."""
        # Taken first: rows that become due during the loop have not arrived before this instant.
        now = self._clock.now()
        start = stop = self._next
        count, arrivals = len(rows.sequence_numbers), rows.arrival_epoch_seconds
        while stop < count and self._timeline.seconds_until(arrivals[stop]) <= 0:
            stop += 1
        return RecordBatch(
            shard=self._shard,
            requested_at=now,
            payloads=rows.payloads[start:stop],
            partition_keys=rows.partition_keys[start:stop],
            sequence_numbers=rows.sequence_numbers[start:stop],
            arrival_epoch_seconds=rows.arrival_epoch_seconds[start:stop],
            millis_behind_latest=0,
        )


def _first_row(rows: RecordedShard, position: StartingPosition) -> int:
    """Return the index of the first row at or after ``position``."""
    if position.sequence_number is not None:
        number = int(position.sequence_number.sequence_number)
        is_after = position.type.value == "AFTER_SEQUENCE_NUMBER"
        return bisect_left(rows.sequence_numbers, number + is_after, key=int)
    if position.timestamp is not None:
        instant, arrivals = position.timestamp.timestamp(), rows.arrival_epoch_seconds
        return next((row for row, one in enumerate(arrivals) if one >= instant), len(arrivals))
    return 0
