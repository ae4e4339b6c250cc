"""ListShards with its filters, and how shards split, merge and scale."""

from __future__ import annotations

from kinesis_publishers.testing.local_kinesis.answers import (
    invalid_argument,
    limit_exceeded,
    validation,
)
from kinesis_publishers.testing.local_kinesis.requests import ListToken, Request
from kinesis_publishers.testing.local_kinesis.shard import Shard, even_ranges
from kinesis_publishers.testing.local_kinesis.state import Members, Operation, ServiceState
from kinesis_publishers.testing.local_kinesis.stream import Stream, shard_shape

_MAX_SHARDS = 100_000


def split(state: ServiceState, request: Request) -> None:
    hash_key = request.decimal("NewStartingHashKey")
    stream = _provisioned_stream(state, request)
    shard = stream.shard(request.required_text("ShardToSplit"), state.now_ms())
    check_split(stream, shard, hash_key)
    state.change(stream, lambda due_ms: split_shard(stream, shard, hash_key, due_ms))


def merge(state: ServiceState, request: Request) -> None:
    stream = _provisioned_stream(state, request)
    shard = stream.shard(request.required_text("ShardToMerge"), state.now_ms())
    adjacent = stream.shard(request.required_text("AdjacentShardToMerge"), state.now_ms())
    check_merge(stream, shard, adjacent)
    state.change(stream, lambda due_ms: merge_shards(stream, shard, adjacent, due_ms))


def update_shard_count(state: ServiceState, request: Request) -> Members:
    target = request.required_integer("TargetShardCount", 1, _MAX_SHARDS)
    request.choice("ScalingType", ("UNIFORM_SCALING",))
    stream = _provisioned_stream(state, request)
    current = len(stream.open_shards)
    _check_factor(state, current, target)
    state.change(stream, lambda due_ms: scale_shards(stream, target, due_ms))
    return {
        "StreamName": stream.name,
        "CurrentShardCount": current,
        "TargetShardCount": target,
        "StreamARN": stream.arn,
    }


def _provisioned_stream(state: ServiceState, request: Request) -> Stream:
    stream = state.find_active(request)
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


def split_shard(stream: Stream, shard: Shard, hash_key: int, now_ms: int) -> tuple[Shard, Shard]:
    """Close ``shard`` and open its two children; the second begins at ``hash_key``."""
    second = stream.creation_seconds.next(now_ms)
    parents = (shard.shard_id,)
    lower = stream.add_shard(second, (shard.first_hash_key, hash_key - 1), now_ms, parents)
    upper = stream.add_shard(second, (hash_key, shard.last_hash_key), now_ms, parents)
    shard.close(now_ms, (lower.shard_id, upper.shard_id))
    stream.index_open_shards()
    return lower, upper


def merge_shards(stream: Stream, shard: Shard, adjacent: Shard, now_ms: int) -> Shard:
    """Close both shards and open their one child."""
    hash_keys = (
        min(shard.first_hash_key, adjacent.first_hash_key),
        max(shard.last_hash_key, adjacent.last_hash_key),
    )
    second = stream.creation_seconds.next(now_ms)
    parents = (shard.shard_id, adjacent.shard_id)
    child = stream.add_shard(second, hash_keys, now_ms, parents)
    shard.close(now_ms, (child.shard_id,))
    adjacent.close(now_ms, (child.shard_id,))
    stream.index_open_shards()
    return child


def scale_shards(stream: Stream, count: int, now_ms: int) -> None:
    """Reach ``count`` equal shards by splits and merges, as UNIFORM_SCALING does.

    Every new boundary is split in, then what lies between two new boundaries is merged: a count
    that is no multiple leaves closed, empty shards in the lineage, as AWS does.
    """
    ranges = even_ranges(count)
    for first, _ in ranges:
        shard = stream.route(first)
        if shard.first_hash_key != first:
            split_shard(stream, shard, first, now_ms)
    for first, last in ranges:
        merged = stream.route(first)
        while merged.last_hash_key < last:
            adjacent = stream.route(merged.last_hash_key + 1)
            merged = merge_shards(stream, merged, adjacent, now_ms)


def check_split(stream: Stream, shard: Shard, hash_key: int) -> None:
    """Raise InvalidArgumentException unless ``shard`` can be split at ``hash_key``."""
    _check_open(stream, shard)
    if not shard.first_hash_key + 1 < hash_key < shard.last_hash_key:
        raise invalid_argument(
            f"NewStartingHashKey {hash_key} used in SplitShard() on shard {shard.shard_id} in "
            f"stream {stream.name} under account {stream.account_id} is not both greater than one "
            f"plus the shard's StartingHashKey {shard.first_hash_key} and less than the shard's "
            f"EndingHashKey {shard.last_hash_key}."
        )


def check_merge(stream: Stream, shard: Shard, adjacent: Shard) -> None:
    """Raise InvalidArgumentException unless the two are open neighbours."""
    _check_open(stream, shard)
    _check_open(stream, adjacent)
    if (
        shard.last_hash_key + 1 != adjacent.first_hash_key
        and adjacent.last_hash_key + 1 != shard.first_hash_key
    ):
        raise invalid_argument(
            f"Shards {shard.shard_id} and {adjacent.shard_id} in stream {stream.name} under "
            f"account {stream.account_id} are not an adjacent pair of shards eligible for merging"
        )


def _check_open(stream: Stream, shard: Shard) -> None:
    if not shard.is_open:
        raise invalid_argument(
            f"Shard {shard.shard_id} in stream {stream.name} under account {stream.account_id} has "
            "already been merged or split, and thus is not eligible for merging or splitting."
        )


_FILTER_TYPES = (
    "AFTER_SHARD_ID",
    "AT_TRIM_HORIZON",
    "FROM_TRIM_HORIZON",
    "AT_LATEST",
    "AT_TIMESTAMP",
    "FROM_TIMESTAMP",
)
_EXCLUDED_BY_TOKEN = ("StreamName", "StreamARN", "StreamCreationTimestamp", "ExclusiveStartShardId")


def list_shards(state: ServiceState, request: Request) -> Members:
    state.take_control_call("ListShards", state.limits.list_shards_calls_per_second)
    start = _start_of(state, request)
    stream = _listable_stream(state, start)
    now_ms = state.now_ms()
    shard_filter = Request(start.shard_filter) if start.shard_filter is not None else None
    shards = [
        shard
        for shard in _filtered(stream, shard_filter, now_ms)
        if shard.shard_id > start.after_shard_id
    ]
    page_size = request.page_size("MaxResults", 10_000, state.limits.list_shards_max_results)
    page = shards if page_size is None else shards[:page_size]
    answer: dict[str, object] = {"Shards": [shard_shape(shard) for shard in page]}
    if len(page) < len(shards):
        answer["NextToken"] = ListToken(
            stream.name, stream.created_ms, page[-1].shard_id, start.shard_filter, now_ms
        ).encode()
    return answer


def _start_of(state: ServiceState, request: Request) -> ListToken:
    """Return where the page begins; a first page is expressed as a token, too."""
    text = request.text("NextToken")
    if text is None:
        shard_filter = request.section("ShardFilter")
        stream = state.find(request)
        state.check_creation(stream, request.instant_ms("StreamCreationTimestamp"))
        return ListToken(
            stream.name,
            stream.created_ms,
            request.text("ExclusiveStartShardId") or "",
            dict(shard_filter.fields) if shard_filter is not None else None,
            state.now_ms(),
        )
    for name in _EXCLUDED_BY_TOKEN:
        if request.has(name):
            raise invalid_argument(f"NextToken and {name} cannot be provided together.")
    token = ListToken.decode(text)
    state.check_token(token.created_ms, state.limits.list_shards_token_lifetime_seconds)
    return token


def _listable_stream(state: ServiceState, start: ListToken) -> Stream:
    stream = state.find(start.stream_name)
    if stream.created_ms != start.stream_created_ms:
        raise state.not_found(start.stream_name)
    return state.find_active(start.stream_name, "UPDATING")


def _filtered(stream: Stream, shard_filter: Request | None, now_ms: int) -> list[Shard]:
    shards = stream.retained_shards(now_ms)
    if shard_filter is None:
        return shards
    kind = shard_filter.choice("Type", _FILTER_TYPES)
    if kind == "AFTER_SHARD_ID":
        after = shard_filter.required_text("ShardId")
        return [shard for shard in shards if shard.shard_id > after]
    if kind == "AT_TRIM_HORIZON":
        # Open at the horizon are exactly those whose parents are no longer retained.
        retained = {shard.shard_id for shard in shards}
        return [shard for shard in shards if retained.isdisjoint(shard.parent_ids)]
    if kind == "AT_LATEST":
        return [shard for shard in shards if shard.is_open]
    if kind == "FROM_TRIM_HORIZON":
        return shards
    instant_ms = shard_filter.required_instant_ms("Timestamp")
    if instant_ms > now_ms:
        raise invalid_argument("The Timestamp of the ShardFilter cannot be in the future.")
    ending_later = [
        shard for shard in shards if shard.closed_ms is None or shard.closed_ms >= instant_ms
    ]
    if kind == "FROM_TIMESTAMP":
        return ending_later
    return [shard for shard in ending_later if shard.opened_ms <= instant_ms]


OPERATIONS: dict[str, Operation] = {
    "SplitShard": split,
    "MergeShards": merge,
    "UpdateShardCount": update_shard_count,
    "ListShards": list_shards,
}
