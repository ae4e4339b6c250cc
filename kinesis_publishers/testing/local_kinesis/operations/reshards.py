"""SplitShard, MergeShards and UpdateShardCount."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.testing.local_kinesis.errors import (
    invalid_argument,
    limit_exceeded,
    validation,
)
from kinesis_publishers.testing.local_kinesis.resharding import (
    check_merge,
    check_split,
    merge_shards,
    scale_shards,
    split_shard,
)

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.operations.types import Members, Operation
    from kinesis_publishers.testing.local_kinesis.requests import Request
    from kinesis_publishers.testing.local_kinesis.state import ServiceState
    from kinesis_publishers.testing.local_kinesis.stream import Stream

__all__ = ["OPERATIONS"]

_MAX_SHARDS = 100_000


def split(state: ServiceState, request: Request) -> Members:
    hash_key = request.decimal("NewStartingHashKey")
    stream = _provisioned_stream(state, request)
    shard = stream.shard(request.required_text("ShardToSplit"), state.now_ms())
    check_split(stream, shard, hash_key)
    state.account.change(stream, lambda due_ms: split_shard(stream, shard, hash_key, due_ms))
    return None


def merge(state: ServiceState, request: Request) -> Members:
    stream = _provisioned_stream(state, request)
    shard = stream.shard(request.required_text("ShardToMerge"), state.now_ms())
    adjacent = stream.shard(request.required_text("AdjacentShardToMerge"), state.now_ms())
    check_merge(stream, shard, adjacent)
    state.account.change(stream, lambda due_ms: merge_shards(stream, shard, adjacent, due_ms))
    return None


def update_shard_count(state: ServiceState, request: Request) -> Members:
    target = request.required_integer("TargetShardCount", 1, _MAX_SHARDS)
    request.choice("ScalingType", ("UNIFORM_SCALING",))
    stream = _provisioned_stream(state, request)
    current = len(stream.open_shards)
    _check_factor(state, current, target)
    state.account.change(stream, lambda due_ms: scale_shards(stream, target, due_ms))
    return {
        "StreamName": stream.name,
        "CurrentShardCount": current,
        "TargetShardCount": target,
        "StreamARN": stream.arn,
    }


def _provisioned_stream(state: ServiceState, request: Request) -> Stream:
    stream = state.active_stream_in(request)
    if stream.mode == "ON_DEMAND":
        raise validation(
            f"Stream {stream.name} under account {stream.account_id} is in ON_DEMAND mode: its "
            "shards cannot be changed."
        )
    return stream


def _check_factor(state: ServiceState, current: int, target: int) -> None:
    factor = state.limits.update_shard_count_factor
    if factor is None:
        return
    if target > current * factor:
        raise limit_exceeded(
            "UpdateShardCount cannot scale up over double your current open shard count. Current "
            f"open shard count: {current} Target shard count: {target}"
        )
    if target * factor < current:
        raise invalid_argument(
            "UpdateShardCount cannot scale down below half your current open shard count. Current "
            f"open shard count: {current} Target shard count: {target}"
        )


OPERATIONS: dict[str, Operation] = {
    "SplitShard": split,
    "MergeShards": merge,
    "UpdateShardCount": update_shard_count,
}
