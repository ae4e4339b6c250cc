"""Builds fan-out publishers, which share the stream consumers of one registrar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from kinesis_publishers.abc.record_publisher_factory import (
    PublisherContext,
    RecordPublisherFactory,
)
from kinesis_publishers.config.fanout import FanOutConfig
from kinesis_publishers.config.registration import RegistrationConfig
from kinesis_publishers.publishers.fanout.publisher import FanOutRecordPublisher
from kinesis_publishers.publishers.fanout.registration import create_registrar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.abc.stream_consumer_registrar import StreamConsumerRegistrar
    from kinesis_publishers.config import Properties
    from kinesis_publishers.model import Shard, StartingPosition

__all__ = ["FanOutRecordPublisherFactory"]


class FanOutRecordPublisherFactory(RecordPublisherFactory):
    """Selected by ``stream.recordpublisher = EFO``."""

    def __init__(
        self, config: FanOutConfig, registrar: StreamConsumerRegistrar, context: PublisherContext
    ) -> None:
        self._config = config
        self._registrar = registrar
        self._context = context
        self._warned_at: dict[str, float] = {}

    @classmethod
    def from_properties(cls, properties: Properties, context: PublisherContext) -> Self:
        config = FanOutConfig.from_properties(properties)
        registrar = create_registrar(RegistrationConfig.from_properties(properties), context)
        return cls(config, registrar, context)

    async def prepare(self, stream_arns: Sequence[str]) -> None:
        await self._registrar.prepare(stream_arns)

    async def create(
        self, starting_position: StartingPosition, shard: Shard
    ) -> FanOutRecordPublisher:
        shared = self._config, self._registrar, self._context, self._warned_at
        return FanOutRecordPublisher(shard, starting_position, *shared)

    async def close(self) -> None:
        await self._registrar.close()
