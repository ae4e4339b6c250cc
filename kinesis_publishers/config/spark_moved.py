"""Options of other connectors that have no counterpart here, and what to do instead."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ADVICE", "NO_SIDE_STORE", "advice_for"]

NO_SIDE_STORE: Final = "progress is in Spark's own checkpoint and nowhere else: remove it"
_ENDS_AT_THE_TIP: Final = (
    "a micro-batch ends with what has arrived and waits for nothing: remove it, or limit the size "
    "with maxRecordsPerTrigger or maxBytesPerTrigger"
)
_NOTHING_TO_SET: Final = "there is nothing of the kind to set here: remove it"
_RETRIES: Final = (
    "each API call has its own: see kinesis.shard.getrecords.maxretries and its .backoff.base and "
    ".backoff.max"
)
_PARSE_IN_SPARK: Final = (
    "the payload comes through as it is: read the column data with from_json, from_csv or from_avro"
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
        "no micro-batch is made while there is nothing new: remove it": (
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
        "set kinesis.shard.getrecords.intervalmillis, the period in which a shard is asked": (
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
