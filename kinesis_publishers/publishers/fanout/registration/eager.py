"""Registers before anything is read, all streams or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.abc.stream_consumer_registrar import StreamConsumerRegistrar
from kinesis_publishers.publishers.fanout.registration.consumer_arns import stream_arn_of
from kinesis_publishers.publishers.fanout.registration.stream_consumers import StreamConsumers
from kinesis_publishers.tasks import TaskScope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.abc.record_publisher_factory import PublisherContext
    from kinesis_publishers.config.registration import RegistrationConfig

__all__ = ["EagerRegistrar"]


class EagerRegistrar(StreamConsumerRegistrar):
    """Selected by ``stream.efo.registration = EAGER``.

    A stream whose ARN is configured was registered elsewhere: no call is made for it, unless the
    consumer turns out to be gone. It is removed at the end if this machine has registered it.
    """

    def __init__(self, config: RegistrationConfig, context: PublisherContext) -> None:
        self._consumers = StreamConsumers(config, context)
        for arn in config.consumer_arns.values():
            self._consumers.of(stream_arn_of(arn)).arn = arn

    async def prepare(self, stream_arns: Sequence[str]) -> None:
        try:
            async with TaskScope() as scope:
                for stream_arn in stream_arns:
                    scope.spawn(self._register(stream_arn), name=f"register on {stream_arn}")
        except Exception:
            async with TaskScope() as scope:
                for stream_arn in stream_arns:
                    undo = self._consumers.of(stream_arn).undo_registration()
                    scope.spawn(undo, name=f"undo the registration on {stream_arn}")
            raise

    async def _register(self, stream_arn: str) -> None:
        await self._consumers.of(stream_arn).find(is_competing=False)

    async def consumer_arn(self, stream_arn: str) -> str:
        return await self._consumers.of(stream_arn).find()

    async def renew(self, stream_arn: str, consumer_arn: str) -> str:
        return await self._consumers.of(stream_arn).renew(consumer_arn)

    async def close(self) -> None:
        await self._consumers.close()
