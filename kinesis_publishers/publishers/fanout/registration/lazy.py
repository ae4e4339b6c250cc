"""Registers when reading starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.abc.stream_consumer_registrar import StreamConsumerRegistrar
from kinesis_publishers.publishers.fanout.registration.stream_consumers import StreamConsumers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.abc.record_publisher_factory import PublisherContext
    from kinesis_publishers.config.registration import RegistrationConfig

__all__ = ["LazyRegistrar"]


class LazyRegistrar(StreamConsumerRegistrar):
    """Selected by ``stream.efo.registration = LAZY``: the consumer of a stream is registered, if it
    is not there, when the first of its shards is about to be read.
    """

    def __init__(self, config: RegistrationConfig, context: PublisherContext) -> None:
        self._consumers = StreamConsumers(config, context)

    async def prepare(self, stream_arns: Sequence[str]) -> None:
        pass

    async def consumer_arn(self, stream_arn: str) -> str:
        return await self._consumers.of(stream_arn).find()

    async def renew(self, stream_arn: str, consumer_arn: str) -> str:
        return await self._consumers.of(stream_arn).renew(consumer_arn)

    async def close(self) -> None:
        await self._consumers.close()
