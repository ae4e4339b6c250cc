"""The configuration: properties in, typed frozen values out.

``Properties`` parses and checks everything at once; each typed config is read from it with
``from_properties``. The declarations are in :mod:`kinesis_publishers.config.options`.
"""

from __future__ import annotations

from kinesis_publishers.config.aws import AwsConfig, resolve_region
from kinesis_publishers.config.checkpoints import (
    CheckpointConfig,
    DynamoDbCheckpointConfig,
    SqliteCheckpointConfig,
)
from kinesis_publishers.config.choices import (
    AggregationMode,
    CredentialsProvider,
    DeregistrationPolicy,
    EndingPosition,
    Http2Client,
    HttpVersion,
    InitialPosition,
    Planner,
    RegistrationStrategy,
    ShardOrder,
)
from kinesis_publishers.config.credentials import CredentialsConfig
from kinesis_publishers.config.discovery import DiscoveryConfig
from kinesis_publishers.config.ending import EndingPositionConfig
from kinesis_publishers.config.fanout import FanOutConfig, SubscriptionHttpConfig
from kinesis_publishers.config.metrics import MetricsConfig
from kinesis_publishers.config.option import Namespace, Option, OptionFamily
from kinesis_publishers.config.parsers import (
    Choice,
    DecimalNumber,
    Duration,
    Flag,
    Size,
    Text,
    WholeNumber,
)
from kinesis_publishers.config.pending import PendingConfig
from kinesis_publishers.config.polling import PollingConfig
from kinesis_publishers.config.positions import InitialPositionConfig
from kinesis_publishers.config.properties import Properties
from kinesis_publishers.config.registration import RegistrationConfig
from kinesis_publishers.config.shard_positions import ShardIteratorKind, ShardPosition
from kinesis_publishers.config.source import SourceConfig
from kinesis_publishers.config.spark import SparkConfig
from kinesis_publishers.config.streams import StreamsConfig, StreamSelector

__all__ = [
    "Properties",
    "StreamsConfig",
    "StreamSelector",
    "InitialPositionConfig",
    "InitialPosition",
    "EndingPositionConfig",
    "EndingPosition",
    "ShardPosition",
    "ShardIteratorKind",
    "AwsConfig",
    "resolve_region",
    "CredentialsConfig",
    "CredentialsProvider",
    "SourceConfig",
    "AggregationMode",
    "PollingConfig",
    "FanOutConfig",
    "SubscriptionHttpConfig",
    "HttpVersion",
    "Http2Client",
    "RegistrationConfig",
    "DiscoveryConfig",
    "ShardOrder",
    "PendingConfig",
    "CheckpointConfig",
    "SqliteCheckpointConfig",
    "DynamoDbCheckpointConfig",
    "MetricsConfig",
    "SparkConfig",
    "Planner",
    "RegistrationStrategy",
    "DeregistrationPolicy",
    "Option",
    "OptionFamily",
    "Namespace",
    "Text",
    "WholeNumber",
    "DecimalNumber",
    "Duration",
    "Size",
    "Flag",
    "Choice",
]
