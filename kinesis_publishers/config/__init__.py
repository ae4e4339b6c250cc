"""The configuration: properties in, typed frozen values out.

``Properties`` parses and checks everything at once; each typed config, whose fields declare the
options, is read from it with ``from_properties``. The order from the bottom up: parsers, the
declaration of an option, the sections, the catalogue of all options, the rules between them, and
``Properties`` on top.
"""

from __future__ import annotations

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
from kinesis_publishers.config.properties import Properties
from kinesis_publishers.config.sections.aws import (
    AwsConfig,
    CredentialsConfig,
    CredentialsProvider,
    resolve_region,
)
from kinesis_publishers.config.sections.checkpoints import (
    CheckpointConfig,
    DynamoDbCheckpointConfig,
    SqliteCheckpointConfig,
)
from kinesis_publishers.config.sections.metrics import MetricsConfig, MetricsLevel
from kinesis_publishers.config.sections.positions import (
    EndingPosition,
    EndingPositionConfig,
    InitialPosition,
    InitialPositionConfig,
)
from kinesis_publishers.config.sections.reading import (
    DiscoveryConfig,
    Encoding,
    FanOutConfig,
    Http2Client,
    HttpVersion,
    PendingConfig,
    PollingConfig,
    ShardLimits,
    ShardOrder,
    SubscriptionHttpConfig,
)
from kinesis_publishers.config.sections.registration import (
    DeregistrationPolicy,
    RegistrationConfig,
    RegistrationStrategy,
)
from kinesis_publishers.config.sections.source import (
    AggregationMode,
    OnInvalidAggregate,
    SourceConfig,
    StreamsConfig,
    StreamSelector,
)
from kinesis_publishers.config.sections.spark import Planner, SparkConfig
from kinesis_publishers.config.spark_options import ALLOW_VARIABLE

__all__ = [
    "Properties",
    "StreamsConfig",
    "StreamSelector",
    "InitialPositionConfig",
    "InitialPosition",
    "EndingPositionConfig",
    "EndingPosition",
    "AwsConfig",
    "resolve_region",
    "CredentialsConfig",
    "CredentialsProvider",
    "SourceConfig",
    "AggregationMode",
    "OnInvalidAggregate",
    "PollingConfig",
    "ShardLimits",
    "FanOutConfig",
    "SubscriptionHttpConfig",
    "HttpVersion",
    "Http2Client",
    "RegistrationConfig",
    "RegistrationStrategy",
    "DeregistrationPolicy",
    "DiscoveryConfig",
    "Encoding",
    "ShardOrder",
    "PendingConfig",
    "CheckpointConfig",
    "SqliteCheckpointConfig",
    "DynamoDbCheckpointConfig",
    "MetricsConfig",
    "MetricsLevel",
    "SparkConfig",
    "ALLOW_VARIABLE",
    "Planner",
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
