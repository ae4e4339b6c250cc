"""The registration strategies: when a stream consumer is registered, and by whom."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NoReturn

from attrs import define, field

from kinesis_publishers.abc import ControlContext, StreamConsumerRegistrar
from kinesis_publishers.config import DeregistrationPolicy, RegistrationConfig
from kinesis_publishers.errors import ConsumerNotFoundError, InvalidOptionError, MissingOptionError
from kinesis_publishers.model.sources import stream_arn_of, stream_name_of
from kinesis_publishers.registration.consumers import deregister_consumer
from kinesis_publishers.registration.lease_files import ConsumerLease
from kinesis_publishers.registration.registering import ConsumerRegistration
from kinesis_publishers.tasks import TaskScope


@define(eq=False)
class LazyRegistrar(StreamConsumerRegistrar):
    """Selected by ``stream.efo.registration = LAZY``: registers before a stream's first shard."""

    _config: RegistrationConfig
    _context: ControlContext
    _by_stream: dict[str, _ConsumerOfStream] = field(factory=dict, init=False)

    def _of(self, stream_arn: str) -> _ConsumerOfStream:
        if stream_arn not in self._by_stream:
            self._by_stream[stream_arn] = _ConsumerOfStream(stream_arn, self._config, self._context)
        return self._by_stream[stream_arn]

    async def consumer_arn(self, stream_arn: str) -> str:
        return await self._of(stream_arn).find()

    async def renew(self, stream_arn: str, consumer_arn: str) -> str:
        return await self._of(stream_arn).find(missing_arn=consumer_arn)

    async def close(self) -> None:
        consumers = tuple(self._by_stream.values())
        try:
            async with TaskScope() as scope:
                for one in consumers:
                    scope.spawn(one.leave(), name=f"leave the consumer of {one.stream_arn}")
        finally:
            # A task that is cancelled before its first step has released nothing.
            for one in consumers:
                one.abandon()


@define(eq=False)
class EagerRegistrar(LazyRegistrar):
    """Selected by ``stream.efo.registration = EAGER``: registers before any shard is read.

    A consumer whose ARN is configured was registered elsewhere. It is looked up only if a
    subscription does not find it, and removed at the end if this machine registered it.
    """

    def __attrs_post_init__(self) -> None:
        for arn in self._config.consumer_arns.values():
            self._of(stream_arn_of(arn)).arn = arn

    async def prepare(self, stream_arns: Sequence[str]) -> None:
        try:
            async with TaskScope() as scope:
                for stream_arn in stream_arns:
                    scope.spawn(self._register(stream_arn), name=f"register on {stream_arn}")
        except Exception:
            async with TaskScope() as scope:
                for stream_arn in stream_arns:
                    undo = self._of(stream_arn).undo_registration()
                    scope.spawn(undo, name=f"undo the registration on {stream_arn}")
            raise

    async def _register(self, stream_arn: str) -> None:
        await self._of(stream_arn).find(is_competing=False)


@define(eq=False)
class NoRegistrar(StreamConsumerRegistrar):
    """Selected by ``stream.efo.registration = NONE``: makes no call."""

    # By the name of the stream.
    _consumer_arns: Mapping[str, str]

    async def prepare(self, stream_arns: Sequence[str]) -> None:
        for stream_arn in stream_arns:
            await self.consumer_arn(stream_arn)

    async def consumer_arn(self, stream_arn: str) -> str:
        name = stream_name_of(stream_arn)
        key = RegistrationConfig.consumer_arn.of(name).full_key
        arn = self._consumer_arns.get(name)
        if arn is None:
            raise MissingOptionError(
                f"{RegistrationConfig.strategy.full_key} is NONE: set {key} to the ARN of a stream "
                "consumer"
            )
        # SubscribeToShard reads the stream of this ARN. Shards of another stream have the same ids,
        # so its records would be delivered without an error.
        if stream_arn_of(arn) != stream_arn:
            raise InvalidOptionError(
                f"{key}: {arn!r} is a consumer of a stream in another region or account, expected "
                f"one of {stream_arn!r}"
            )
        return arn

    async def renew(self, stream_arn: str, consumer_arn: str) -> NoReturn:
        key = RegistrationConfig.consumer_arn.of(stream_name_of(stream_arn)).full_key
        raise ConsumerNotFoundError(
            f"The stream consumer {consumer_arn} does not exist, and with "
            f"{RegistrationConfig.strategy.full_key} = NONE it is not registered again: register "
            f"one and set {key} to its ARN, or let this application register one (LAZY or EAGER).",
            operation="SubscribeToShard",
            code="ResourceNotFoundException",
        )


@define(eq=False)
class _ConsumerOfStream:
    stream_arn: str
    _config: RegistrationConfig
    _context: ControlContext
    # As far as it is known.
    arn: str | None = field(default=None, init=False)
    _lease: ConsumerLease | None = field(default=None, init=False)
    _registered_arn: str | None = field(default=None, init=False)
    _searching: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    # How many searches have come to an end, and why the last one failed.
    _searches: int = field(default=0, init=False)
    _failure: Exception | None = field(default=None, init=False)

    async def find(self, *, is_competing: bool = True, missing_arn: str | None = None) -> str:
        """Return the ARN; look for it if only ``missing_arn`` is known, which was not found.

        The first caller searches, and others that come meanwhile get its result or its failure. If
        it is cancelled, another one starts over.
        """
        if self._lease is not None and self.arn not in (None, missing_arn):
            return self.arn
        searches = self._searches
        async with self._searching:
            if self._searches == searches:
                self._failure = None
                try:
                    self.arn = await self._search(is_competing, missing_arn)
                except Exception as error:  # noqa: BLE001 - all who wait for it get it
                    self._failure = error
                self._searches += 1
        if self._failure is not None:
            raise self._failure
        assert self.arn is not None, "it was found"
        return self.arn

    async def _search(self, is_competing: bool, missing_arn: str | None) -> str:
        lease = await self._join()
        if self.arn not in (None, missing_arn):
            return self.arn
        registration = ConsumerRegistration(
            self.stream_arn, self._config.required_name(), self._config, self._context, lease
        )
        try:
            return await registration.find_active(is_competing=is_competing)
        finally:
            self._registered_arn = registration.registered_arn or self._registered_arn

    async def _join(self) -> ConsumerLease:
        # Needed for an existing consumer too: a lease keeps others from removing it.
        if self._lease is None:
            self._lease = await ConsumerLease.acquire(
                self.stream_arn,
                self._config.required_name(),
                clock=self._context.clock,
                endpoint_url=self._config.endpoint_url,
            )
        return self._lease

    async def undo_registration(self) -> None:
        """Remove the consumer if this object has registered it, unless others use it by now."""
        if self._lease is None or self._registered_arn is None:
            return
        if self._config.deregister is DeregistrationPolicy.NEVER:
            self._lease.note_created(self._registered_arn)
        await self._release(self._lease)

    async def leave(self) -> None:
        """Stop using the consumer; the last one to leave removes it."""
        if self._lease is not None and self._config.deregister is DeregistrationPolicy.CREATED:
            await self._release(self._lease)
        self.abandon()

    async def _release(self, lease: ConsumerLease) -> None:
        self._lease = self.arn = self._registered_arn = None
        await lease.release(lambda arn: deregister_consumer(arn, self._config, self._context))

    def abandon(self) -> None:
        """Stop using the consumer, and remove nothing."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None
