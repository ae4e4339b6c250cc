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
    from collections.abc import Mapping

    from kinesis_publishers.config.option import Option
    from kinesis_publishers.config.parsers import Scalar
    from kinesis_publishers.config.sections.positions import Positions

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
        name: option
        for option, names in (
            (StreamsConfig.names, "streamName streamARN subscribe"),
            (AwsConfig.region, "region kinesisRegion"),
            (AwsConfig.endpoint_url, "endpointUrl endpoint"),
            (SourceConfig.record_publisher, "consumerType consumerMode"),
            (RegistrationConfig.consumer_name, "consumerName"),
            (RegistrationConfig.consumer_arn.member, "fanoutConsumerARN"),
            (RegistrationConfig.deregister, "requireConsumerDeregistration"),
            (InitialPositionConfig.position, "startingPosition initialPosition startingOffsets"),
            (InitialPositionConfig.timestamp_text, "startingTimestamp"),
            (EndingPositionConfig.position, "endingPosition endingOffsets"),
            (EndingPositionConfig.timestamp_text, "endingTimestamp"),
            (SourceConfig.fail_on_data_loss, "failOnDataLoss"),
            (SparkConfig.max_records_per_trigger, "maxRecordsPerTrigger maxOffsetsPerTrigger"),
            (SparkConfig.max_bytes_per_trigger, "maxBytesPerTrigger"),
            (SparkConfig.parallelism, "maxPartitions"),
            (SparkConfig.include_metadata, "includeMetadata"),
            (DiscoveryConfig.interval_seconds, "describeShardInterval shardFetchInterval"),
            (
                PollingConfig.max_records,
                "getRecords.numberOfRecordsPerFetch maxRecordPerRead maxRecordsPerFetch",
            ),
            (
                PollingConfig.interval_seconds,
                "getRecords.fetchIntervalMs idleTimeBetweenReadsInMs minFetchPeriod",
            ),
            (FanOutConfig.subscribe_timeout_seconds, "subscribeToShard.timeoutSec"),
            (FanOutConfig.subscribe_retry.max_retries, "subscribeToShard.maxRetries"),
            (CredentialsConfig.role_arn, "roleArn stsRoleArn awsSTSRoleARN"),
            (CredentialsConfig.role_external_id, "roleExternalId"),
            (
                CredentialsConfig.role_session_name,
                "roleSessionName stsSessionName awsSTSSessionName",
            ),
            (CredentialsConfig.sts_endpoint_url, "stsEndpoint stsEndpointUrl awsSTSEndpoint"),
            (CredentialsConfig.access_key_id, "awsAccessKeyId awsAccessKey"),
            (CredentialsConfig.secret_key, "awsSecretKey"),
            (CredentialsConfig.session_token, "sessionToken"),
        )
        for name in names.split()
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
    if alias is RegistrationConfig.consumer_arn.member:
        return _consumer_arn(value)
    for section in (InitialPositionConfig, EndingPositionConfig):
        if alias is section.position:
            return _position(section, value)
        if alias is section.timestamp_text:
            return _at_timestamp(section, _epoch_seconds(value))
    return [(alias, _WORDS.get(alias.key, {}).get(str(value).strip().lower(), value))]


_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    SourceConfig.record_publisher.key: {"getrecords": POLLING, "subscribetoshard": EFO},
    RegistrationConfig.deregister.key: {
        "true": DeregistrationPolicy.CREATED.value,
        "false": DeregistrationPolicy.NEVER.value,
    },
}


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


def _epoch_seconds(value: Scalar) -> Scalar:
    # The source for Kafka has milliseconds under this name.
    text = str(value).strip()
    return f"{int(text) / 1000:.3f}" if re.fullmatch(_EPOCH_MILLIS, text) else value


def _at_timestamp(section: Positions, instant: Scalar) -> _Assigned:
    return [
        (section.position, InitialPosition.AT_TIMESTAMP.value),
        (section.timestamp_text, instant),
    ]


def _position(section: Positions, value: Scalar) -> _Assigned:
    """Return what ``startingPosition`` says: a name, a date, AT_TIMESTAMP with one, or JSON."""
    text = str(value).strip()
    if text.startswith("{"):
        return _from_json(section, text)
    name, _, instant = text.partition(" ")
    # No end is the earliest one: that is refused, in the word that the user wrote.
    if name.upper() == "EARLIEST" and section is InitialPositionConfig:
        return [(section.position, InitialPosition.TRIM_HORIZON.value)]
    if name.upper() == "AT_TIMESTAMP" and instant.strip():
        return [(section.position, name), (section.timestamp_text, instant.strip())]
    if re.fullmatch(_DATE, text):
        return _at_timestamp(section, text)
    return [(section.position, value)]


def _from_json(section: Positions, text: str) -> _Assigned:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        document = None
    # With any other key the whole text is refused: nothing is ignored.
    if not isinstance(document, dict) or document.keys() - {"format"} != {"at_timestamp"}:
        return [(section.shards, text)]
    parts = _at_timestamp(section, document["at_timestamp"])
    if "format" in document:
        parts.append((section.timestamp_format, document["format"]))
    return parts


NO_SIDE_STORE: Final = "progress is in Spark's own checkpoint and nowhere else: remove it"
_ENDS_AT_THE_TIP: Final = (
    "a micro-batch ends with the records that have arrived and does not wait: remove it, or limit "
    "the size with maxRecordsPerTrigger or maxBytesPerTrigger"
)
_RETRIES: Final = (
    "each API call has its own: see kinesis.shard.getrecords.maxretries and its .backoff.base and "
    ".backoff.max"
)
_OWN_CONSUMER: Final = (
    "set kinesis.stream.efo.registration = NONE and kinesis.stream.efo.consumerarn.<stream> to the "
    "ARN of your consumer"
)
_DEFAULT_CHAIN: Final = (
    "credentials come from botocore's default chain, instance and container roles included; see "
    "aws.credentials.provider"
)
_PARSE_IN_SPARK: Final = (
    "the payload is delivered as it is: parse the column data with from_json, from_csv or from_avro"
)

_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        NO_SIDE_STORE: (
            "metadataCommitterType metadataPath dynamodb.tableName metadataNumRetries "
            "metadataRetryIntervalsMs metadataMaxRetryIntervalMs minBatchesToRetain "
            "internal.maintenanceTaskIntervalSec"
        ),
        _ENDS_AT_THE_TIP: (
            "maxFetchRecordsPerShard maxFetchTimePerShardSec maxFetchTimeInMs maxFetchDuration "
            "maxFetchRate internal.maxDataQueueEmptyCount internal.dataQueueWaitTimeoutSec"
        ),
        "this source has no such setting: remove it": (
            "checkNewRecordThreads maxShardsPerDescribe consumerRefreshInterval "
            "coalesceThresholdBlockSize coalesceBinSize"
        ),
        "Spark plans no micro-batch without new records: remove it": (
            "avoidEmptyBatches internal.avoidEmptyBatches"
        ),
        _RETRIES: (
            "clientNumRetries clientRetryIntervalsMs clientMaxRetryIntervalMs numRetries "
            "retryIntervalMs maxRetryIntervalMs fetchOffset.numRetries fetchOffset.retryIntervalMs"
        ),
        "set kinesis.pending.maxbytes, which is memory of the driver and not of the cluster": (
            "fetchBufferSize"
        ),
        "set kinesis.pending.maxrecords, which counts the records of all shards": (
            "internal.dataQueueCapacity"
        ),
        "set kinesis.shard.getrecords.intervalmillis, the polling period of a shard": (
            "addIdleTimeBetweenReads"
        ),
        "set kinesis.spark.parallelism, the largest number of tasks in a micro-batch": (
            "shardsPerTask minPartitions maxRecordsPerPartition"
        ),
        "set the interval with writeStream.trigger(processingTime=...)": (
            "windowSize minOffsetsPerTrigger maxTriggerDelay"
        ),
        "set consumerName to a name that no other application has": (
            "consumerNamePrefix groupIdPrefix kafka.group.id"
        ),
        _OWN_CONSUMER: "registeredConsumerId registeredConsumerIdType",
        "set aws.credentials.provider = CUSTOM and aws.credentials.provider.custom.class": (
            "credentialProviderClass credentialProviderParam"
        ),
        _DEFAULT_CHAIN: "awsUseInstanceProfile serviceCredential",
        _PARSE_IN_SPARK: "classification delimiter schema inferSchema",
        "the column approximateArrivalTimestamp is always there: remove it": "addRecordTimestamp",
        "the lag is in the progress of the query, as latestOffset: remove it": (
            "emitConsumerLagMetrics"
        ),
        "set includeMetadata = true for the additional columns": "includeHeaders",
        "name the streams with streamName or streamARN, separated by commas": (
            "subscribePattern assign"
        ),
        "set startingPosition to AT_TIMESTAMP and a date, or to JSON with a position per shard": (
            "startingOffsetsByTimestamp startingOffsetsByTimestampStrategy"
        ),
        "set region, and streamName or streamARN": "kafka.bootstrap.servers",
    }
)

ADVICE: Final[Mapping[str, str]] = MappingProxyType(
    {name: advice for advice, names in _NAMES.items() for name in names.split()}
)
"""What to do instead, for each name."""

_BY_LOWER_NAME: Final = MappingProxyType({name.lower(): text for name, text in ADVICE.items()})


def advice_for(name: str) -> str | None:
    """Return what to do instead of setting ``name``, None if no other connector has it."""
    return _BY_LOWER_NAME.get(name.lower())
