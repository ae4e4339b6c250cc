"""Where each ShardIteratorType begins, and which positions a shard refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attrs import frozen

from kinesis_publishers.testing.local_kinesis.errors import invalid_argument
from kinesis_publishers.testing.local_kinesis.requests import Request, missing
from kinesis_publishers.testing.local_kinesis.sequence_numbers import (
    encoded_shard_index,
    shard_id_of_index,
)

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.shard import Shard
    from kinesis_publishers.testing.local_kinesis.state import ServiceState
    from kinesis_publishers.testing.local_kinesis.stream import Stream

__all__ = ["ITERATOR_MEMBERS", "SUBSCRIPTION_MEMBERS", "Position", "PositionMembers", "position_in"]

_ITERATOR_TYPES = (
    "AFTER_SEQUENCE_NUMBER",
    "LATEST",
    "AT_TIMESTAMP",
    "AT_SEQUENCE_NUMBER",
    "TRIM_HORIZON",
)


@frozen
class Position:
    """Reading begins with the first record at or above ``number``; "stuck" never reads any."""

    number: int
    kind: Literal["live", "stuck"] = "live"


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
    """Return where reading begins.

    Raises:
        ApiError: InvalidArgumentException if the shard has no such position.
    """
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
    instant_ms = request.instant_ms("Timestamp")
    if instant_ms is None:
        raise missing("Timestamp")
    now_ms = state.now_ms()
    if instant_ms > now_ms:
        raise invalid_argument(
            "The timestampInMillis parameter cannot be greater than the currentTimestampInMillis. "
            f"timestampInMillis: {instant_ms:.0f}, currentTimestampInMillis: {now_ms}"
        )
    return instant_ms
