"""Builds polling publishers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from kinesis_publishers.abc.record_publisher_factory import (
    PublisherContext,
    RecordPublisherFactory,
)
from kinesis_publishers.config.polling import PollingConfig
from kinesis_publishers.publishers.polling.publisher import PollingRecordPublisher

if TYPE_CHECKING:
    from kinesis_publishers.config import Properties
    from kinesis_publishers.model import Shard, StartingPosition

__all__ = ["PollingRecordPublisherFactory"]


class PollingRecordPublisherFactory(RecordPublisherFactory):
    """Selected by ``stream.recordpublisher = POLLING``, the default."""

    def __init__(self, config: PollingConfig, context: PublisherContext) -> None:
        self._config = config
        self._context = context

    @classmethod
    def from_properties(cls, properties: Properties, context: PublisherContext) -> Self:
        return cls(PollingConfig.from_properties(properties), context)

    async def create(
        self, starting_position: StartingPosition, shard: Shard
    ) -> PollingRecordPublisher:
        return PollingRecordPublisher(shard, starting_position, self._config, self._context)
