"""Resolves the options of a Spark source.

It accepts the keys of the properties dict, with or without their prefix, and the names that other
connectors use, so that their users change one line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final

from kinesis_publishers.config import (
    ANY_AWS_DOMAIN,
    CHECKPOINT_OPTIONS,
    EFO,
    LEASES,
    POLLING,
    AssignmentConfig,
    Assignments,
    AwsConfig,
    CredentialsConfig,
    CredentialsProvider,
    DeregistrationPolicy,
    DiscoveryConfig,
    EndingPositionConfig,
    FanOutConfig,
    InitialPositionConfig,
    LeaseConfig,
    Option,
    PollingConfig,
    ProducerConfig,
    Properties,
    RegistrationConfig,
    RegistrationStrategy,
    Scalar,
    SourceConfig,
    StreamsConfig,
    at_timestamp,
    find_bare_option,
    find_option,
    nearest_key,
    source_of,
    stream_arn_of,
    stream_name_of,
)
from kinesis_publishers.errors import ConfigError, ConfigErrors, InvalidOptionError
from kinesis_publishers_spark.options import SparkConfig

ALLOW_VARIABLE: Final = "KINESIS_PUBLISHERS_ALLOW"
"""The environment variable of the driver that lists permitted values, separated by commas."""

OF_WRITE_STREAM: Final[Mapping[str, str]] = MappingProxyType(
    {
        "checkpointlocation": "checkpointLocation",  # option("checkpointLocation", ...)
        "queryname": "queryName",  # queryName(...); a flow of a declarative pipeline has one, too
    }
)
"""What Spark (4.0 to 4.3) adds to the options of a sink only: the keys as they arrive, and as users
write them."""

# The argument of load(path), save(path) and start(path), and that of load([path, ...]). Spark adds
# nothing else, over Spark Connect and in pipelines neither.
_SPARK_INTERNAL: Final = frozenset({"path", "paths", *OF_WRITE_STREAM})
# The namespaces of awslabs' connector, and of Qubole's after it.
_FOREIGN_PREFIXES: Final = ("kinesis.", "executor.", "client.", "sink.")

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
            (InitialPositionConfig.timestamp.text, "startingTimestamp"),
            (EndingPositionConfig.position, "endingPosition endingOffsets"),
            (EndingPositionConfig.timestamp.text, "endingTimestamp"),
            (SourceConfig.fail_on_data_loss, "failOnDataLoss"),
            (SparkConfig.max_records_per_trigger, "maxRecordsPerTrigger maxOffsetsPerTrigger"),
            (SparkConfig.max_bytes_per_trigger, "maxBytesPerTrigger"),
            (SparkConfig.min_records_per_trigger, "minRecordsPerTrigger minOffsetsPerTrigger"),
            (SparkConfig.max_trigger_delay_seconds, "maxTriggerDelay"),
            (SparkConfig.max_records_per_partition, "maxRecordsPerPartition"),
            (SparkConfig.parallelism, "maxPartitions"),
            (SparkConfig.include_metadata, "includeMetadata"),
            (SparkConfig.include_batch_marker, "includeBatchMarker"),
            (SparkConfig.compression, "compression"),
            (
                ProducerConfig.linger_seconds,
                "recordMaxBufferedTimeMs recordMaxBufferedTime",
            ),
            (ProducerConfig.ttl_seconds, "recordTtl"),
            (ProducerConfig.max_in_flight, "maxConnections"),
            (ProducerConfig.aggregates, "aggregationEnabled"),
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

_NO_SIDE_STORE: Final = "Spark's own checkpoint is the only place for progress: remove it"

ADVICE: Final[Mapping[str, str]] = MappingProxyType(
    {
        name: advice
        for names, advice in {
            (
                "metadataCommitterType metadataPath dynamodb.tableName metadataNumRetries "
                "metadataRetryIntervalsMs metadataMaxRetryIntervalMs minBatchesToRetain "
                "internal.maintenanceTaskIntervalSec"
            ): _NO_SIDE_STORE,
            (
                "maxFetchRecordsPerShard maxFetchTimePerShardSec maxFetchTimeInMs maxFetchDuration "
                "maxFetchRate internal.maxDataQueueEmptyCount internal.dataQueueWaitTimeoutSec"
            ): "a micro-batch takes the records that have arrived and does not wait: remove it, "
            "or limit the size with maxRecordsPerTrigger or maxBytesPerTrigger",
            (
                "checkNewRecordThreads maxShardsPerDescribe consumerRefreshInterval "
                "coalesceThresholdBlockSize coalesceBinSize"
            ): "this source has no such setting: remove it",
            "avoidEmptyBatches internal.avoidEmptyBatches": "Spark plans no micro-batch without "
            "new records: remove it",
            (
                "clientNumRetries clientRetryIntervalsMs clientMaxRetryIntervalMs numRetries "
                "retryIntervalMs maxRetryIntervalMs fetchOffset.numRetries "
                "fetchOffset.retryIntervalMs"
            ): "each API call has its own limits: see kinesis.shard.getrecords.maxretries and its "
            ".backoff.base and .backoff.max",
            "fetchBufferSize": "set kinesis.pending.maxbytes, which limits memory of the driver, "
            "not of the cluster",
            "internal.dataQueueCapacity": "set kinesis.pending.maxrecords, which counts the "
            "records of all shards",
            "addIdleTimeBetweenReads": "set kinesis.shard.getrecords.intervalmillis, the polling "
            "period of a shard",
            "shardsPerTask": "set kinesis.spark.parallelism, the largest number of tasks in a "
            "micro-batch",
            "minPartitions": "set kinesis.spark.maxrecordsperpartition, which divides a large "
            "shard among several tasks",
            "windowSize": "set the interval with writeStream.trigger(processingTime=...)",
            "consumerNamePrefix groupIdPrefix kafka.group.id": "set consumerName to a name that "
            "no other application has",
            "registeredConsumerId registeredConsumerIdType": "set kinesis.stream.efo.registration "
            "= NONE and kinesis.stream.efo.consumerarn.<stream> to the ARN of your consumer",
            "credentialProviderClass credentialProviderParam": "set aws.credentials.provider = "
            "CUSTOM and aws.credentials.provider.custom.class",
            "awsUseInstanceProfile serviceCredential": "credentials come from botocore's default "
            "chain, instance and container roles included; see aws.credentials.provider",
            "classification delimiter schema inferSchema": "the payload is delivered unchanged: "
            "parse the column data with from_json, from_csv or from_avro",
            "addRecordTimestamp": "the source always has the column approximateArrivalTimestamp: "
            "remove it",
            "emitConsumerLagMetrics": "the progress of the query has the lag, as latestOffset: "
            "remove it",
            "flushWaitTimeMs flushWaitTimeMillis": "a micro-batch ends when each record is "
            "acknowledged: remove it",
            "proxyAddress proxyPort proxyUsername proxyPassword": "set HTTPS_PROXY in the "
            "environment of driver and executors",
            "includeHeaders": "set includeMetadata = true for the additional columns",
            "subscribePattern assign": "name the streams with streamName or streamARN, separated "
            "by commas",
            "startingOffsetsByTimestamp startingOffsetsByTimestampStrategy": "set "
            "startingPosition to AT_TIMESTAMP and a date, or to JSON with a position per shard",
            "kafka.bootstrap.servers": "set region, and streamName or streamARN",
        }.items()
        for name in names.split()
    }
)
"""What to do in place of an option of another connector, by its name."""

_OPTION_OF: Final = {name.lower(): option for name, option in ALIASES.items()}
_ADVICE_ON: Final = {name.lower(): text for name, text in ADVICE.items()}


def parse_options(
    options: Mapping[str, Scalar], *, complete: bool = True, allow: Collection[str] = ()
) -> Properties:
    """Parse the options of a Spark source. Spark has lower-cased their keys.

    Raises:
        ConfigErrors: lists every problem. If guarded values match none of the shell patterns
            ``allow`` with which the operator permits them, it lists only these, and nothing is
            loaded.
    """
    assignments = Assignments()
    for key, value in options.items():
        if key.lower() not in _SPARK_INTERNAL:
            _assign(assignments, key, value)
    _add_implied(assignments)
    # Before the rules, because some of them load what a value names.
    if refused := list(_refused(assignments, allow)):
        raise ConfigErrors(refused)
    return Properties.from_assignments(assignments, complete=complete, stream="streamName")


def _refused(assignments: Assignments, allow: Collection[str]) -> Iterator[ConfigError]:
    for one in assignments.found:
        for part in str(one.value).split(","):
            value, guarded = part.strip(), one.option.guarded
            # Not "..", which leads out of the directory of a pattern.
            is_allowed = ".." not in value and any(fnmatchcase(value, each) for each in allow)
            if guarded is not None and re.search(guarded, value) and not is_allowed:
                yield InvalidOptionError(
                    f"{one.written_key}: {value} makes the driver load code, or use its own files "
                    f"or tokens. An option of Spark may do so only if permitted: add {value!r} or "
                    f"a pattern such as 'mine.*' to {ALLOW_VARIABLE} in the driver's environment, "
                    "or to register(spark, allow=[...])"
                )


def _assign(assignments: Assignments, key: str, value: Scalar) -> None:
    foreign = _foreign(key)
    alias = _OPTION_OF.get(foreign)
    option = find_option(key) or find_bare_option(key)
    if alias is not None:
        for target, part in _meaning_of(alias, value):
            assignments.add(target, key, part)
    elif option in LeaseConfig.options() or (
        option is AssignmentConfig.written_assigner and str(value).strip().upper() == LEASES
    ):
        assignments.add_moved(key, "Spark itself assigns shards to its tasks: remove it")
    elif option in CHECKPOINT_OPTIONS:
        assignments.add_moved(key, _NO_SIDE_STORE)
    elif option is not None:
        assignments.add(option, key, value)
    elif (advice := _ADVICE_ON.get(foreign)) is not None:
        assignments.add_moved(key, advice)
    else:
        more = (*ALIASES, *OF_WRITE_STREAM.values())
        assignments.add_unknown(key, nearest_key(key, more=more))


def _foreign(key: str) -> str:
    """Return the name of ``key`` in another connector, in lower case."""
    key = key.lower()
    for prefix in _FOREIGN_PREFIXES:
        key = key.removeprefix(prefix)
    return key


def _add_implied(assignments: Assignments) -> None:
    """Add what ``roleArn`` and ``endpointUrl`` imply in other connectors.

    The role is assumed, and the region is that of an AWS URL.
    """
    given = {found.option.key for found in assignments.found}
    for found in tuple(assignments.found):
        implied: tuple[Option[Any], str] | None = None
        if found.option is AwsConfig.endpoint_url:
            match = re.fullmatch(_REGION_IN_ENDPOINT, str(found.value).strip())
            implied = (AwsConfig.region, match["region"].lower()) if match else None
        elif _OPTION_OF.get(_foreign(found.written_key)) is CredentialsConfig.role_arn:
            implied = (CredentialsConfig.provider_option, CredentialsProvider.ASSUME_ROLE.value)
        if implied is not None and implied[0].key not in given:
            given.add(implied[0].key)
            assignments.add(implied[0], found.written_key, implied[1])


# Other connectors take the region from the URL of an AWS endpoint.
_REGION_IN_ENDPOINT: Final = (
    rf"(?i)https://kinesis(?:-fips)?\.(?P<region>[a-z0-9-]+){ANY_AWS_DOMAIN}/?"
)
_EPOCH_MILLIS: Final = r"[0-9]{13}"

_Assigned = list[tuple["Option[Any]", "Scalar"]]


def _meaning_of(alias: Option[Any], value: Scalar) -> _Assigned:
    """Return the options that ``value``, given under an alias of ``alias``, stands for."""
    if alias is RegistrationConfig.consumer_arn.member:
        return _consumer_arn(value)
    for section in (InitialPositionConfig, EndingPositionConfig):
        if alias is section.timestamp.text:
            return at_timestamp(section, _epoch_seconds(value))
    return [(alias, _WORDS.get(alias.key, {}).get(str(value).strip().lower(), value))]


_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    SourceConfig.record_publisher.key: {"getrecords": POLLING.name, "subscribetoshard": EFO.name},
    RegistrationConfig.deregister.key: {
        "true": DeregistrationPolicy.CREATED.value,
        "false": DeregistrationPolicy.NEVER.value,
    },
}


def _consumer_arn(value: Scalar) -> _Assigned:
    """Read with the consumer that the user has registered; its ARN names the stream."""
    stream_arn = stream_arn_of(str(value).strip())
    if source_of(stream_arn) is None:
        return [(RegistrationConfig.consumer_arn.member, value)]
    return [
        (SourceConfig.record_publisher, EFO.name),
        (RegistrationConfig.strategy, RegistrationStrategy.NONE.value),
        (RegistrationConfig.consumer_arn.of(stream_name_of(stream_arn)), value),
    ]


def _epoch_seconds(value: Scalar) -> Scalar:
    # The source for Kafka has milliseconds under this name.
    text = str(value).strip()
    return f"{int(text) / 1000:.3f}" if re.fullmatch(_EPOCH_MILLIS, text) else value
