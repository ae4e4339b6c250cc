"""The names that other connectors have for our options, and what each of their values means."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kinesis_publishers.config.choices import (
    DeregistrationPolicy,
    EndingPosition,
    InitialPosition,
    RegistrationStrategy,
)
from kinesis_publishers.config.options import (
    aws,
    discovery,
    ending,
    fanout,
    polling,
    publisher,
    registration,
    retries,
    spark,
)
from kinesis_publishers.config.starting_positions import starting_position

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kinesis_publishers.config.option import Option
    from kinesis_publishers.config.parsers import Scalar

__all__ = ["ALIASES", "REGION_IN_ENDPOINT", "assignments_of"]

ALIASES: Final[Mapping[str, Option[Any]]] = MappingProxyType(
    {
        "streamName": publisher.STREAMS,
        "streamARN": publisher.STREAMS,
        "subscribe": publisher.STREAMS,
        "region": aws.REGION,
        "kinesisRegion": aws.REGION,
        "endpointUrl": aws.ENDPOINT,
        "endpoint": aws.ENDPOINT,
        "consumerType": publisher.RECORD_PUBLISHER,
        "consumerMode": publisher.RECORD_PUBLISHER,
        "consumerName": registration.CONSUMER_NAME,
        "fanoutConsumerARN": registration.CONSUMER_ARN.member,
        "requireConsumerDeregistration": registration.DEREGISTER,
        "startingPosition": publisher.INITIAL_POSITION,
        "initialPosition": publisher.INITIAL_POSITION,
        "startingOffsets": publisher.INITIAL_POSITION,
        "startingTimestamp": publisher.INITIAL_TIMESTAMP,
        "endingPosition": ending.ENDING_POSITION,
        "endingOffsets": ending.ENDING_POSITION,
        "endingTimestamp": ending.ENDING_TIMESTAMP,
        "failOnDataLoss": publisher.FAIL_ON_DATA_LOSS,
        "maxRecordsPerTrigger": spark.MAX_RECORDS_PER_TRIGGER,
        "maxOffsetsPerTrigger": spark.MAX_RECORDS_PER_TRIGGER,
        "maxBytesPerTrigger": spark.MAX_BYTES_PER_TRIGGER,
        "maxPartitions": spark.PARALLELISM,
        "includeMetadata": spark.INCLUDE_METADATA,
        "describeShardInterval": discovery.DISCOVERY_INTERVAL,
        "shardFetchInterval": discovery.DISCOVERY_INTERVAL,
        "getRecords.numberOfRecordsPerFetch": polling.MAX_RECORDS,
        "maxRecordPerRead": polling.MAX_RECORDS,
        "maxRecordsPerFetch": polling.MAX_RECORDS,
        "getRecords.fetchIntervalMs": polling.INTERVAL,
        "idleTimeBetweenReadsInMs": polling.INTERVAL,
        "minFetchPeriod": polling.INTERVAL,
        "subscribeToShard.timeoutSec": fanout.SUBSCRIBE_TIMEOUT,
        "subscribeToShard.maxRetries": retries.SUBSCRIBE_TO_SHARD.max_retries,
        "roleArn": aws.ROLE_ARN,
        "stsRoleArn": aws.ROLE_ARN,
        "awsSTSRoleARN": aws.ROLE_ARN,
        "roleExternalId": aws.ROLE_EXTERNAL_ID,
        "roleSessionName": aws.ROLE_SESSION_NAME,
        "stsSessionName": aws.ROLE_SESSION_NAME,
        "awsSTSSessionName": aws.ROLE_SESSION_NAME,
        "stsEndpoint": aws.ROLE_STS_ENDPOINT,
        "stsEndpointUrl": aws.ROLE_STS_ENDPOINT,
        "awsSTSEndpoint": aws.ROLE_STS_ENDPOINT,
        "awsAccessKeyId": aws.ACCESS_KEY_ID,
        "awsAccessKey": aws.ACCESS_KEY_ID,
        "awsSecretKey": aws.SECRET_KEY,
        "sessionToken": aws.SESSION_TOKEN,
    }
)
"""The option that each name of another connector stands for."""

#: The region in the URL of an endpoint of AWS's own, from which other connectors take it.
REGION_IN_ENDPOINT: Final = re.compile(
    r"https://kinesis(?:-fips)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/?", re.IGNORECASE
)
_EPOCH_MILLIS: Final = re.compile(r"[0-9]{13}")
_CONSUMER_STREAM: Final = re.compile(r":stream/(?P<stream>[a-zA-Z0-9_.-]+)/consumer/")

_Assigned = list[tuple["Option[Any]", "Scalar"]]


def assignments_of(alias: Option[Any], value: Scalar) -> _Assigned:
    """Return the options that ``value``, given under an alias of ``alias``, stands for."""
    expand = _EXPANSIONS.get(alias.key)
    return expand(value) if expand else [(alias, value)]


def _consumer_type(value: Scalar) -> _Assigned:
    names = {"getrecords": "POLLING", "subscribetoshard": "EFO"}
    return [(publisher.RECORD_PUBLISHER, names.get(str(value).strip().lower(), value))]


def _deregistration(value: Scalar) -> _Assigned:
    policies = {"true": DeregistrationPolicy.CREATED, "false": DeregistrationPolicy.NEVER}
    policy = policies.get(str(value).strip().lower())
    return [(registration.DEREGISTER, policy.value if policy else value)]


def _consumer_arn(value: Scalar) -> _Assigned:
    """Read with the consumer that the user has registered; its ARN names the stream."""
    match = _CONSUMER_STREAM.search(str(value))
    if match is None:
        return [(registration.CONSUMER_ARN.member, value)]
    return [
        (publisher.RECORD_PUBLISHER, "EFO"),
        (registration.REGISTRATION, RegistrationStrategy.NONE.value),
        (registration.CONSUMER_ARN.of(match["stream"]), value),
    ]


_ENDINGS: Final[Mapping[str, Option[Any]]] = MappingProxyType(
    {
        publisher.INITIAL_POSITION.key: ending.ENDING_POSITION,
        publisher.INITIAL_TIMESTAMP.key: ending.ENDING_TIMESTAMP,
        publisher.INITIAL_TIMESTAMP_FORMAT.key: ending.ENDING_TIMESTAMP_FORMAT,
        publisher.INITIAL_SHARD_POSITIONS.key: ending.ENDING_SHARD_POSITIONS,
    }
)


def _ending_position(value: Scalar) -> _Assigned:
    if str(value).strip().upper() == "EARLIEST":
        return [(ending.ENDING_POSITION, value)]  # refused, in the word that the user wrote
    return [(_ENDINGS[option.key], part) for option, part in starting_position(value)]


def _starting_timestamp(value: Scalar) -> _Assigned:
    return [
        (publisher.INITIAL_POSITION, InitialPosition.AT_TIMESTAMP.value),
        (publisher.INITIAL_TIMESTAMP, _epoch_seconds(value)),
    ]


def _ending_timestamp(value: Scalar) -> _Assigned:
    return [
        (ending.ENDING_POSITION, EndingPosition.AT_TIMESTAMP.value),
        (ending.ENDING_TIMESTAMP, _epoch_seconds(value)),
    ]


def _epoch_seconds(value: Scalar) -> Scalar:
    # The source for Kafka has milliseconds under this name.
    text = str(value).strip()
    return f"{int(text) / 1000:.3f}" if _EPOCH_MILLIS.fullmatch(text) else value


_EXPANSIONS: Final[Mapping[str, Callable[[Scalar], _Assigned]]] = MappingProxyType(
    {
        publisher.RECORD_PUBLISHER.key: _consumer_type,
        publisher.INITIAL_POSITION.key: starting_position,
        publisher.INITIAL_TIMESTAMP.key: _starting_timestamp,
        ending.ENDING_POSITION.key: _ending_position,
        ending.ENDING_TIMESTAMP.key: _ending_timestamp,
        registration.DEREGISTER.key: _deregistration,
        registration.CONSUMER_ARN.member.key: _consumer_arn,
    }
)
