"""Removes a stream consumer, and says how to do it by hand where that fails."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kinesis_publishers.errors import ConsumerNotFoundError, KinesisPublishersError
from kinesis_publishers.events import ConsumerDeregistered
from kinesis_publishers.registration.consumer_arns import (
    consumer_name_in,
    deregister_command,
    stream_arn_of,
)
from kinesis_publishers.retry import call_with_retries

if TYPE_CHECKING:
    from kinesis_publishers.abc import ControlContext
    from kinesis_publishers.config import RegistrationConfig

__all__ = ["deregister_consumer"]

_LOGGER = logging.getLogger(__name__)


async def deregister_consumer(
    consumer_arn: str, config: RegistrationConfig, context: ControlContext
) -> bool:
    """Remove exactly this consumer, and wait until it is DELETING or gone.

    A failure is logged, with the command that removes the consumer, and not raised: it happens at
    the end of something whose own outcome counts.

    Args:
        consumer_arn: what to remove; a later consumer of the same name is another one.
        config: retries and timeout.
        context: makes the calls, and is told when the consumer has been removed.

    Returns:
        Whether it is gone.
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
        _LOGGER.info("The stream consumer %s had been removed before.", consumer_arn)
        return True
    except (KinesisPublishersError, TimeoutError) as error:
        _LOGGER.warning(
            "The stream consumer %s could not be removed (%s). It costs money until it is; when "
            "nobody uses it any more: %s",
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
    stream_arn, name = stream_arn_of(consumer_arn), consumer_name_in(consumer_arn)
    attempt = 0
    while True:
        try:
            consumer = await call_with_retries(
                lambda: context.control_plane.describe_stream_consumer(stream_arn, name),
                policy=config.describe_retry,
                clock=context.clock,
                events=context.events,
            )
        except ConsumerNotFoundError:
            return
        if consumer.arn != consumer_arn or consumer.status == "DELETING":
            return
        await context.clock.sleep(config.deregister_retry.delay_seconds(attempt))
        attempt += 1
