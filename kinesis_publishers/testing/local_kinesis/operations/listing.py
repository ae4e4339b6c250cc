"""ListShards: pages, tokens and filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.testing.local_kinesis.errors import (
    invalid_argument,
)
from kinesis_publishers.testing.local_kinesis.operations.shapes import shard_shape
from kinesis_publishers.testing.local_kinesis.requests import Request, missing
from kinesis_publishers.testing.local_kinesis.tokens import ListToken

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.operations.types import Members, Operation
    from kinesis_publishers.testing.local_kinesis.shard import Shard
    from kinesis_publishers.testing.local_kinesis.state import ServiceState
    from kinesis_publishers.testing.local_kinesis.stream import Stream

__all__ = ["OPERATIONS"]

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
        stream = state.stream_in(request)
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
    stream = state.account.find(start.stream_name)
    if stream.created_ms != start.stream_created_ms:
        raise state.account.not_found(start.stream_name)
    return state.account.find_active(start.stream_name, "UPDATING")


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
    instant_ms = _instant_of(shard_filter, now_ms)
    ending_later = [
        shard for shard in shards if shard.closed_ms is None or shard.closed_ms >= instant_ms
    ]
    if kind == "FROM_TIMESTAMP":
        return ending_later
    return [shard for shard in ending_later if shard.opened_ms <= instant_ms]


def _instant_of(shard_filter: Request, now_ms: int) -> float:
    instant_ms = shard_filter.instant_ms("Timestamp")
    if instant_ms is None:
        raise missing("Timestamp")
    if instant_ms > now_ms:
        raise invalid_argument("The Timestamp of the ShardFilter cannot be in the future.")
    return instant_ms


OPERATIONS: dict[str, Operation] = {"ListShards": list_shards}
