"""Shard iterators and tokens of lists: opaque to clients, a position and a birth time to us."""

from __future__ import annotations

from typing import Any, Literal, Self

import orjson
import pybase64
from attrs import astuple, frozen

from kinesis_publishers.testing.local_kinesis.errors import invalid_argument

__all__ = ["ConsumerListToken", "ListToken", "ShardIterator"]


@frozen
class ShardIterator:
    """A place in a shard.

    Attributes:
        stream_created_ms: tells a stream from one of the same name that was deleted before.
        number: reading begins with the first record at or above this sequence number.
        kind: "stuck" is the iterator behind a trimmed record that never answers anything.
    """

    stream_name: str
    stream_created_ms: int
    shard_id: str
    number: int
    kind: Literal["live", "stuck"]
    created_ms: int

    def encode(self) -> str:
        name, created, shard_id, number, kind, born = astuple(self)
        return _encode([name, created, shard_id, str(number), kind, born])

    @classmethod
    def decode(cls, text: str) -> ShardIterator:
        """Read an iterator.

        Raises:
            ApiError: InvalidArgumentException if it is none.
        """
        try:
            name, created, shard_id, number, kind, born = _decode(text)
            return cls(name, created, shard_id, int(number), kind, born)
        except (TypeError, ValueError) as error:
            raise invalid_argument("Invalid ShardIterator.") from error


@frozen
class _ListToken:
    def encode(self) -> str:
        return _encode(list(astuple(self)))

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read a token.

        Raises:
            ApiError: InvalidArgumentException if it is none.
        """
        try:
            return cls(*_decode(text))
        except (TypeError, ValueError) as error:
            raise invalid_argument("Invalid NextToken.") from error


@frozen
class ListToken(_ListToken):
    """Where the next page of ListShards begins and what it is filtered by."""

    stream_name: str
    stream_created_ms: int
    after_shard_id: str
    shard_filter: dict[str, object] | None
    created_ms: int


@frozen
class ConsumerListToken(_ListToken):
    """Where the next page of ListStreamConsumers begins."""

    stream_arn: str
    stream_created_ms: int
    after_name: str
    created_ms: int


def _encode(parts: list[object]) -> str:
    return pybase64.urlsafe_b64encode(orjson.dumps(parts)).decode()


def _decode(text: str) -> list[Any]:
    value = orjson.loads(pybase64.urlsafe_b64decode(text))
    if not isinstance(value, list):
        raise ValueError("not a token")
    return value
