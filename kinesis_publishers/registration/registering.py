"""Registers one stream consumer, unless it is there, and waits until it can be used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from attrs import define, evolve, field

from kinesis_publishers.abc import ControlContext
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import DeregistrationPolicy, RegistrationConfig
from kinesis_publishers.errors import (
    ConnectionFailedError,
    InternalServiceError,
    KinesisPublishersError,
    LimitExceededError,
    MalformedResponseError,
    RetriesExhaustedError,
    ServiceError,
)
from kinesis_publishers.events import ConsumerAwaited, ConsumerRegistered
from kinesis_publishers.model import StreamConsumer
from kinesis_publishers.registration.consumers import (
    deregister_command,
    find_consumer,
    list_consumers,
)
from kinesis_publishers.registration.lease_files import ConsumerLease
from kinesis_publishers.retry import RetryBudget

_LOGGER = logging.getLogger(__name__)

_T = TypeVar("_T")

# A call that is under way when its task is cancelled is usually answered within a second.
_GRACE_SECONDS = 5.0

# The service may have registered the consumer all the same.
_UNANSWERED = (ConnectionFailedError, InternalServiceError, MalformedResponseError)


@define(eq=False)
class ConsumerRegistration:
    """One search for a usable consumer; any number of processes may search at once."""

    _stream_arn: str
    _consumer_name: str
    _config: RegistrationConfig
    _context: ControlContext
    # It records what is registered.
    _lease: ConsumerLease
    # The last consumer that this search registered.
    registered_arn: str | None = field(default=None, init=False)
    _retries: RetryBudget = field(init=False)
    _limited: RetryBudget = field(init=False)
    _status: str = field(default="", init=False)
    _status_since: float = field(default=0.0, init=False)
    _polls: int = field(default=0, init=False)
    _is_unanswered: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        retry, context = self._config.register_retry, self._context
        self._retries = RetryBudget(retry, context.clock, events=context.events)
        # Waiting out an outage does not help a stream that is at its limit of consumers.
        limited = evolve(retry, outage_seconds=0.0)
        self._limited = RetryBudget(limited, context.clock, events=context.events)

    async def find_active(self, *, is_competing: bool) -> str:
        """Return the ARN of the ACTIVE consumer; register it if it does not exist.

        If other processes are likely to start at the same moment (``is_competing``), this one first
        waits for a random time, up to the first registration delay.

        Raises:
            LimitExceededError: the stream is at its limit of consumers.
            RetriesExhaustedError: the consumer does not become ACTIVE, or calls keep failing.
            ServiceError: a call failed for good.
        """
        while True:
            consumer = await self._find()
            if consumer is None:
                if is_competing:
                    await self._context.clock.sleep(self._config.register_retry.delay_seconds(0))
                    is_competing = False
                consumer = await self.register_if_absent()
            if consumer is None:
                continue
            self._warn_if_perhaps_ours(consumer)
            if consumer.status == "ACTIVE":
                return consumer.arn
            await self._wait_for_change(consumer)

    async def _find(self) -> StreamConsumer | None:
        return await find_consumer(
            self._stream_arn, self._consumer_name, self._config, self._context
        )

    async def register_if_absent(self) -> StreamConsumer | None:
        """Return the consumer, or ``None`` after a delay: then look for it again."""
        async with self._lease.registering():
            consumer = await self._find()
            if consumer is not None:
                return consumer
            try:
                return await _finish_once_begun(self._register(), clock=self._context.clock)
            except ServiceError as error:
                failure = error
                self._is_unanswered |= isinstance(error, _UNANSWERED)
        # ResourceInUse: another process registered it, and the next description shows it.
        await self._context.clock.sleep(await self._delay_after(failure))
        return None

    async def _register(self) -> StreamConsumer:
        consumer = await self._context.control_plane.register_stream_consumer(
            self._stream_arn, self._consumer_name
        )
        self.registered_arn = consumer.arn
        if self._config.deregister is DeregistrationPolicy.CREATED:
            self._lease.note_created(consumer.arn)
        self._context.events(
            ConsumerRegistered(stream_arn=self._stream_arn, consumer_arn=consumer.arn)
        )
        return consumer

    def _warn_if_perhaps_ours(self, consumer: StreamConsumer) -> None:
        if not self._is_unanswered or consumer.arn == self.registered_arn:
            return
        self._is_unanswered = False
        if self._config.deregister is DeregistrationPolicy.CREATED:
            _LOGGER.warning(
                "The stream consumer %s appeared when this process tried to register it and got no "
                "answer. Another process may have registered it, so it is not removed at the end. "
                "Once nothing uses it, remove it: %s",
                consumer.arn,
                deregister_command(consumer.arn),
            )

    async def _delay_after(self, failure: ServiceError) -> float:
        try:
            is_limit = isinstance(failure, LimitExceededError)
            return (self._limited if is_limit else self._retries).delay_after(failure)
        except RetriesExhaustedError as error:
            if not isinstance(failure, LimitExceededError):
                raise
            raise await self._limit_error(failure) from error

    async def _limit_error(self, failure: LimitExceededError) -> LimitExceededError:
        return LimitExceededError(
            f"The stream consumer {self._consumer_name} cannot be registered: remove one that is "
            "not used (kinesis-publishers consumers deregister NAME), share one by its name, or "
            f"read with kinesis.stream.recordpublisher = POLLING. {self._stream_arn} takes 20 of "
            "them (50 with on-demand advantage), 5 of which may be CREATING at a time. "
            f"{await self._describe_consumers()} ({failure})",
            operation=failure.operation,
            code=failure.code,
            request_id=failure.request_id,
        )

    async def _describe_consumers(self) -> str:
        try:
            consumers = await list_consumers(self._stream_arn, self._config, self._context)
        except KinesisPublishersError as error:
            return f"Its consumers could not be listed ({error})."
        names = ", ".join(f"{one.name} ({one.status})" for one in consumers)
        return f"It has {len(consumers)} consumers: {names}." if names else "It has no consumers."

    async def _wait_for_change(self, consumer: StreamConsumer) -> None:
        now = self._context.clock.monotonic()
        if consumer.status != self._status:
            self._status, self._status_since, self._polls = consumer.status, now, 0
            self._context.events(
                ConsumerAwaited(
                    stream_arn=self._stream_arn, consumer_arn=consumer.arn, status=consumer.status
                )
            )
        elapsed = now - self._status_since
        if elapsed >= self._config.register_timeout_seconds:
            raise self._stuck(consumer, elapsed)
        await self._context.clock.sleep(self._config.register_retry.delay_seconds(self._polls))
        self._polls += 1

    def _stuck(self, consumer: StreamConsumer, elapsed: float) -> RetriesExhaustedError:
        advice = (
            f"remove it ({deregister_command(consumer.arn)}) and start again"
            if consumer.status == "CREATING"
            else "start again once it is gone, or use another consumer name"
        )
        return RetriesExhaustedError(
            f"The stream consumer {self._consumer_name} on {self._stream_arn} was still "
            f"{consumer.status} after {elapsed:.0f} s: {advice}, or raise "
            f"{RegistrationConfig.register_timeout_seconds.full_key} if AWS is slow.",
            attempts=self._polls + 1,
            elapsed_seconds=elapsed,
        )


async def _finish_once_begun(call: Coroutine[Any, Any, _T], *, clock: Clock) -> _T:
    """Await ``call``; if the task is cancelled meanwhile, allow it a few seconds to finish.

    Without its answer, nothing would remove the consumer that it registered.
    """
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(TimeoutError):
            async with clock.timeout(_GRACE_SECONDS):
                await asyncio.wait({task})
        raise
    finally:
        if task.done() and not task.cancelled():
            task.exception()
        task.cancel()
