"""Finds, lists and removes stream consumers."""

from __future__ import annotations

import logging

from kinesis_publishers.abc import ControlContext
from kinesis_publishers.config import RegistrationConfig
from kinesis_publishers.errors import ConsumerNotFoundError, KinesisPublishersError
from kinesis_publishers.events import ConsumerDeregistered
from kinesis_publishers.model import StreamConsumer
from kinesis_publishers.model.sources import consumer_name_of, region_of, stream_arn_of
from kinesis_publishers.retry import call_with_retries

_LOGGER = logging.getLogger(__name__)


async def find_consumer(
    stream_arn: str, name: str, config: RegistrationConfig, context: ControlContext
) -> StreamConsumer | None:
    """Return the consumer of this name, ``None`` if there is none."""
    try:
        return await call_with_retries(
            lambda: context.control_plane.describe_stream_consumer(stream_arn, name),
            policy=config.describe_retry,
            clock=context.clock,
            events=context.events,
        )
    except ConsumerNotFoundError:
        return None


async def list_consumers(
    stream_arn: str, config: RegistrationConfig, context: ControlContext
) -> tuple[StreamConsumer, ...]:
    return await call_with_retries(
        lambda: context.control_plane.list_stream_consumers(stream_arn),
        policy=config.list_retry,
        clock=context.clock,
        events=context.events,
    )


async def deregister_consumer(
    consumer_arn: str, config: RegistrationConfig, context: ControlContext
) -> bool:
    """Remove exactly this consumer, and return whether it is DELETING or gone in time.

    A failure is logged, with the command that removes the consumer, and not raised: the caller is
    ending, and its own outcome counts.
    """
    try:
        await call_with_retries(
            lambda: context.control_plane.deregister_stream_consumer(consumer_arn),
            policy=config.deregister_retry,
            clock=context.clock,
            events=context.events,
        )
        async with context.clock.timeout(config.deregister_timeout_seconds):
            await _wait_until_gone(consumer_arn, config, context)
    except ConsumerNotFoundError:
        _LOGGER.info("The stream consumer %s was removed already.", consumer_arn)
        return True
    except (KinesisPublishersError, TimeoutError) as error:
        _LOGGER.warning(
            "The stream consumer %s could not be removed (%s). AWS bills it until it is. Once "
            "nothing uses it, remove it: %s",
            consumer_arn,
            str(error) or f"it was still there after {config.deregister_timeout_seconds:g} s",
            deregister_command(consumer_arn),
        )
        return False
    context.events(ConsumerDeregistered(consumer_arn=consumer_arn))
    return True


async def _wait_until_gone(
    consumer_arn: str, config: RegistrationConfig, context: ControlContext
) -> None:
    stream_arn, name = stream_arn_of(consumer_arn), consumer_name_of(consumer_arn)
    attempt = 0
    while True:
        consumer = await find_consumer(stream_arn, name, config, context)
        if consumer is None or consumer.arn != consumer_arn or consumer.status == "DELETING":
            return
        await context.clock.sleep(config.deregister_retry.delay_seconds(attempt))
        attempt += 1


def deregister_command(arn: str, consumer_name: str = "") -> str:
    """Return the command that removes a consumer: by its ARN, or by the stream's and its name."""
    by_name = f"--stream-arn {arn} --consumer-name {consumer_name}"
    which = by_name if consumer_name else f"--consumer-arn {arn}"
    return f"aws kinesis deregister-stream-consumer --region {region_of(arn)} {which}"
