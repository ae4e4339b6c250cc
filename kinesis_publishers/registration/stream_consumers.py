"""The consumers of the streams that are read: found once for all callers, left together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from kinesis_publishers.config import DeregistrationPolicy, RegistrationConfig
from kinesis_publishers.errors import MissingOptionError
from kinesis_publishers.registration.deregistration import deregister_consumer
from kinesis_publishers.registration.registering import ConsumerRegistration
from kinesis_publishers.registration.shared_use import ConsumerLease
from kinesis_publishers.tasks import TaskScope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesis_publishers.abc import ControlContext

__all__ = ["StreamConsumers"]

_T = TypeVar("_T")


class StreamConsumers:
    """One consumer per stream, all of the same name.

    Args:
        config: the name, and how it is registered and removed.
        context: control plane, clock and event sink.
    """

    def __init__(self, config: RegistrationConfig, context: ControlContext) -> None:
        self._config = config
        self._context = context
        self._by_stream: dict[str, _ConsumerOfStream] = {}

    def of(self, stream_arn: str) -> _ConsumerOfStream:
        """Return the consumer of a stream."""
        if stream_arn not in self._by_stream:
            self._by_stream[stream_arn] = _ConsumerOfStream(stream_arn, self._config, self._context)
        return self._by_stream[stream_arn]

    async def close(self) -> None:
        """Leave all of them."""
        consumers = tuple(self._by_stream.values())
        try:
            async with TaskScope() as scope:
                for one in consumers:
                    scope.spawn(one.leave(), name=f"leave the consumer of {one.stream_arn}")
        finally:
            # A task that is cancelled before its first step has left nothing.
            for one in consumers:
                one.abandon()


class _ConsumerOfStream:
    def __init__(
        self, stream_arn: str, config: RegistrationConfig, context: ControlContext
    ) -> None:
        self.stream_arn = stream_arn
        self._config = config
        self._context = context
        self._lease: ConsumerLease | None = None
        self._flight: _SingleFlight[str] = _SingleFlight()
        self._registered_arn: str | None = None
        #: The ARN, as far as it is known.
        self.arn: str | None = None

    async def find(self, *, is_competing: bool = True) -> str:
        """Return the ARN; look for it if it is not known."""
        if self.arn is not None and self._lease is not None:
            return self.arn
        return await self._flight.run(lambda: self._find(is_competing=is_competing))

    async def renew(self, missing_arn: str) -> str:
        """Return the ARN, after ``missing_arn`` was not found."""
        if self.arn is not None and self.arn != missing_arn:
            return self.arn
        return await self._flight.run(lambda: self._search(is_competing=True))

    async def _find(self, *, is_competing: bool) -> str:
        await self._join()
        return self.arn or await self._search(is_competing=is_competing)

    async def _search(self, *, is_competing: bool) -> str:
        lease = await self._join()
        registration = ConsumerRegistration(
            self.stream_arn, self._name, self._config, self._context, lease
        )
        try:
            self.arn = await registration.find_active(is_competing=is_competing)
        finally:
            self._registered_arn = registration.registered_arn or self._registered_arn
        return self.arn

    async def _join(self) -> ConsumerLease:
        # Also of a consumer that exists: its users keep others from removing it.
        if self._lease is None:
            self._lease = await ConsumerLease.acquire(
                self.stream_arn,
                self._name,
                clock=self._context.clock,
                endpoint_url=self._config.endpoint_url,
            )
        return self._lease

    @property
    def _name(self) -> str:
        name = self._config.consumer_name
        if name is None:
            raise MissingOptionError(f"{RegistrationConfig.consumer_name.full_key} is required")
        return name

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
        await lease.release(self._remove)

    def abandon(self) -> None:
        """Stop using the consumer, and remove nothing."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    async def _remove(self, consumer_arn: str) -> bool:
        return await deregister_consumer(consumer_arn, self._config, self._context)


class _SingleFlight(Generic[_T]):
    """Does something once for all callers that need it at the same time.

    They all get the result, or the failure, of the caller that does it. If that one is cancelled,
    another begins anew.
    """

    def __init__(self) -> None:
        self._flight: asyncio.Future[_T] | None = None

    async def run(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Return the result of ``work``, or of another caller's that is under way."""
        while (flight := self._flight) is not None:
            # Unlike awaiting the future, this does not cancel it when the waiter is cancelled.
            await asyncio.wait({flight})
            if not flight.cancelled():
                return flight.result()
        self._flight = flight = asyncio.get_running_loop().create_future()
        try:
            result = await work()
        except Exception as error:
            flight.set_exception(error)
            flight.exception()  # there may be no other caller
            raise
        except BaseException:
            flight.cancel()
            raise
        else:
            flight.set_result(result)
            return result
        finally:
            self._flight = None
