"""Settings of the account, of streams and of consumers, and the tags and policies of both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kinesis_publishers.testing.local_kinesis.answers import (
    ApiError,
    invalid_argument,
    limit_exceeded,
    resource_not_found,
    validation,
)
from kinesis_publishers.testing.local_kinesis.requests import Request, missing, mode_in, violation
from kinesis_publishers.testing.local_kinesis.state import Members, Operation, ServiceState
from kinesis_publishers.testing.local_kinesis.stream import METRICS, Consumer, Stream, StreamMode

# The defaults of us-east-1. AWS raises them on request: they are shown, but not enforced.
_MOST_SHARDS, _MOST_ON_DEMAND_STREAMS = 20_000, 50
#: Of a new on-demand stream, of which each takes 1 MiB/s.
ON_DEMAND_SHARDS = 4
_MOST_WARM_MIBPS = 10 * 1024
_MOST_TAGS = 50


def describe_limits(state: ServiceState, _: Request) -> Members:
    state.take_control_call("DescribeLimits", state.limits.describe_limits_calls_per_second)
    streams = state.all_streams()
    provisioned = [len(one.open_shards) for one in streams if one.mode == "PROVISIONED"]
    return {
        "ShardLimit": _MOST_SHARDS,
        "OpenShardCount": sum(provisioned),
        "OnDemandStreamCount": len(streams) - len(provisioned),
        "OnDemandStreamCountLimit": _MOST_ON_DEMAND_STREAMS,
    }


def account_settings(state: ServiceState, _: Request) -> Members:
    return {"MinimumThroughputBillingCommitment": state.commitment.shape(state.now_ms())}


def update_account_settings(state: ServiceState, request: Request) -> Members:
    wanted = request.required_section("MinimumThroughputBillingCommitment")
    enabled = wanted.choice("Status", ("ENABLED", "DISABLED")) == "ENABLED"
    state.commitment.change(enabled=enabled, now_ms=state.now_ms())
    return account_settings(state, request)


def update_mode(state: ServiceState, request: Request) -> None:
    request.required_text("StreamARN")
    mode = mode_in(request.required_section("StreamModeDetails"))
    warm_mibps = warm_throughput_in(state, request, mode)
    stream = state.find_active(request)
    # A provisioned stream has no strategy.
    is_auto = stream.is_auto_distributed and mode == "ON_DEMAND"
    state.set_later(stream, mode=mode, warm_mibps=warm_mibps, is_auto_distributed=is_auto)


def warm_throughput_in(state: ServiceState, request: Request, mode: StreamMode) -> int | None:
    """Return the warm throughput that a request asks for; refuse it where there is none."""
    mibps = request.integer("WarmThroughputMiBps", 0, 1 << 31)
    if mibps is not None and (mode != "ON_DEMAND" or not state.commitment.is_on(state.now_ms())):
        raise validation(
            "WarmThroughputMiBps is for ON_DEMAND streams of an account that has enabled "
            "MinimumThroughputBillingCommitment."
        )
    if mibps is not None and mibps > _MOST_WARM_MIBPS:
        raise limit_exceeded(f"A stream cannot scale to more than {_MOST_WARM_MIBPS} MiB/s.")
    return mibps


def update_warm_throughput(state: ServiceState, request: Request) -> Members:
    stream = state.find_active(request)
    target = warm_throughput_in(state, request, stream.mode)
    if target is None:
        raise missing("WarmThroughputMiBps")
    state.set_later(stream, warm_mibps=target)
    throughput = {"TargetMiBps": target, "CurrentMiBps": stream.warm_mibps or ON_DEMAND_SHARDS}
    return _named(stream) | {"WarmThroughput": throughput}


def change_encryption(state: ServiceState, request: Request, *, starts: bool) -> None:
    if request.choice("EncryptionType", ("NONE", "KMS")) != "KMS":
        raise invalid_argument("The only valid EncryptionType is KMS.")
    key_id = request.required_text("KeyId")
    state.set_later(state.find_active(request), key_id=key_id if starts else None)


def change_monitoring(state: ServiceState, request: Request, *, enables: bool) -> Members:
    named, valid = request.items("ShardLevelMetrics"), (*METRICS, "ALL")
    if not 1 <= len(named) <= len(METRICS) or not all(one in valid for one in named):
        constraint = f"1 to {len(METRICS)} members that satisfy enum value set: {valid}"
        raise violation("ShardLevelMetrics", named, constraint)
    stream = state.find_active(request)
    before, chosen = stream.metrics, METRICS if "ALL" in named else named
    after = tuple(one for one in METRICS if (enables if one in chosen else one in before))
    state.set_later(stream, metrics=after)
    return _named(stream) | {"CurrentShardLevelMetrics": before, "DesiredShardLevelMetrics": after}


def _named(stream: Stream) -> dict[str, object]:
    return {"StreamName": stream.name, "StreamARN": stream.arn}


Find = Callable[[ServiceState, Request], Stream | Consumer]


def add_tags(state: ServiceState, request: Request, *, find: Find) -> None:
    if not request.has("Tags"):
        raise missing("Tags")
    tags, tagged = request.tags(), find(state, request)
    if len(tagged.tags | tags) > _MOST_TAGS:
        raise invalid_argument(
            f"Failed to add tags to {tagged.name} under account {state.behaviour.account_id} "
            f"because it cannot have more than {_MOST_TAGS} tags associated with it."
        )
    tagged.tags.update(tags)


def remove_tags(state: ServiceState, request: Request, *, find: Find) -> None:
    keys, tagged = request.items("TagKeys"), find(state, request)
    for key in keys:
        tagged.tags.pop(str(key), None)


def list_stream_tags(state: ServiceState, request: Request) -> Members:
    limit = request.integer("Limit", 1, 50) or 50
    after = request.text("ExclusiveStartTagKey") or ""
    tags = [one for one in _tags_of(state.find(request)) if one["Key"] > after]
    return {"Tags": tags[:limit], "HasMoreTags": len(tags) > limit}


def list_tags(state: ServiceState, request: Request) -> Members:
    return {"Tags": _tags_of(state.resource_in(request))}


def _tags_of(tagged: Stream | Consumer) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in sorted(tagged.tags.items())]


def put_policy(state: ServiceState, request: Request) -> None:
    policy = request.required_text("Policy")
    try:
        Request.parse(policy.encode())
    except ApiError as error:
        raise invalid_argument("The Policy is not a JSON object.") from error
    state.resource_in(request).policy = policy


def get_policy(state: ServiceState, request: Request) -> Members:
    return {"Policy": state.resource_in(request).policy or "{}"}


def delete_policy(state: ServiceState, request: Request) -> None:
    resource = state.resource_in(request)
    if resource.policy is None:
        raise resource_not_found(f"No resource policy found for resource ARN {resource.arn}.")
    resource.policy = None


def _limited(operation: str, run: Operation, state: ServiceState, request: Request) -> Members:
    state.take_control_call(operation, state.limits.settings_calls_per_second)
    return run(state, request)


_of_stream, _of_resource = ServiceState.find, ServiceState.resource_in
_SETTINGS: dict[str, Operation] = {
    "DescribeAccountSettings": account_settings,
    "UpdateAccountSettings": update_account_settings,
    "UpdateStreamMode": update_mode,
    "UpdateStreamWarmThroughput": update_warm_throughput,
    "StartStreamEncryption": partial(change_encryption, starts=True),
    "StopStreamEncryption": partial(change_encryption, starts=False),
    "EnableEnhancedMonitoring": partial(change_monitoring, enables=True),
    "DisableEnhancedMonitoring": partial(change_monitoring, enables=False),
    "AddTagsToStream": partial(add_tags, find=_of_stream),
    "RemoveTagsFromStream": partial(remove_tags, find=_of_stream),
    "ListTagsForStream": list_stream_tags,
    "TagResource": partial(add_tags, find=_of_resource),
    "UntagResource": partial(remove_tags, find=_of_resource),
    "ListTagsForResource": list_tags,
    "PutResourcePolicy": put_policy,
    "GetResourcePolicy": get_policy,
    "DeleteResourcePolicy": delete_policy,
}

OPERATIONS: dict[str, Operation] = {
    "DescribeLimits": describe_limits,
    **{name: partial(_limited, name, run) for name, run in _SETTINGS.items()},
}
