"""GetShardIterator and GetRecords, and the positions from which a shard is read."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson
from attrs import evolve, frozen

from kinesis_publishers.testing.local_kinesis.answers import expired_iterator, invalid_argument
from kinesis_publishers.testing.local_kinesis.faults import Scope
from kinesis_publishers.testing.local_kinesis.requests import (
    IteratorKind,
    Request,
    ShardIterator,
    missing,
)
from kinesis_publishers.testing.local_kinesis.sequence_numbers import (
    encoded_shard_index,
    shard_id_of_index,
)
from kinesis_publishers.testing.local_kinesis.shard import Page, Position, Shard
from kinesis_publishers.testing.local_kinesis.state import Members, Operation, ServiceState
from kinesis_publishers.testing.local_kinesis.stream import Stream, child_shards_of, millis_behind


def get_shard_iterator(state: ServiceState, request: Request) -> Members:
    stream = state.find_readable(request)
    shard = stream.shard(request.required_text("ShardId"), state.now_ms())
    position = position_in(state, stream, shard, request, ITERATOR_MEMBERS)
    per_second = state.limits.get_shard_iterator_calls_per_second
    key = ("GetShardIterator", stream.name, shard.shard_id)
    if not state.rates.take_call(key, per_second, state.clock.monotonic()):
        raise stream.rate_exceeded(shard)
    request.end_dry_run()
    iterator = _iterator(state, stream, shard, position.number, position.kind)
    return {"ShardIterator": iterator.encode()}


def get_records(state: ServiceState, request: Request) -> Members:
    iterator = ShardIterator.decode(request.required_text("ShardIterator"))
    limit = request.page_size("Limit", 10_000, state.limits.get_records_max_records)
    stream = _stream_of(state, iterator, request)
    shard = stream.shard(iterator.shard_id, state.now_ms())
    _check_age(state, iterator)
    _take_read(state, stream, shard)
    request.end_dry_run()
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
    is_first = iterator.kind == "live"
    is_late = state.behaviour.late_shard_end and (is_first or bool(page.fragments))
    if shard.has_ended_at(page.next_number) and not is_late:
        return _answer(page, None, 0, child_shards_of(stream, shard))
    if fault is not None and fault.kind == "no_next_iterator":
        return _answer(page, None, millis_behind(page, state.now_ms()))
    next_iterator = _iterator(state, stream, shard, page.next_number, "next")
    return _answer(page, next_iterator, millis_behind(page, state.now_ms()))


def _stream_of(state: ServiceState, iterator: ShardIterator, request: Request) -> Stream:
    stream = state.find_readable(iterator.stream_name)
    if request.has("StreamARN") and state.name_in(request) != stream.name:
        raise invalid_argument("The StreamARN is not that of the stream the iterator belongs to.")
    if iterator.stream_created_ms != stream.created_ms:
        # The stream of this iterator is gone; another one has its name now.
        raise state.not_found(iterator.stream_name)
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
    """Count a read, or refuse it: too many calls or too many bytes."""
    now = state.clock.monotonic()
    most_bytes = state.limits.get_records_bytes_per_second
    if most_bytes is not None:
        window = state.rates.window("read bytes", stream.name, shard.shard_id)
        if window.is_blocked(now) or window.total(now) >= most_bytes:
            raise stream.rate_exceeded(shard)
    key = ("GetRecords", stream.name, shard.shard_id)
    if not state.rates.take_call(key, state.limits.get_records_calls_per_second, now):
        raise stream.rate_exceeded(shard)


def _charge_bytes(state: ServiceState, stream: Stream, shard: Shard, page: Page) -> None:
    most_bytes = state.limits.get_records_bytes_per_second
    if most_bytes is None or not page.payload_bytes:
        return
    # One answer may exceed the rate; the shard then refuses until it is made up for, 5 s for
    # 10 MiB at 2 MiB/s.
    window = state.rates.window("read bytes", stream.name, shard.shard_id)
    window.take(state.clock.monotonic(), page.payload_bytes, most_bytes)


def _iterator(
    state: ServiceState, stream: Stream, shard: Shard, number: int, kind: IteratorKind
) -> ShardIterator:
    return ShardIterator(
        stream.name, stream.created_ms, shard.shard_id, number, kind, state.now_ms()
    )


def _answer(
    page: Page,
    next_iterator: ShardIterator | None,
    lag_ms: int,
    child_shards: list[dict[str, object]] | None = None,
) -> bytes:
    # Records are JSON since they were put: a page is copied, not serialised.
    children = b"" if child_shards is None else b'"ChildShards":%s,' % orjson.dumps(child_shards)
    return b'{"MillisBehindLatest":%d,"NextShardIterator":%s,%b"Records":[%b]}' % (
        lag_ms,
        orjson.dumps(next_iterator and next_iterator.encode()),
        children,
        b",".join(page.fragments),
    )


def _readable(instant_ms: int) -> str:
    return datetime.fromtimestamp(instant_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


OPERATIONS: dict[str, Operation] = {
    "GetShardIterator": get_shard_iterator,
    "GetRecords": get_records,
}


_ITERATOR_TYPES = (
    "AFTER_SEQUENCE_NUMBER",
    "LATEST",
    "AT_TIMESTAMP",
    "AT_SEQUENCE_NUMBER",
    "TRIM_HORIZON",
)


@frozen
class PositionMembers:
    """What an operation calls the members that make a position."""

    operation: str
    kind: str
    number: str


ITERATOR_MEMBERS = PositionMembers(
    "GetShardIterator", "ShardIteratorType", "StartingSequenceNumber"
)
SUBSCRIPTION_MEMBERS = PositionMembers("SubscribeToShard", "Type", "SequenceNumber")


def position_in(
    state: ServiceState, stream: Stream, shard: Shard, request: Request, members: PositionMembers
) -> Position:
    """Return where reading begins; InvalidArgumentException if the shard has no such position."""
    kind = request.choice(members.kind, _ITERATOR_TYPES)
    if kind == "TRIM_HORIZON":
        return Position(0)
    if kind == "LATEST":
        return Position(shard.last_number + 1)
    if kind == "AT_TIMESTAMP":
        return Position(shard.first_number_since(_instant_in(state, request)))
    if not request.has(members.number):
        raise missing(members.number)
    number = request.decimal(members.number)
    _check_number(stream, shard, number, members)
    is_after = kind == "AFTER_SEQUENCE_NUMBER"
    if number <= shard.trimmed_number:
        return _trimmed_position(state, shard, number, members, is_after=is_after)
    return Position(number + 1 if is_after else number)


def _trimmed_position(
    state: ServiceState, shard: Shard, number: int, members: PositionMembers, *, is_after: bool
) -> Position:
    trimmed_iterator = state.behaviour.trimmed_iterator
    if trimmed_iterator == "invalid_argument":
        raise invalid_argument(
            f"{members.number} {number} used in {members.operation} on shard {shard.shard_id} is "
            "invalid because the record has been trimmed."
        )
    # AT a trimmed number begins at the horizon; only AFTER leads nowhere.
    if is_after and trimmed_iterator == "stuck":
        return Position(number + 1, "stuck")
    return Position(0)


def _check_number(stream: Stream, shard: Shard, number: int, members: PositionMembers) -> None:
    last = shard.tip_number if shard.ending_number is None else shard.ending_number
    if shard.space.owns(number) and number <= last:
        return
    encoded = shard_id_of_index(encoded_shard_index(number))
    other = stream.shards.get(encoded)
    if other is not None and other is not shard and other.space.owns(number):
        raise invalid_argument(
            f"Invalid {members.number}. It encodes {encoded}, while it was used in a call to "
            f"a shard with {shard.shard_id}"
        )
    raise invalid_argument(
        f"{members.number} {number} used in {members.operation} on shard {shard.shard_id} in "
        f"stream {stream.name} under account {stream.account_id} is invalid because it did not "
        "come from this stream."
    )


def _instant_in(state: ServiceState, request: Request) -> float:
    instant_ms, now_ms = request.required_instant_ms("Timestamp"), state.now_ms()
    if instant_ms > now_ms:
        raise invalid_argument(
            "The timestampInMillis parameter cannot be greater than the currentTimestampInMillis. "
            f"timestampInMillis: {instant_ms:.0f}, currentTimestampInMillis: {now_ms}"
        )
    return instant_ms
