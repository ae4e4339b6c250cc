"""Polls of shards at their tips, which fall together with Spark's questions."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from kinesis_publishers import Clock, ShardKey, ShardStatus

# How long a shard at its tip waits for Spark's next question before it is polled nevertheless, and
# how long that question waits for the answers: GetRecords takes some milliseconds.
_HOLD_SECONDS = 0.3
_ANSWER_SECONDS = 0.03


class TipPolls:
    """Holds polls until Spark asks.

    Spark asks every 10 ms while it has nothing to do, and between two micro-batches. Without this a
    record would wait twice, for the next poll and for the next question after it.

    One event loop only.

    Attributes:
        held: the shards whose polls wait for Spark's question.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at_tip: set[ShardKey] = set()
        self.held: set[ShardKey] = set()
        # Those that have to answer the question.
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
        """Let the polls go that wait, and wait for their answers, but not for long."""
        self._unanswered = set(self.held)
        self._answered.clear()
        self._question.set()
        self._question.clear()
        if self._unanswered:
            with suppress(TimeoutError):
                async with self._clock.timeout(_ANSWER_SECONDS):
                    await self._answered.wait()

    def observe(self, status: ShardStatus) -> None:
        """Learn of an answer."""
        key, is_at_tip = status.shard.key, status.millis_behind_latest == 0
        if status.is_polled and is_at_tip and not status.progress.is_ended:
            self._at_tip.add(key)
        else:
            self._at_tip.discard(key)
        self._unanswered.discard(key)
        if not self._unanswered:
            self._answered.set()
