"""The registration strategies: when a stream consumer is registered, and by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from kinesis_publishers.abc import StreamConsumerRegistrar
from kinesis_publishers.config import RegistrationConfig
from kinesis_publishers.errors import (
    ConsumerNotFoundError,
    InvalidOptionError,
    MissingOptionError,
)
from kinesis_publishers.registration.deregistration import (
    stream_arn_of,
    stream_name_in,
)
from kinesis_publishers.registration.stream_consumers import StreamConsumers
from kinesis_publishers.tasks import TaskScope

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesis_publishers.abc import ControlContext

__all__ = ["EagerRegistrar", "LazyRegistrar", "NoRegistrar"]


class LazyRegistrar(StreamConsumerRegistrar):
    """Selected by ``stream.efo.registration = LAZY``: registers the consumer of a stream, unless it
    exists, when the first of the stream's shards is about to be read.
    """

    def __init__(self, config: RegistrationConfig, context: ControlContext) -> None:
        self._consumers = StreamConsumers(config, context)

    async def prepare(self, stream_arns: Sequence[str]) -> None:
        pass

    async def consumer_arn(self, stream_arn: str) -> str:
        return await self._consumers.of(stream_arn).find()

    async def renew(self, stream_arn: str, consumer_arn: str) -> str:
        return await self._consumers.of(stream_arn).renew(consumer_arn)

    async def close(self) -> None:
        await self._consumers.close()


class EagerRegistrar(LazyRegistrar):
    """Selected by ``stream.efo.registration = EAGER``: registers before any shard is read.

    A consumer whose ARN is configured was registered elsewhere: no call is made for it unless it
    turns out to be gone. It is removed at the end if this machine has registered it.
    """

    def __init__(self, config: RegistrationConfig, context: ControlContext) -> None:
        super().__init__(config, context)
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


class NoRegistrar(StreamConsumerRegistrar):
    """Selected by ``stream.efo.registration = NONE``: makes no call.

    Args:
        consumer_arns: the consumers, by the name of the stream.
    """

    def __init__(self, consumer_arns: Mapping[str, str]) -> None:
        self._consumer_arns = consumer_arns

    async def prepare(self, stream_arns: Sequence[str]) -> None:
        for stream_arn in stream_arns:
            await self.consumer_arn(stream_arn)

    async def consumer_arn(self, stream_arn: str) -> str:
        name = stream_name_in(stream_arn)
        key = RegistrationConfig.consumer_arn.of(name).full_key
        arn = self._consumer_arns.get(name)
        if arn is None:
            raise MissingOptionError(
                f"{RegistrationConfig.strategy.full_key} is NONE: set {key} to the ARN of a stream "
                "consumer"
            )
        # Only the ARN says which stream SubscribeToShard reads. Streams of the same name have
        # shards of the same names: the records would be another stream's, without an error.
        if stream_arn_of(arn) != stream_arn:
            raise InvalidOptionError(
                f"{key}: {arn!r} is a consumer of a stream in another region or account, expected "
                f"one of {stream_arn!r}"
            )
        return arn

    async def renew(self, stream_arn: str, consumer_arn: str) -> NoReturn:
        key = RegistrationConfig.consumer_arn.of(stream_name_in(stream_arn)).full_key
        raise ConsumerNotFoundError(
            f"The stream consumer {consumer_arn} does not exist (any more), and with "
            f"{RegistrationConfig.strategy.full_key} = NONE it is not registered again: register "
            f"one and set {key} to its ARN, or let this application register one (LAZY or EAGER).",
            operation="SubscribeToShard",
            code="ResourceNotFoundException",
        )

    async def close(self) -> None:
        pass
