"""The closed lists of values that options accept."""

from __future__ import annotations

from enum import Enum

__all__ = [
    "InitialPosition",
    "EndingPosition",
    "RegistrationStrategy",
    "DeregistrationPolicy",
    "HttpVersion",
    "Http2Client",
    "CredentialsProvider",
    "ShardOrder",
    "AggregationMode",
    "OnInvalidAggregate",
    "Planner",
    "MetricsLevel",
]


class InitialPosition(Enum):
    """Where to begin in a stream that was never read before."""

    LATEST = "LATEST"
    TRIM_HORIZON = "TRIM_HORIZON"
    AT_TIMESTAMP = "AT_TIMESTAMP"


class EndingPosition(Enum):
    """Where a batch read ends."""

    LATEST = "LATEST"
    AT_TIMESTAMP = "AT_TIMESTAMP"


class RegistrationStrategy(Enum):
    """Who registers the enhanced fan-out consumer, and when."""

    LAZY = "LAZY"
    EAGER = "EAGER"
    NONE = "NONE"


class DeregistrationPolicy(Enum):
    """Which consumers are removed at tear-down."""

    CREATED = "created"
    NEVER = "never"


class HttpVersion(Enum):
    """The protocol over which subscriptions are read."""

    AUTO = "auto"
    HTTP_2 = "2"
    HTTP_1_1 = "1.1"


class Http2Client(Enum):
    """The library that speaks HTTP/2."""

    HTTPX = "httpx"
    PYREQWEST = "pyreqwest"


class CredentialsProvider(Enum):
    """Where credentials come from."""

    AUTO = "AUTO"
    BASIC = "BASIC"
    ENV_VAR = "ENV_VAR"
    PROFILE = "PROFILE"
    ASSUME_ROLE = "ASSUME_ROLE"
    WEB_IDENTITY_TOKEN = "WEB_IDENTITY_TOKEN"
    CUSTOM = "CUSTOM"


class ShardOrder(Enum):
    """Whether a child shard waits for its parents."""

    PARENTS_FIRST = "parents-first"
    NONE = "none"


class AggregationMode(Enum):
    """What is done with the KPL's aggregate records."""

    AUTO = "auto"
    """They are deaggregated; of the KPL's, what belongs to another shard after a reshard is left
    out."""

    KPL = "kpl"
    """They are deaggregated; what belongs to another shard is left out, for every producer."""

    UNFILTERED = "unfiltered"
    """They are deaggregated, and everything in them is delivered."""

    OFF = "off"
    """They are delivered as they are."""


class OnInvalidAggregate(Enum):
    """What is done with a record that begins like an aggregate and is not a valid one."""

    PLAIN = "plain"
    """It is delivered as it is."""

    FAIL = "fail"
    """Reading stops with an error, after what stands before it."""

    DEAD_LETTER = "dead-letter"
    """The dead letter of ``scan`` takes it, and ``process`` does not."""


class Planner(Enum):
    """How the end of a micro-batch is found."""

    PREFETCH = "prefetch"
    RANGES = "ranges"


class MetricsLevel(Enum):
    """What metrics are kept apart by."""

    SHARD = "shard"
    STREAM = "stream"
