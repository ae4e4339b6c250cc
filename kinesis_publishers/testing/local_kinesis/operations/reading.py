"""GetShardIterator and GetRecords."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import orjson
from attrs import evolve

from kinesis_publishers.testing.local_kinesis.errors import (
    expired_iterator,
    invalid_argument,
    throughput_exceeded,
)
from kinesis_publishers.testing.local_kinesis.faults import Scope
from kinesis_publishers.testing.local_kinesis.operations.positions import (
    ITERATOR_MEMBERS,
    position_in,
)
from kinesis_publishers.testing.local_kinesis.operations.shapes import (
    child_shards_of,
    millis_behind,
)
from kinesis_publishers.testing.local_kinesis.shard import Page
from kinesis_publishers.testing.local_kinesis.tokens import ShardIterator

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.errors import ApiError
    from kinesis_publishers.testing.local_kinesis.operations.types import Members, Operation
    from kinesis_publishers.testing.local_kinesis.requests import Request
    from kinesis_publishers.testing.local_kinesis.shard import Shard
    from kinesis_publishers.testing.local_kinesis.state import ServiceState
    from kinesis_publishers.testing.local_kinesis.stream import Stream

__all__ = ["OPERATIONS"]


def get_shard_iterator(state: ServiceState, request: Request) -> Members:
    stream = state.readable_stream_in(request)
    shard = stream.shard(request.required_text("ShardId"), state.now_ms())
    position = position_in(state, stream, shard, request, ITERATOR_MEMBERS)
    per_second = state.limits.get_shard_iterator_calls_per_second
    key = ("GetShardIterator", stream.name, shard.shard_id)
    if not state.rates.take_call(key, per_second, state.monotonic()):
        raise _rate_exceeded(stream, shard)
    iterator = _iterator(state, stream, shard, position.number, position.kind)
    return {"ShardIterator": iterator.encode()}


def get_records(state: ServiceState, request: Request) -> Members:
    iterator = ShardIterator.decode(request.required_text("ShardIterator"))
    limit = request.page_size("Limit", 10_000, state.limits.get_records_max_records)
    stream = _stream_of(state, iterator, request)
    shard = stream.shard(iterator.shard_id, state.now_ms())
    _check_age(state, iterator)
    _take_read(state, stream, shard)
    if iterator.kind == "stuck":
        page = Page([], iterator.number, None, 0)
        next_iterator = _iterator(state, stream, shard, iterator.number, "stuck")
        return _answer(page, next_iterator, stream.retention_ms)
    scope = Scope("GetRecords", stream.name, shard.shard_id)
    fault = state.faults.take_inside(scope)
    most = 0 if fault is not None and fault.kind == "empty" else limit
    page = shard.page(iterator.number, most, state.limits.get_records_max_bytes)
    if fault is not None:
        page = evolve(page, fragments=fault.arrange(page.fragments))
    _charge_bytes(state, stream, shard, page)
    is_late = state.account.behaviour.late_shard_end and bool(page.fragments)
    if shard.has_ended_at(page.next_number) and not is_late:
        return _last_answer(page, stream, shard)
    if fault is not None and fault.kind == "no_next_iterator":
        return _answer(page, None, millis_behind(page, state.now_ms()))
    next_iterator = _iterator(state, stream, shard, page.next_number, "live")
    return _answer(page, next_iterator, millis_behind(page, state.now_ms()))


def _stream_of(state: ServiceState, iterator: ShardIterator, request: Request) -> Stream:
    stream = state.account.find_readable(iterator.stream_name)
    if request.has("StreamARN") and state.name_in(request) != stream.name:
        raise invalid_argument("The StreamARN is not that of the stream the iterator belongs to.")
    if iterator.stream_created_ms != stream.created_ms:
        # The stream of this iterator is gone, whatever bears its name now.
        raise state.account.not_found(iterator.stream_name)
    return stream


def _check_age(state: ServiceState, iterator: ShardIterator) -> None:
    lifetime = state.limits.iterator_lifetime_seconds
    now_ms = state.now_ms()
    if lifetime is not None and now_ms - iterator.created_ms > lifetime * 1000:
        raise expired_iterator(
            f"Iterator expired. The iterator was created at time {_readable(iterator.created_ms)} "
            f"while right now it is {_readable(now_ms)} which is further in the future than the "
            f"tolerated delay of {lifetime * 1000:.0f} milliseconds."
        )


def _take_read(state: ServiceState, stream: Stream, shard: Shard) -> None:
    """Count a read.

    Raises:
        ApiError: ProvisionedThroughputExceededException for too many calls or too many bytes.
    """
    now = state.monotonic()
    most_bytes = state.limits.get_records_bytes_per_second
    if most_bytes is not None:
        window = state.rates.window("read bytes", stream.name, shard.shard_id)
        if window.is_blocked(now) or window.total(now) >= most_bytes:
            raise _rate_exceeded(stream, shard)
    key = ("GetRecords", stream.name, shard.shard_id)
    if not state.rates.take_call(key, state.limits.get_records_calls_per_second, now):
        raise _rate_exceeded(stream, shard)


def _charge_bytes(state: ServiceState, stream: Stream, shard: Shard, page: Page) -> None:
    most_bytes = state.limits.get_records_bytes_per_second
    if most_bytes is None or not page.payload_bytes:
        return
    now = state.monotonic()
    window = state.rates.window("read bytes", stream.name, shard.shard_id)
    window.take(now, page.payload_bytes)
    # One answer may exceed the rate; the shard then refuses until it is made up for, 5 s for
    # 10 MiB at 2 MiB/s.
    if page.payload_bytes > most_bytes:
        window.block_until(now + page.payload_bytes / most_bytes)


def _iterator(
    state: ServiceState,
    stream: Stream,
    shard: Shard,
    number: int,
    kind: Literal["live", "stuck"],
) -> ShardIterator:
    return ShardIterator(
        stream.name, stream.created_ms, shard.shard_id, number, kind, state.now_ms()
    )


def _answer(page: Page, next_iterator: ShardIterator | None, lag_ms: int) -> bytes:
    # Records are JSON since they were put: a page is copied, not serialised.
    return b'{"MillisBehindLatest":%d,"NextShardIterator":%s,"Records":[%s]}' % (
        lag_ms,
        orjson.dumps(next_iterator and next_iterator.encode()),
        b",".join(page.fragments),
    )


def _last_answer(page: Page, stream: Stream, shard: Shard) -> bytes:
    return b'{"MillisBehindLatest":0,"NextShardIterator":null,"ChildShards":%s,"Records":[%s]}' % (
        orjson.dumps(child_shards_of(stream, shard)),
        b",".join(page.fragments),
    )


def _rate_exceeded(stream: Stream, shard: Shard) -> ApiError:
    return throughput_exceeded(
        f"Rate exceeded for shard {shard.shard_id} in stream {stream.name} under account "
        f"{stream.account_id}."
    )


def _readable(instant_ms: int) -> str:
    return datetime.fromtimestamp(instant_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


OPERATIONS: dict[str, Operation] = {
    "GetShardIterator": get_shard_iterator,
    "GetRecords": get_records,
}
