"""Makes a publisher for each shard of a recording."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from kinesis_publishers import PublisherContext, RecordPublisherFactory
from kinesis_publishers.errors import InvalidOptionError
from kinesis_replay.config import ReplayConfig
from kinesis_replay.publisher import ReplayPublisher
from kinesis_replay.recording import Recording
from kinesis_replay.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers import Properties, Shard, StartingPosition

__all__ = ["ReplayPublisherFactory"]


class ReplayPublisherFactory(RecordPublisherFactory):
    """Selected by ``kinesis.stream.recordpublisher = replay``."""

    def __init__(self, config: ReplayConfig, context: PublisherContext) -> None:
        self._recording = Recording(config.path)
        self._timeline = Timeline(context.clock, config.speed)
        self._context = context

    @classmethod
    def from_properties(cls, properties: Properties, context: PublisherContext) -> Self:
        return cls(ReplayConfig.from_properties(properties), context)

    async def prepare(self, stream_arns: Sequence[str]) -> None:
        """Check that every recorded shard of these streams will be read.

        Raises:
            InvalidOptionError: a stream has no rows, or rows of a shard that is not listed.
        """
        for arn in stream_arns:
            name = arn.rpartition("/")[2]
            recorded = await asyncio.to_thread(self._recording.shard_ids, name)
            if not recorded:
                raise InvalidOptionError(
                    f"kinesis.custom.replay.path: the recording has no rows of the stream {name}: "
                    "name the stream that was recorded, or another recording"
                )
            listed = await self._context.control_plane.list_shards(arn)
            unread = sorted(recorded - {shard.shard_id for shard in listed})
            if unread:
                raise InvalidOptionError(
                    f"kinesis.custom.replay.path: the recording has rows of {', '.join(unread)}, "
                    f"which the stream {name} does not list: they would never be replayed. Replay "
                    "into a LocalKinesis whose stream has these shards"
                )

    async def create(self, starting_position: StartingPosition, shard: Shard) -> ReplayPublisher:
        return ReplayPublisher(
            shard, starting_position, self._recording, self._timeline, self._context.clock
        )
