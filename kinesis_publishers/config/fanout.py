"""The typed views of the options of enhanced fan-out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import field, frozen

from kinesis_publishers.config.choices import Http2Client, HttpVersion
from kinesis_publishers.config.options import fanout, pending, retries
from kinesis_publishers.config.recoverable_errors import RecoverableErrors

if TYPE_CHECKING:
    from kinesis_publishers.config.properties import Properties
    from kinesis_publishers.retry import RetryPolicy

__all__ = ["FanOutConfig", "Http2Client", "HttpVersion", "SubscriptionHttpConfig"]


@frozen(kw_only=True)
class FanOutConfig:
    """How a shard is read by subscriptions.

    Attributes:
        subscribe_retry: how SubscribeToShard is repeated.
        subscribe_timeout_seconds: how long it may take to answer.
        space_timeout_seconds: how long a subscription waits for room, or for the end of one
            delivery, before it is closed.
        recoverable_errors: after which a subscription is reopened as often as it takes, beside
            the built-in ones.
    """

    subscribe_retry: RetryPolicy
    subscribe_timeout_seconds: float
    space_timeout_seconds: float
    recoverable_errors: RecoverableErrors = field(factory=RecoverableErrors)

    @classmethod
    def from_properties(cls, properties: Properties) -> FanOutConfig:
        """Read the options of subscriptions.

        Raises:
            InvalidOptionError: a recoverable error cannot be imported.
        """
        return cls(
            subscribe_retry=properties.retry_policy(retries.SUBSCRIBE_TO_SHARD),
            subscribe_timeout_seconds=properties.seconds(fanout.SUBSCRIBE_TIMEOUT),
            space_timeout_seconds=properties.seconds(pending.WAIT_TIMEOUT),
            recoverable_errors=RecoverableErrors.parse(
                properties.members(fanout.RECOVERABLE_ERRORS).values()
            ),
        )


@frozen(kw_only=True)
class SubscriptionHttpConfig:
    """How subscriptions are carried.

    Attributes:
        version: the protocol.
        http2_client: the library that speaks HTTP/2.
        read_timeout_seconds: how long a socket may be silent.
    """

    version: HttpVersion = field(default=fanout.HTTP_VERSION.default)
    http2_client: Http2Client = field(default=fanout.HTTP2_CLIENT.default)
    read_timeout_seconds: float = field(default=fanout.READ_TIMEOUT.default / 1000)

    @classmethod
    def from_properties(cls, properties: Properties) -> SubscriptionHttpConfig:
        """Read the options of the connection."""
        return cls(
            version=properties.get(fanout.HTTP_VERSION),
            http2_client=properties.get(fanout.HTTP2_CLIENT),
            read_timeout_seconds=properties.seconds(fanout.READ_TIMEOUT),
        )
