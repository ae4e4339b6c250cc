"""Describes streams and lists shards, with retries; lineage.py decides which ones to read."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

from attrs import define, field

from kinesis_publishers.abc import ControlPlane
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import DiscoveryConfig
from kinesis_publishers.engine.lineage import gone_shards
from kinesis_publishers.errors import ResourceInUseError, StreamNotFoundError
from kinesis_publishers.events import EventSink, log_event
from kinesis_publishers.model import Shard, ShardKey, StreamSummary
from kinesis_publishers.retry import RetryPolicy, call_with_retries

_T = TypeVar("_T")

# The pauses before a known stream counts as missing: a node of the service may not know it yet.
_ASK_AGAIN_SECONDS = (0.5, 1.0, 2.0)
_DESCRIBE_SECONDS = 1.0


@define(eq=False)
class ShardDiscovery:
    """Describes streams and lists shards, as often as the retry options of ``config`` allow."""

    _control_plane: ControlPlane
    config: DiscoveryConfig
    _clock: Clock
    _events: EventSink = field(default=log_event, kw_only=True)
    _closed: set[ShardKey] = field(factory=set, init=False)
    _has_answered: bool = field(default=False, init=False)
    _turns: dict[str, asyncio.Lock] = field(factory=lambda: defaultdict(asyncio.Lock), init=False)
    # The last description of each stream, and the time of its request.
    _described: dict[str, tuple[float, StreamSummary]] = field(factory=dict, init=False)
    # The ARNs of streams that have distributed records themselves.
    _auto: set[str] = field(factory=set, init=False)

    async def describe(self, stream: str) -> StreamSummary:
        """Describe ``stream`` (a name or an ARN); wait while it is being created.

        Raises:
            StreamNotFoundError: it does not exist, or is being deleted.
        """

        async def attempt() -> StreamSummary:
            summary = await self._control_plane.describe_stream(stream)
            status, operation = summary.status, "DescribeStreamSummary"
            if status == "CREATING":
                message = f"The stream {stream} is still being created."
                raise ResourceInUseError(message, operation=operation, code=status)
            if status == "DELETING":
                message = f"The stream {stream} is being deleted."
                raise StreamNotFoundError(message, operation=operation, code=status)
            if summary.is_auto_distributed:
                self._auto.add(summary.identity.arn)
            return summary

        return await self._call(attempt, self.config.describe_retry)

    async def describe_now(self, stream_arn: str) -> StreamSummary:
        """Return a description that is not older than this call; concurrent callers share it.

        A stream is described at most once a second: an account has 20 calls a second (AWS limits).
        """
        clock = self._clock
        asked_at = clock.monotonic()
        async with self._turns[stream_arn]:
            if described := self._described.get(stream_arn):
                began_at, summary = described
                if began_at > asked_at:
                    return summary
                await clock.sleep(began_at + _DESCRIBE_SECONDS - clock.monotonic())
            began_at, summary = clock.monotonic(), await self.describe(stream_arn)
            self._described[stream_arn] = began_at, summary
            return summary

    async def was_auto(self, stream_arn: str) -> bool:
        """Return whether a stream distributes records itself, or did at an earlier description."""
        if stream_arn not in self._auto:
            await self.describe_now(stream_arn)
        return stream_arn in self._auto

    async def has_shard(self, shard: Shard) -> bool:
        """Return whether a shard is still listed, or newer than the listing, which may be late.

        Raises:
            StreamNotFoundError: its stream does not exist.
        """
        return not gone_shards([shard.key], await self.list_shards(shard.stream_arn))

    async def list_shards(
        self, stream_arn: str, *, since: datetime | None = None
    ) -> tuple[Shard, ...]:
        """List all shards of a stream, or those that were not closed before ``since``."""
        shards = await self._call(
            lambda: self._control_plane.list_shards(stream_arn, since=since),
            self.config.list_shards_retry,
        )
        for one in shards:
            (self._closed.add if one.is_closed else self._closed.discard)(one.key)
        return shards

    def has_shown_closed(self, shard: Shard) -> bool:
        """Return whether a listing has shown ``shard`` as closed; makes no call."""
        return shard.key in self._closed

    async def _call(self, attempt: Callable[[], Awaitable[_T]], policy: RetryPolicy) -> _T:
        """Repeat a call according to ``policy``, and for a moment if it does not find a stream."""
        # At the start it is most likely a name that is wrong: that is said at once.
        pauses = list(_ASK_AGAIN_SECONDS) if self._has_answered else []
        while True:
            try:
                answer = await call_with_retries(
                    attempt,
                    policy=policy,
                    clock=self._clock,
                    events=self._events,
                    is_start=not self._has_answered,
                )
            except StreamNotFoundError:
                if not pauses:
                    raise
                await self._clock.sleep(pauses.pop(0))
            else:
                self._has_answered = True
                return answer
