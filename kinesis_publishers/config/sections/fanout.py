"""How a shard is read by subscriptions (SubscribeToShard), and what carries them."""

from __future__ import annotations

from enum import Enum

from kinesis_publishers.config.option import Derived, Namespace, Option, Section
from kinesis_publishers.config.parsers import Choice, Duration
from kinesis_publishers.config.recoverable_errors import RecoverableErrors, recoverable_errors
from kinesis_publishers.config.retries import RetryOptions

__all__ = ["FanOutConfig", "Http2Client", "HttpVersion", "SubscriptionHttpConfig"]


class FanOutConfig(Section, section="Enhanced fan-out"):
    """How a shard is read by subscriptions.

    ``from_properties`` raises ``InvalidOptionError`` if a recoverable error cannot be imported.
    """

    subscribe_retry: RetryOptions = RetryOptions(
        "shard.subscribetoshard", "SubscribeToShard", retries=10, base=1000, longest=2000
    )
    subscribe_timeout_seconds: Option[float] = Option(
        key="shard.subscribetoshard.timeout",
        parser=Duration(unit="s", minimum=1.0),
        default=60.0,
        doc="How long SubscribeToShard may take to answer.",
    )
    space_timeout_seconds: Option[float] = Option(
        key="pending.waittimeoutmillis",
        parser=Duration(),
        default=30_000.0,
        namespace=Namespace.OURS,
        section="Backpressure",
        doc="How long a subscription may wait for space, or for the end of one delivery, before it "
        "is closed.",
    )
    recoverable_errors: Derived[RecoverableErrors] = Derived(recoverable_errors)


class HttpVersion(Enum):
    """The protocol over which subscriptions are read."""

    AUTO = "auto"
    HTTP_2 = "2"
    HTTP_1_1 = "1.1"


class Http2Client(Enum):
    """The library that speaks HTTP/2."""

    HTTPX = "httpx"
    PYREQWEST = "pyreqwest"


class SubscriptionHttpConfig(Section, section="Enhanced fan-out"):
    """How subscriptions are carried."""

    version: Option[HttpVersion] = Option(
        key="stream.efo.http-version",
        parser=Choice(members=HttpVersion),
        default=HttpVersion.AUTO,
        namespace=Namespace.OURS,
        doc="The protocol of subscriptions: 2, 1.1, or auto (2 where an https endpoint offers it, "
        "as AWS does, and 1.1 otherwise).",
    )
    http2_client: Option[Http2Client] = Option(
        key="stream.efo.http2-client",
        parser=Choice(members=Http2Client),
        default=Http2Client.HTTPX,
        namespace=Namespace.OURS,
        doc="What carries subscriptions over HTTP/2: httpx, or pyreqwest, which takes a third of "
        "the CPU (pip install 'kinesis-publishers[fast]').",
    )
    read_timeout_seconds: Option[float] = Option(
        key="stream.efo.http-client.read-timeout",
        parser=Duration(minimum=1.0),
        default=360_000.0,
        doc="The socket read timeout of a subscription.",
    )
