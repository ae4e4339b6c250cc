"""The stream consumers of several processes: registered before they read, removed after the last.

It checks the streams, too, before other processes read them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from attrs import define

from kinesis_publishers.assembly import ControlServices, open_control, publisher_factory_class
from kinesis_publishers.config import (
    DeregistrationPolicy,
    LeaseConfig,
    Properties,
    RegistrationConfig,
    RegistrationStrategy,
)
from kinesis_publishers.config.sections.source import built_in_publisher
from kinesis_publishers.errors import (
    InternalServiceError,
    LimitExceededError,
    RetriesExhaustedError,
    ThroughputExceededError,
)
from kinesis_publishers.events import Event, EventSink, ignore_event
from kinesis_publishers.leases.leases import LeasedShards
from kinesis_publishers.registration import ConsumerLease, create_registrar, deregister_consumer
from kinesis_publishers.retry import RetryPolicy, call_with_retries

_T = TypeVar("_T")
_LOGGER = logging.getLogger(__name__)

_CHECK_SECONDS = 6.0
_CHECK_POLICY = RetryPolicy(
    max_retries=2, base_seconds=0.2, max_seconds=1.0, exponent=2.0, start_seconds=2.0
)
# The service answers, and has no time: that passes.
_PASSING = (InternalServiceError, LimitExceededError, ThroughputExceededError)


def check_streams(properties: Properties) -> None:
    """Ask the service for the streams, for some seconds at most.

    A service that is slow or throttles is a warning: readers have more patience.

    Raises:
        ServiceError: a stream does not exist, or the credentials are missing or do not suffice.
        RetriesExhaustedError: the service cannot be reached.
    """

    async def check() -> None:
        async with open_control(properties, events=ignore_event) as control:
            await _check(control)

    _run(check())


async def _check(control: ControlServices) -> None:
    try:
        async with control.clock.timeout(_CHECK_SECONDS):
            for stream in control.selectors:
                await call_with_retries(
                    partial(control.control_plane.describe_stream, stream),
                    policy=_CHECK_POLICY,
                    clock=control.clock,
                    events=ignore_event,
                    is_start=True,
                )
    except (TimeoutError, RetriesExhaustedError) as error:
        reason = error.__cause__
        if isinstance(error, RetriesExhaustedError) and not isinstance(reason, _PASSING):
            raise
        said = reason or f"no answer in {_CHECK_SECONDS:.0f} s"
        _LOGGER.warning("The streams could not be checked, the reader will try again: %s", said)


def register_consumers(properties: Properties) -> Properties:
    """Register consumers as EAGER does, and return ``properties`` with their ARNs.

    Readers with these properties make no call for a consumer that exists. Calling it again uses the
    existing consumers. This machine notes what was registered, and its last reader removes it.
    ``properties``, which have a region, come back as they are if the publisher needs no
    registration, or the strategy is not EAGER.

    Raises:
        AccessDeniedError: the credentials do not allow it; the missing action is named.
        LimitExceededError: a stream has as many consumers as it may have.
        StreamNotFoundError: a stream does not exist.
        RetriesExhaustedError: the service failed too often, or took too long.
    """
    config = RegistrationConfig.from_properties(properties)
    needs_registration = publisher_factory_class(properties).needs_registration
    if not needs_registration or config.strategy is not RegistrationStrategy.EAGER:
        return properties
    arns = _run(_register(properties, config))
    consumer_arn = RegistrationConfig.consumer_arn
    return properties.with_values({consumer_arn.of(name): arn for name, arn in arns.items()})


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    # In a notebook every cell runs on an event loop, which cannot run another one.
    with ThreadPoolExecutor(1, thread_name_prefix="kinesis-registration") as executor:
        return executor.submit(asyncio.run, work).result()


async def _register(properties: Properties, config: RegistrationConfig) -> dict[str, str]:
    """Return the ARN of the consumer on each stream, by the stream's name."""
    name = config.required_name()
    async with open_control(properties) as control:
        await _check(control)
        streams = {one.name: one.arn for one in await control.streams()}
        registrar = create_registrar(config, control)
        with ExitStack() as leases:
            try:
                await registrar.prepare(tuple(streams.values()))
                # Held until the registrar has left, so that it is not the last one and removes
                # nothing. Not held before: where one stream fails, the others' consumers go.
                for arn in streams.values():
                    lease = await ConsumerLease.acquire(
                        arn, name, clock=control.clock, endpoint_url=config.endpoint_url
                    )
                    leases.callback(lease.close)
                return {one: await registrar.consumer_arn(arn) for one, arn in streams.items()}
            finally:
                await registrar.close()


@define(eq=False)
class SharedConsumers:
    """What a fetcher is opened with; its leases, once they are known, learn of its consumers."""

    properties: Properties
    events: EventSink | None
    leases: LeasedShards | None = None


@asynccontextmanager
async def shared_consumers(
    properties: Properties, events: EventSink | None
) -> AsyncIterator[SharedConsumers]:
    """Yield what to open a fetcher with; remove the consumers if its worker was the last one."""
    known = built_in_publisher(properties)
    registers = known is None or known.needs_registration
    if not (registers and LeaseConfig.from_properties(properties).is_enabled):
        yield SharedConsumers(properties, events)
        return
    policy = properties.get(RegistrationConfig.deregister)
    # A process cannot know whether it is the last one, until its leases say so.
    never = {RegistrationConfig.deregister: DeregistrationPolicy.NEVER.value}
    shared = SharedConsumers(properties.with_values(never), None)

    def tell(event: Event) -> None:
        if shared.leases is not None:
            shared.leases.note_event(event)
        if events is not None:
            events(event)

    shared.events = tell
    try:
        yield shared
    finally:
        unused = shared.leases.unused_consumers() if shared.leases is not None else ()
        if unused and policy is DeregistrationPolicy.CREATED:
            async with open_control(properties) as control:
                for arn in unused:
                    await deregister_consumer(arn, control.registration, control)
