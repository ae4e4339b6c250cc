"""Finds out which streams and shards there are, with retries; which to read is lineage.py's."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from kinesis_publishers.errors import ResourceInUseError, StreamNotFoundError
from kinesis_publishers.events import EventSink, log_event
from kinesis_publishers.retry import call_with_retries

if TYPE_CHECKING:
    from datetime import datetime

    from kinesis_publishers.abc.control_plane import ControlPlane
    from kinesis_publishers.clock import Clock
    from kinesis_publishers.config.discovery import DiscoveryConfig
    from kinesis_publishers.model import Shard, StreamSummary

__all__ = ["ShardDiscovery"]

_DESCRIBE_SECONDS = 1.0


class ShardDiscovery:
    """Describes streams and lists shards, as often as the retry options allow.

    Args:
        control_plane: makes the calls.
        config: how often they are made.
        clock: what delays are slept on.
        events: where repetitions are reported.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        config: DiscoveryConfig,
        clock: Clock,
        *,
        events: EventSink = log_event,
    ) -> None:
        self._control_plane = control_plane
        self._config = config
        self._clock = clock
        self._events = events
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # The last description of each stream for who asks again, and when it was asked for.
        self._described: dict[str, tuple[float, StreamSummary]] = {}

    @property
    def interval_seconds(self) -> float:
        """How often shards are listed."""
        return self._config.interval_seconds

    @property
    def parents_first(self) -> bool:
        """Whether a shard waits for the end of its parents."""
        return self._config.parents_first

    async def describe(self, stream: str) -> StreamSummary:
        """Describe ``stream`` (a name or an ARN); wait while it is being created.

        Raises:
            StreamNotFoundError: it does not exist, or is being deleted.
        """

        async def attempt() -> StreamSummary:
            summary = await self._control_plane.describe_stream(stream)
            if summary.status == "CREATING":
                raise ResourceInUseError(
                    f"The stream {stream} is still being created.",
                    operation="DescribeStreamSummary",
                    code="CREATING",
                )
            if summary.status == "DELETING":
                raise StreamNotFoundError(
                    f"The stream {stream} is being deleted.",
                    operation="DescribeStreamSummary",
                    code="DELETING",
                )
            return summary

        return await call_with_retries(
            attempt, policy=self._config.describe_retry, clock=self._clock, events=self._events
        )

    async def describe_now(self, stream_arn: str) -> StreamSummary:
        """Describe a stream as it is now or later; who asks meanwhile shares the next answer.

        A stream is described once a second at most: an account has 20 calls a second (AWS limits).
        """
        asked_at = self._clock.monotonic()
        async with self._turns[stream_arn]:
            described = self._described.get(stream_arn)
            if described is not None and described[0] > asked_at:
                return described[1]
            if described is not None:
                await self._clock.sleep(described[0] + _DESCRIBE_SECONDS - self._clock.monotonic())
            began_at = self._clock.monotonic()
            summary = await self.describe(stream_arn)
            self._described[stream_arn] = began_at, summary
            return summary

    async def has_shard(self, shard: Shard) -> bool:
        """Say whether a shard is still listed: one that has left the retention is not.

        Raises:
            StreamNotFoundError: its stream does not exist.
        """
        return any(one.key == shard.key for one in await self.list_shards(shard.stream_arn))

    async def list_shards(
        self, stream_arn: str, *, since: datetime | None = None
    ) -> tuple[Shard, ...]:
        """List the shards of a stream: all of them, or those not closed before ``since``."""
        return await call_with_retries(
            lambda: self._control_plane.list_shards(stream_arn, since=since),
            policy=self._config.list_shards_retry,
            clock=self._clock,
            events=self._events,
        )
