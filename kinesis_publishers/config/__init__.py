"""The configuration: properties in, typed frozen values out.

``Properties`` parses and checks everything at once; each typed config, whose fields declare the
options, is read from it with ``from_properties``. From the bottom up: parsers, the declaration of
an option, the sections, the catalogue of all options, the rules between them, and ``Properties``.
"""

from __future__ import annotations

from kinesis_publishers.config.assignments import Assignments as Assignments
from kinesis_publishers.config.catalogue import extension_options as extension_options
from kinesis_publishers.config.catalogue import find_bare_option as find_bare_option
from kinesis_publishers.config.catalogue import find_option as find_option
from kinesis_publishers.config.catalogue import nearest_key as nearest_key
from kinesis_publishers.config.option import Lookup as Lookup
from kinesis_publishers.config.option import Option as Option
from kinesis_publishers.config.option import Section as Section
from kinesis_publishers.config.options import Options as Options
from kinesis_publishers.config.parsers import Choice as Choice
from kinesis_publishers.config.parsers import DecimalNumber as DecimalNumber
from kinesis_publishers.config.parsers import Duration as Duration
from kinesis_publishers.config.parsers import Flag as Flag
from kinesis_publishers.config.parsers import Scalar as Scalar
from kinesis_publishers.config.parsers import Size as Size
from kinesis_publishers.config.parsers import Text as Text
from kinesis_publishers.config.parsers import WholeNumber as WholeNumber
from kinesis_publishers.config.properties import Properties as Properties
from kinesis_publishers.config.sections.aws import ANY_AWS_DOMAIN as ANY_AWS_DOMAIN
from kinesis_publishers.config.sections.aws import AwsConfig as AwsConfig
from kinesis_publishers.config.sections.aws import CredentialsConfig as CredentialsConfig
from kinesis_publishers.config.sections.aws import CredentialsProvider as CredentialsProvider
from kinesis_publishers.config.sections.checkpoints import CHECKPOINT_OPTIONS as CHECKPOINT_OPTIONS
from kinesis_publishers.config.sections.checkpoints import LEASES as LEASES
from kinesis_publishers.config.sections.checkpoints import AssignmentConfig as AssignmentConfig
from kinesis_publishers.config.sections.checkpoints import BillingMode as BillingMode
from kinesis_publishers.config.sections.checkpoints import CheckpointConfig as CheckpointConfig
from kinesis_publishers.config.sections.checkpoints import (
    DynamoDbCheckpointConfig as DynamoDbCheckpointConfig,
)
from kinesis_publishers.config.sections.checkpoints import LeaseConfig as LeaseConfig
from kinesis_publishers.config.sections.checkpoints import LeaseFormat as LeaseFormat
from kinesis_publishers.config.sections.checkpoints import (
    RedisCheckpointConfig as RedisCheckpointConfig,
)
from kinesis_publishers.config.sections.checkpoints import (
    SqlCheckpointConfig as SqlCheckpointConfig,
)
from kinesis_publishers.config.sections.checkpoints import (
    SqliteCheckpointConfig as SqliteCheckpointConfig,
)
from kinesis_publishers.config.sections.metrics import MetricsConfig as MetricsConfig
from kinesis_publishers.config.sections.positions import (
    EndingPositionConfig as EndingPositionConfig,
)
from kinesis_publishers.config.sections.positions import (
    InitialPositionConfig as InitialPositionConfig,
)
from kinesis_publishers.config.sections.positions import at_timestamp as at_timestamp
from kinesis_publishers.config.sections.producing import Ordering as Ordering
from kinesis_publishers.config.sections.producing import OuterKey as OuterKey
from kinesis_publishers.config.sections.producing import ProducerConfig as ProducerConfig
from kinesis_publishers.config.sections.producing import WhenFull as WhenFull
from kinesis_publishers.config.sections.reading import DiscoveryConfig as DiscoveryConfig
from kinesis_publishers.config.sections.reading import Encoding as Encoding
from kinesis_publishers.config.sections.reading import FanOutConfig as FanOutConfig
from kinesis_publishers.config.sections.reading import HttpVersion as HttpVersion
from kinesis_publishers.config.sections.reading import PendingConfig as PendingConfig
from kinesis_publishers.config.sections.reading import PollingConfig as PollingConfig
from kinesis_publishers.config.sections.reading import ProcessingConfig as ProcessingConfig
from kinesis_publishers.config.sections.reading import ShardLimits as ShardLimits
from kinesis_publishers.config.sections.reading import ShardOrder as ShardOrder
from kinesis_publishers.config.sections.reading import (
    SubscriptionHttpConfig as SubscriptionHttpConfig,
)
from kinesis_publishers.config.sections.reading import WatermarkConfig as WatermarkConfig
from kinesis_publishers.config.sections.registration import (
    DeregistrationPolicy as DeregistrationPolicy,
)
from kinesis_publishers.config.sections.registration import RegistrationConfig as RegistrationConfig
from kinesis_publishers.config.sections.registration import (
    RegistrationStrategy as RegistrationStrategy,
)
from kinesis_publishers.config.sections.source import AggregationMode as AggregationMode
from kinesis_publishers.config.sections.source import OnInvalidAggregate as OnInvalidAggregate
from kinesis_publishers.config.sections.source import SourceConfig as SourceConfig
from kinesis_publishers.config.sections.source import StreamsConfig as StreamsConfig
from kinesis_publishers.config.sections.source import StreamSelector as StreamSelector
from kinesis_publishers.config.sections.source import built_in_publisher as built_in_publisher
from kinesis_publishers.config.sections.source import selected_streams as selected_streams
from kinesis_publishers.model.sources import EFO as EFO
from kinesis_publishers.model.sources import POLLING as POLLING
from kinesis_publishers.model.sources import source_of as source_of
from kinesis_publishers.model.sources import stream_arn_of as stream_arn_of
from kinesis_publishers.model.sources import stream_name_of as stream_name_of
