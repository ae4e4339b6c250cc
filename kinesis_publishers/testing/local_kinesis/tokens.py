"""Shard iterators and tokens of lists: opaque to clients, a position and a birth time to us."""

from __future__ import annotations

import json
from typing import ClassVar, Literal, Self

import pybase64
from attrs import astuple, field, frozen
from attrs.validators import instance_of

from kinesis_publishers.testing.local_kinesis.errors import invalid_argument

__all__ = ["ConsumerListToken", "ListToken", "ShardIterator"]


@frozen
class _Token:
    member: ClassVar = "NextToken"

    def encode(self) -> str:
        # Not orjson, whose integers have 64 bits.
        return pybase64.urlsafe_b64encode(json.dumps(astuple(self)).encode()).decode()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read a token.

        Raises:
            ApiError: InvalidArgumentException if it is none.
        """
        try:
            return cls(*json.loads(pybase64.urlsafe_b64decode(text)))
        except (TypeError, ValueError) as error:
            raise invalid_argument(f"Invalid {cls.member}.") from error


@frozen
class ShardIterator(_Token):
    """A place in a shard.

    Attributes:
        stream_created_ms: tells a stream from one of the same name that was deleted before.
        number: reading begins with the first record at or above this sequence number.
        kind: "stuck" is the iterator behind a trimmed record that never answers anything.
    """

    member = "ShardIterator"

    stream_name: str
    stream_created_ms: int
    shard_id: str
    number: int = field(validator=instance_of(int))
    kind: Literal["live", "stuck"]
    created_ms: int


@frozen
class ListToken(_Token):
    """Where the next page of ListShards begins and what it is filtered by."""

    stream_name: str
    stream_created_ms: int
    after_shard_id: str
    shard_filter: dict[str, object] | None
    created_ms: int


@frozen
class ConsumerListToken(_Token):
    """Where the next page of ListStreamConsumers begins."""

    stream_arn: str
    stream_created_ms: int
    after_name: str
    created_ms: int
