"""Aligns polls of shards at their tips with Spark's questions."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from kinesis_publishers import Clock, ShardKey, ShardStatus

# How long a shard at its tip waits for Spark's next question before it is polled anyway, and how
# long the question waits for answers: GetRecords takes a few milliseconds.
_HOLD_SECONDS = 0.3
_ANSWER_SECONDS = 0.03


class TipPolls:
    """Holds polls until Spark asks.

    Spark asks every 10 ms while it has nothing to do, and between two micro-batches. Without this,
    a record would wait twice: for the next poll, and for the next question after it.

    One event loop only.

    Attributes:
        held: the shards whose polls wait for Spark's question.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at_tip: set[ShardKey] = set()
        self.held: set[ShardKey] = set()
        # The shards that have yet to answer.
        self._unanswered: set[ShardKey] = set()
        self._question, self._answered = asyncio.Event(), asyncio.Event()

    async def wait(self, shard: ShardKey) -> None:
        """Wait before a poll of ``shard``, if it is at its tip."""
        if shard not in self._at_tip:
            return
        self.held.add(shard)
        try:
            with suppress(TimeoutError):
                async with self._clock.timeout(_HOLD_SECONDS):
                    await self._question.wait()
        finally:
            self.held.discard(shard)

    async def ask(self) -> None:
        """Release the held polls, and wait briefly for their answers."""
        self._unanswered = set(self.held)
        self._answered.clear()
        self._question.set()
        self._question.clear()
        if self._unanswered:
            with suppress(TimeoutError):
                async with self._clock.timeout(_ANSWER_SECONDS):
                    await self._answered.wait()

    def observe(self, status: ShardStatus) -> None:
        """Count an answer."""
        key, is_at_tip = status.shard.key, status.millis_behind_latest == 0
        if status.is_polled and is_at_tip and not status.progress.is_ended:
            self._at_tip.add(key)
        else:
            self._at_tip.discard(key)
        self._unanswered.discard(key)
        if not self._unanswered:
            self._answered.set()
