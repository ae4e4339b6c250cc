"""Explains why a stream takes no further consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.errors import (
    KinesisPublishersError,
    LimitExceededError,
)
from kinesis_publishers.retry import call_with_retries

if TYPE_CHECKING:
    from kinesis_publishers.abc.record_publisher_factory import PublisherContext
    from kinesis_publishers.config.registration import RegistrationConfig

__all__ = ["consumer_limit_error"]


async def consumer_limit_error(
    stream_arn: str,
    consumer_name: str,
    failure: LimitExceededError,
    config: RegistrationConfig,
    context: PublisherContext,
) -> LimitExceededError:
    """Return the error that says which consumers the stream has, and what can be done.

    Args:
        stream_arn: the stream.
        consumer_name: what could not be registered on it.
        failure: the service's last answer.
        config: how the listing is repeated.
        context: what lists the consumers.
    """
    return LimitExceededError(
        f"The stream consumer {consumer_name} could not be registered on {stream_arn}, however "
        f"often it was tried: {failure} {await _describe_consumers(stream_arn, config, context)} A "
        "stream has up to 20 (50 with on-demand advantage), of which 5 may be CREATING at a time: "
        "remove one that nobody uses (aws kinesis deregister-stream-consumer), share one by its "
        "name, or read with kinesis.stream.recordpublisher = POLLING.",
        operation=failure.operation,
        code=failure.code,
        request_id=failure.request_id,
    )


async def _describe_consumers(
    stream_arn: str, config: RegistrationConfig, context: PublisherContext
) -> str:
    try:
        consumers = await call_with_retries(
            lambda: context.control_plane.list_stream_consumers(stream_arn),
            policy=config.list_retry,
            clock=context.clock,
            events=context.events,
        )
    except KinesisPublishersError as error:
        return f"Its consumers could not be listed ({error})."
    names = ", ".join(f"{one.name} ({one.status})" for one in consumers)
    return f"It has {len(consumers)} consumers: {names}." if names else "It has no consumers."
