"""The names of other connectors: what each means here, and what to do where it means nothing."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import orjson

from kinesis_publishers.config.sections.aws import AwsConfig, CredentialsConfig
from kinesis_publishers.config.sections.fanout import FanOutConfig
from kinesis_publishers.config.sections.polling import DiscoveryConfig, PollingConfig
from kinesis_publishers.config.sections.positions import (
    EndingPosition,
    EndingPositionConfig,
    InitialPosition,
    InitialPositionConfig,
)
from kinesis_publishers.config.sections.registration import (
    DeregistrationPolicy,
    RegistrationConfig,
    RegistrationStrategy,
)
from kinesis_publishers.config.sections.source import EFO, POLLING, SourceConfig, StreamsConfig
from kinesis_publishers.config.sections.spark import SparkConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kinesis_publishers.config.option import Option
    from kinesis_publishers.config.parsers import Scalar

__all__ = [
    "ADVICE",
    "ALIASES",
    "NO_SIDE_STORE",
    "REGION_IN_ENDPOINT",
    "advice_for",
    "assignments_of",
]

ALIASES: Final[Mapping[str, Option[Any]]] = MappingProxyType(
    {
        "streamName": StreamsConfig.names,
        "streamARN": StreamsConfig.names,
        "subscribe": StreamsConfig.names,
        "region": AwsConfig.region,
        "kinesisRegion": AwsConfig.region,
        "endpointUrl": AwsConfig.endpoint_url,
        "endpoint": AwsConfig.endpoint_url,
        "consumerType": SourceConfig.record_publisher,
        "consumerMode": SourceConfig.record_publisher,
        "consumerName": RegistrationConfig.consumer_name,
        "fanoutConsumerARN": RegistrationConfig.consumer_arn.member,
        "requireConsumerDeregistration": RegistrationConfig.deregister,
        "startingPosition": InitialPositionConfig.position,
        "initialPosition": InitialPositionConfig.position,
        "startingOffsets": InitialPositionConfig.position,
        "startingTimestamp": InitialPositionConfig.timestamp_text,
        "endingPosition": EndingPositionConfig.position,
        "endingOffsets": EndingPositionConfig.position,
        "endingTimestamp": EndingPositionConfig.timestamp_text,
        "failOnDataLoss": SourceConfig.fail_on_data_loss,
        "maxRecordsPerTrigger": SparkConfig.max_records_per_trigger,
        "maxOffsetsPerTrigger": SparkConfig.max_records_per_trigger,
        "maxBytesPerTrigger": SparkConfig.max_bytes_per_trigger,
        "maxPartitions": SparkConfig.parallelism,
        "includeMetadata": SparkConfig.include_metadata,
        "describeShardInterval": DiscoveryConfig.interval_seconds,
        "shardFetchInterval": DiscoveryConfig.interval_seconds,
        "getRecords.numberOfRecordsPerFetch": PollingConfig.max_records,
        "maxRecordPerRead": PollingConfig.max_records,
        "maxRecordsPerFetch": PollingConfig.max_records,
        "getRecords.fetchIntervalMs": PollingConfig.interval_seconds,
        "idleTimeBetweenReadsInMs": PollingConfig.interval_seconds,
        "minFetchPeriod": PollingConfig.interval_seconds,
        "subscribeToShard.timeoutSec": FanOutConfig.subscribe_timeout_seconds,
        "subscribeToShard.maxRetries": FanOutConfig.subscribe_retry.max_retries,
        "roleArn": CredentialsConfig.role_arn,
        "stsRoleArn": CredentialsConfig.role_arn,
        "awsSTSRoleARN": CredentialsConfig.role_arn,
        "roleExternalId": CredentialsConfig.role_external_id,
        "roleSessionName": CredentialsConfig.role_session_name,
        "stsSessionName": CredentialsConfig.role_session_name,
        "awsSTSSessionName": CredentialsConfig.role_session_name,
        "stsEndpoint": CredentialsConfig.sts_endpoint_url,
        "stsEndpointUrl": CredentialsConfig.sts_endpoint_url,
        "awsSTSEndpoint": CredentialsConfig.sts_endpoint_url,
        "awsAccessKeyId": CredentialsConfig.access_key_id,
        "awsAccessKey": CredentialsConfig.access_key_id,
        "awsSecretKey": CredentialsConfig.secret_key,
        "sessionToken": CredentialsConfig.session_token,
    }
)
"""The option that each name of another connector stands for."""

#: The region in the URL of an endpoint of AWS's own, from which other connectors take it.
REGION_IN_ENDPOINT: Final = (
    r"(?i)https://kinesis(?:-fips)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/?"
)
# Glue writes a date without a word before it.
_DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*"
_EPOCH_MILLIS: Final = r"[0-9]{13}"
_CONSUMER_STREAM: Final = r":stream/(?P<stream>[a-zA-Z0-9_.-]+)/consumer/"

_Assigned = list[tuple["Option[Any]", "Scalar"]]


def assignments_of(alias: Option[Any], value: Scalar) -> _Assigned:
    """Return the options that ``value``, given under an alias of ``alias``, stands for."""
    expand = _EXPANSIONS.get(alias.key)
    return expand(value) if expand else [(alias, value)]


def _consumer_type(value: Scalar) -> _Assigned:
    names = {"getrecords": POLLING, "subscribetoshard": EFO}
    return [(SourceConfig.record_publisher, names.get(str(value).strip().lower(), value))]


def _deregistration(value: Scalar) -> _Assigned:
    policies = {"true": DeregistrationPolicy.CREATED, "false": DeregistrationPolicy.NEVER}
    policy = policies.get(str(value).strip().lower())
    return [(RegistrationConfig.deregister, policy.value if policy else value)]


def _consumer_arn(value: Scalar) -> _Assigned:
    """Read with the consumer that the user has registered; its ARN names the stream."""
    match = re.search(_CONSUMER_STREAM, str(value))
    if match is None:
        return [(RegistrationConfig.consumer_arn.member, value)]
    return [
        (SourceConfig.record_publisher, EFO),
        (RegistrationConfig.strategy, RegistrationStrategy.NONE.value),
        (RegistrationConfig.consumer_arn.of(match["stream"]), value),
    ]


_ENDINGS: Final[Mapping[str, Option[Any]]] = MappingProxyType(
    {
        InitialPositionConfig.position.key: EndingPositionConfig.position,
        InitialPositionConfig.timestamp_text.key: EndingPositionConfig.timestamp_text,
        InitialPositionConfig.timestamp_format.key: EndingPositionConfig.timestamp_format,
        InitialPositionConfig.shards.key: EndingPositionConfig.shards,
    }
)


def _ending_position(value: Scalar) -> _Assigned:
    if str(value).strip().upper() == "EARLIEST":
        return [(EndingPositionConfig.position, value)]  # refused, in the word that the user wrote
    return [(_ENDINGS[option.key], part) for option, part in _starting_position(value)]


def _starting_timestamp(value: Scalar) -> _Assigned:
    return [
        (InitialPositionConfig.position, InitialPosition.AT_TIMESTAMP.value),
        (InitialPositionConfig.timestamp_text, _epoch_seconds(value)),
    ]


def _ending_timestamp(value: Scalar) -> _Assigned:
    return [
        (EndingPositionConfig.position, EndingPosition.AT_TIMESTAMP.value),
        (EndingPositionConfig.timestamp_text, _epoch_seconds(value)),
    ]


def _epoch_seconds(value: Scalar) -> Scalar:
    # The source for Kafka has milliseconds under this name.
    text = str(value).strip()
    return f"{int(text) / 1000:.3f}" if re.fullmatch(_EPOCH_MILLIS, text) else value


def _starting_position(value: Scalar) -> list[tuple[Option[Any], Scalar]]:
    """Return what ``startingPosition`` says: a name, a date, AT_TIMESTAMP with one, or JSON."""
    position, timestamp = InitialPositionConfig.position, InitialPositionConfig.timestamp_text
    text = str(value).strip()
    if text.startswith("{"):
        return _from_json(text)
    name, _, instant = text.partition(" ")
    if name.upper() == "EARLIEST":
        return [(position, InitialPosition.TRIM_HORIZON.value)]
    if name.upper() == "AT_TIMESTAMP" and instant.strip():
        return [(position, name), (timestamp, instant.strip())]
    if re.fullmatch(_DATE, text):
        return [(position, InitialPosition.AT_TIMESTAMP.value), (timestamp, text)]
    return [(position, value)]


def _from_json(text: str) -> list[tuple[Option[Any], Scalar]]:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        document = None
    # With any other key the whole text is refused: nothing is ignored.
    if not isinstance(document, dict) or document.keys() - {"format"} != {"at_timestamp"}:
        return [(InitialPositionConfig.shards, text)]
    parts: list[tuple[Option[Any], Scalar]] = [
        (InitialPositionConfig.position, InitialPosition.AT_TIMESTAMP.value),
        (InitialPositionConfig.timestamp_text, document["at_timestamp"]),
    ]
    if "format" in document:
        parts.append((InitialPositionConfig.timestamp_format, document["format"]))
    return parts


_EXPANSIONS: Final[Mapping[str, Callable[[Scalar], _Assigned]]] = MappingProxyType(
    {
        SourceConfig.record_publisher.key: _consumer_type,
        InitialPositionConfig.position.key: _starting_position,
        InitialPositionConfig.timestamp_text.key: _starting_timestamp,
        EndingPositionConfig.position.key: _ending_position,
        EndingPositionConfig.timestamp_text.key: _ending_timestamp,
        RegistrationConfig.deregister.key: _deregistration,
        RegistrationConfig.consumer_arn.member.key: _consumer_arn,
    }
)


NO_SIDE_STORE: Final = "progress is in Spark's own checkpoint and nowhere else: remove it"
_ENDS_AT_THE_TIP: Final = (
    "a micro-batch ends with the records that have arrived and does not wait: remove it, or limit "
    "the size with maxRecordsPerTrigger or maxBytesPerTrigger"
)
_NOTHING_TO_SET: Final = "this source has no such setting: remove it"
_RETRIES: Final = (
    "each API call has its own: see kinesis.shard.getrecords.maxretries and its .backoff.base and "
    ".backoff.max"
)
_PARSE_IN_SPARK: Final = (
    "the payload is delivered as it is: parse the column data with from_json, from_csv or from_avro"
)
_PARALLELISM: Final = "set kinesis.spark.parallelism, the largest number of tasks in a micro-batch"
_TRIGGER: Final = "set the interval with writeStream.trigger(processingTime=...)"
_OWN_CONSUMER: Final = (
    "set kinesis.stream.efo.registration = NONE and kinesis.stream.efo.consumerarn.<stream> to the "
    "ARN of your consumer"
)
_STARTING_OFFSETS: Final = (
    "set startingPosition to AT_TIMESTAMP and a date, or to JSON with a position per shard"
)

_NAMES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        NO_SIDE_STORE: (
            *("metadataCommitterType", "metadataPath", "dynamodb.tableName"),
            *("metadataNumRetries", "metadataRetryIntervalsMs", "metadataMaxRetryIntervalMs"),
            *("minBatchesToRetain", "internal.maintenanceTaskIntervalSec"),
        ),
        _ENDS_AT_THE_TIP: (
            *("maxFetchRecordsPerShard", "maxFetchTimePerShardSec", "maxFetchTimeInMs"),
            *("maxFetchDuration", "maxFetchRate", "internal.maxDataQueueEmptyCount"),
            "internal.dataQueueWaitTimeoutSec",
        ),
        _NOTHING_TO_SET: (
            *("checkNewRecordThreads", "maxShardsPerDescribe", "consumerRefreshInterval"),
            *("coalesceThresholdBlockSize", "coalesceBinSize"),
        ),
        "Spark plans no micro-batch without new records: remove it": (
            *("avoidEmptyBatches", "internal.avoidEmptyBatches"),
        ),
        _RETRIES: (
            *("clientNumRetries", "clientRetryIntervalsMs", "clientMaxRetryIntervalMs"),
            *("numRetries", "retryIntervalMs", "maxRetryIntervalMs"),
            *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
        ),
        "set kinesis.pending.maxbytes, which is memory of the driver and not of the cluster": (
            "fetchBufferSize",
        ),
        "set kinesis.pending.maxrecords, which counts the records of all shards": (
            "internal.dataQueueCapacity",
        ),
        "set kinesis.shard.getrecords.intervalmillis, the polling period of a shard": (
            "addIdleTimeBetweenReads",
        ),
        _PARALLELISM: ("shardsPerTask", "minPartitions", "maxRecordsPerPartition"),
        _TRIGGER: ("windowSize", "minOffsetsPerTrigger", "maxTriggerDelay"),
        "set consumerName to a name that no other application has": (
            *("consumerNamePrefix", "groupIdPrefix", "kafka.group.id"),
        ),
        _OWN_CONSUMER: ("registeredConsumerId", "registeredConsumerIdType"),
        "set aws.credentials.provider = CUSTOM and aws.credentials.provider.custom.class": (
            *("credentialProviderClass", "credentialProviderParam"),
        ),
        "credentials come from botocore's default chain, instance and container roles included; "
        "see aws.credentials.provider": ("awsUseInstanceProfile", "serviceCredential"),
        _PARSE_IN_SPARK: ("classification", "delimiter", "schema", "inferSchema"),
        "the column approximateArrivalTimestamp is always there: remove it": (
            "addRecordTimestamp",
        ),
        "the lag is in the progress of the query, as latestOffset: remove it": (
            "emitConsumerLagMetrics",
        ),
        "set includeMetadata = true for the additional columns": ("includeHeaders",),
        "name the streams with streamName or streamARN, separated by commas": (
            *("subscribePattern", "assign"),
        ),
        _STARTING_OFFSETS: (*("startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),),
        "set region, and streamName or streamARN": ("kafka.bootstrap.servers",),
    }
)

ADVICE: Final[Mapping[str, str]] = MappingProxyType(
    {name: advice for advice, names in _NAMES.items() for name in names}
)
"""What to do instead, for each name."""

_BY_LOWER_NAME: Final = MappingProxyType({name.lower(): text for name, text in ADVICE.items()})


def advice_for(name: str) -> str | None:
    """Return what to do instead of setting ``name``, None if no other connector has it."""
    return _BY_LOWER_NAME.get(name.lower())
