"""Creating, describing, listing and deleting streams, and changing their limits."""

from __future__ import annotations

from functools import partial
from itertools import islice

from kinesis_publishers.testing.local_kinesis.answers import (
    invalid_argument,
    resource_in_use,
    validation,
)
from kinesis_publishers.testing.local_kinesis.operations.settings import (
    ON_DEMAND_SHARDS,
    warm_throughput_in,
)
from kinesis_publishers.testing.local_kinesis.requests import Request, missing, mode_in
from kinesis_publishers.testing.local_kinesis.state import Members, Operation, ServiceState
from kinesis_publishers.testing.local_kinesis.stream import Stream, StreamMode, shard_shape

_MAX_SHARDS = 100_000
# A larger Limit is accepted and not honoured (API reference).
_MOST_PER_PAGE = 100
_RETENTION_HOURS = (24, 8760)
_LARGEST_RECORD_KIB = 10_240
_STRATEGY = "RecordDistributionStrategy"
_STRATEGIES = ("USER_PARTITION_KEY", "AUTO")


def create_stream(state: ServiceState, request: Request) -> None:
    name = request.name("StreamName")
    mode = mode_in(request.section("StreamModeDetails"))
    count = request.integer("ShardCount", 1, _MAX_SHARDS)
    if mode == "ON_DEMAND":
        if count is not None:
            raise validation("ShardCount must not be set for an ON_DEMAND stream.")
        count = ON_DEMAND_SHARDS
    if count is None:
        raise missing("ShardCount")
    tags = request.tags()
    max_record_kib = request.integer("MaxRecordSizeInKiB", 1024, _LARGEST_RECORD_KIB)
    warm_mibps = warm_throughput_in(state, request, mode)
    is_auto = request.has(_STRATEGY) and _is_auto(request, mode)
    stream = state.create(name, mode, count, max_record_kib)
    stream.is_auto_distributed = is_auto
    stream.tags.update(tags)
    stream.warm_mibps = warm_mibps


def delete_stream(state: ServiceState, request: Request) -> None:
    enforced = request.flag("EnforceConsumerDeletion")
    stream = state.find_active(request)
    consumers = stream.present_consumers(state.now_ms())
    if consumers and not enforced:
        raise resource_in_use(
            f"Stream {stream.name} under account {stream.account_id} has {len(consumers)} "
            "registered consumers; EnforceConsumerDeletion deletes them, too."
        )
    state.delete(stream)


def describe_stream(state: ServiceState, request: Request) -> Members:
    state.take_control_call("DescribeStream", state.limits.describe_stream_calls_per_second)
    stream = state.find(request)
    limit = request.page_size("Limit", 10_000, _MOST_PER_PAGE) or _MOST_PER_PAGE
    after = request.text("ExclusiveStartShardId") or ""
    status = stream.status(state.now_ms())
    retained = [] if status == "CREATING" else stream.retained_shards(state.now_ms())
    shards = [shard for shard in retained if shard.shard_id > after]
    description = _description(state, stream) | {
        "Shards": [shard_shape(shard) for shard in shards[:limit]],
        "HasMoreShards": len(shards) > limit,
    }
    return {"StreamDescription": description}


def describe_stream_summary(state: ServiceState, request: Request) -> Members:
    state.take_control_call(
        "DescribeStreamSummary", state.limits.describe_stream_summary_calls_per_second
    )
    stream = state.find(request)
    summary = _description(state, stream) | {
        "OpenShardCount": len(stream.open_shards),
        "ConsumerCount": len(stream.present_consumers(state.now_ms())),
        "MaxRecordSizeInKiB": _max_record_kib(state, stream),
    }
    if stream.mode == "ON_DEMAND" and state.commitment.is_on(state.now_ms()):
        warm = stream.warm_mibps or ON_DEMAND_SHARDS
        summary["WarmThroughput"] = {"TargetMiBps": warm, "CurrentMiBps": warm}
    if stream.mode == "ON_DEMAND":
        summary[_STRATEGY] = _STRATEGIES[stream.is_auto_distributed]
    return {"StreamDescriptionSummary": summary}


def list_streams(state: ServiceState, request: Request) -> Members:
    state.take_control_call("ListStreams", state.limits.list_streams_calls_per_second)
    limit = request.page_size("Limit", 10_000, _MOST_PER_PAGE) or _MOST_PER_PAGE
    # The token is the last name of the page: ListStreams needs nothing else to continue.
    after = request.text("NextToken") or request.text("ExclusiveStartStreamName") or ""
    matching = (stream for stream in state.all_streams() if stream.name > after)
    page = list(islice(matching, limit + 1))
    has_more = len(page) > limit
    page = page[:limit]
    answer: dict[str, object] = {
        "StreamNames": [stream.name for stream in page],
        "HasMoreStreams": has_more,
        "StreamSummaries": [_summary(state, stream) for stream in page],
    }
    if has_more:
        answer["NextToken"] = page[-1].name
    return answer


def _max_record_kib(state: ServiceState, stream: Stream) -> int:
    most = state.limits.record_max_bytes
    return _LARGEST_RECORD_KIB if most is None else stream.max_record_kib or most // 1024


def _summary(state: ServiceState, stream: Stream) -> dict[str, object]:
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": stream.status(state.now_ms()),
        "StreamModeDetails": {"StreamMode": stream.mode},
        "StreamCreationTimestamp": stream.created_ms / 1000,
    }


def _description(state: ServiceState, stream: Stream) -> dict[str, object]:
    return _summary(state, stream) | {
        "RetentionPeriodHours": stream.retention_hours,
        "EnhancedMonitoring": [{"ShardLevelMetrics": stream.metrics}],
        "EncryptionType": "NONE" if stream.key_id is None else "KMS",
        "KeyId": stream.key_id,
    }


def change_retention(state: ServiceState, request: Request, *, longer: bool) -> None:
    hours = request.required_integer("RetentionPeriodHours", 1, 1 << 31)
    shortest, longest = _RETENTION_HOURS
    if not shortest <= hours <= longest:
        raise invalid_argument(
            f"The retention period must be between {shortest} and {longest} hours. Requested "
            f"retention period ({hours} hours)."
        )
    stream = state.find_active(request)
    existing = stream.retention_hours
    if hours < existing if longer else hours > existing:
        refused, other = ("shorter", "Decrease") if longer else ("longer", "Increase")
        raise invalid_argument(
            f"Requested retention period ({hours} hours) for stream {stream.name} can not be "
            f"{refused} than existing retention period ({existing} hours). Use "
            f"{other}RetentionPeriod API."
        )
    state.set_later(stream, retention_hours=hours)


def change_record_size(state: ServiceState, request: Request) -> None:
    kib = request.required_integer("MaxRecordSizeInKiB", 1024, _LARGEST_RECORD_KIB)
    state.set_later(state.find_active(request), max_record_kib=kib)


def change_distribution(state: ServiceState, request: Request) -> None:
    """Take effect at once, without an UPDATING stream (developer guide)."""
    request.required_text("StreamARN")
    stream = state.find_active(request)
    stream.is_auto_distributed = _is_auto(request, stream.mode)


def _is_auto(request: Request, mode: StreamMode) -> bool:
    strategy = request.choice(_STRATEGY, _STRATEGIES)
    if mode != "ON_DEMAND":
        raise invalid_argument(f"{_STRATEGY} {strategy} is for ON_DEMAND streams only.")
    return strategy == "AUTO"


OPERATIONS: dict[str, Operation] = {
    "CreateStream": create_stream,
    "DeleteStream": delete_stream,
    "DescribeStream": describe_stream,
    "DescribeStreamSummary": describe_stream_summary,
    "ListStreams": list_streams,
    "IncreaseStreamRetentionPeriod": partial(change_retention, longer=True),
    "DecreaseStreamRetentionPeriod": partial(change_retention, longer=False),
    "UpdateMaxRecordSize": change_record_size,
    "UpdateStreamRecordDistributionStrategy": change_distribution,
}
