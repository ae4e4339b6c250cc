"""Typed access to a request, refused in AWS's words, and the tokens that clients hand back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar, Literal, Self, TypeVar

import orjson
import pybase64
from attrs import astuple, field, frozen
from attrs.validators import instance_of

from kinesis_publishers.testing.local_kinesis.answers import (
    ApiError,
    invalid_argument,
    serialization,
    validation,
)

_T = TypeVar("_T")

IteratorKind = Literal["live", "next", "stuck"]
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_TAG = re.compile(r"(?!aws:)[\w\s.:/=+\-@%]{0,256}")
_DECIMAL = re.compile(r"0|[1-9]\d{0,128}")


@frozen
class Request:
    """The object that a client sent."""

    fields: Mapping[str, object]

    @classmethod
    def parse(cls, body: bytes) -> Request:
        """Read a request body; SerializationException unless it is an object."""
        try:
            fields = orjson.loads(body or b"{}")
        except ValueError as error:
            raise serialization(f"The request cannot be read: {error}") from error
        if not isinstance(fields, dict):
            raise serialization("The request is not an object.")
        return cls(fields)

    def has(self, name: str) -> bool:
        return self.fields.get(name) is not None

    def _member(self, name: str, kind: type, description: str) -> Any:
        value = self.fields.get(name)
        # To Python a boolean is an integer.
        is_of_kind = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if value is None or is_of_kind:
            return value
        raise serialization(f"{name} is not {description}.")

    def _required(self, name: str, value: _T | None) -> _T:
        if value is None:
            raise missing(name)
        return value

    def text(self, name: str) -> str | None:
        value: str | None = self._member(name, str, "a string")
        return value

    def required_text(self, name: str) -> str:
        return self._required(name, self.text(name) or None)

    def name(self, member: str) -> str:
        """Return the name of a resource to create."""
        name = self.required_text(member)
        if _NAME.fullmatch(name) is None:
            constraint = "Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+"
            raise violation(member, name, constraint)
        return name

    def decimal(self, name: str) -> int:
        """Return a required number that travels as a string of digits."""
        return parse_decimal(name, self.required_text(name))

    def integer(self, name: str, minimum: int, maximum: int) -> int | None:
        value: int | None = self._member(name, int, "an integer")
        if value is not None and not minimum <= value <= maximum:
            bound = f"greater than or equal to {minimum}"
            if value > maximum:
                bound = f"less than or equal to {maximum}"
            raise violation(name, value, f"Member must have value {bound}")
        return value

    def required_integer(self, name: str, minimum: int, maximum: int) -> int:
        return self._required(name, self.integer(name, minimum, maximum))

    def flag(self, name: str) -> bool:
        return bool(self._member(name, bool, "a boolean"))

    def instant_ms(self, name: str) -> float | None:
        """Return a timestamp, which travels as seconds since the epoch, in milliseconds."""
        value = self._member(name, Real, "a number")
        # A float of this size resolves 0.24 us: anything below that is noise of the conversion.
        return None if value is None else round(value * 1000, 3)

    def required_instant_ms(self, name: str) -> float:
        return self._required(name, self.instant_ms(name))

    def section(self, name: str) -> Request | None:
        value = self._member(name, dict, "an object")
        return None if value is None else Request(value)

    def required_section(self, name: str) -> Request:
        return self._required(name, self.section(name))

    def page_size(self, name: str, maximum: int, most: int | None) -> int | None:
        """Return how many items an answer may have: what is asked for, but at most ``most``."""
        wanted = self.integer(name, 1, maximum)
        if wanted is None or most is None:
            return wanted or most
        return min(wanted, most)

    def items(self, name: str) -> list[object]:
        value: list[object] | None = self._member(name, list, "a list")
        return self._required(name, value)

    def tags(self) -> dict[str, str]:
        """Return the Tags; none if the request has none."""
        section = self.section("Tags")
        tags: dict[str, str] = {}
        for key, value in section.fields.items() if section is not None else ():
            if not isinstance(value, str):
                raise serialization(f"The value of tag {key} is not a string.")
            if not (key and _TAG.fullmatch(key) and _TAG.fullmatch(value)):
                raise invalid_argument("Some tags contain invalid characters, or are too long.")
            tags[key] = value
        return tags

    def end_dry_run(self) -> None:
        """Answer a call with DryRun that has been found valid: it would have succeeded."""
        if self.flag("DryRun"):
            raise ApiError("DryRunOperationException", "The request would have succeeded.")

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self.required_text(name)
        if value not in allowed:
            raise violation(
                name, value, f"Member must satisfy enum value set: [{', '.join(allowed)}]"
            )
        return value


def mode_in(details: Request | None) -> Literal["PROVISIONED", "ON_DEMAND"]:
    """Return the mode that StreamModeDetails name; without them a stream is provisioned."""
    if details is None or details.choice("StreamMode", ("PROVISIONED", "ON_DEMAND")) != "ON_DEMAND":
        return "PROVISIONED"
    return "ON_DEMAND"


def parse_decimal(name: str, text: str) -> int:
    if _DECIMAL.fullmatch(text) is None:
        raise violation(
            name, text, r"Member must satisfy regular expression pattern: 0|([1-9]\d{0,128})"
        )
    return int(text)


def missing(name: str) -> ApiError:
    return validation(
        f"1 validation error detected: Value null at '{_member(name)}' failed to satisfy "
        "constraint: Member must not be null"
    )


def violation(name: str, value: object, constraint: str) -> ApiError:
    return validation(
        f"1 validation error detected: Value '{value}' at '{_member(name)}' failed to satisfy "
        f"constraint: {constraint}"
    )


def _member(name: str) -> str:
    return name[0].lower() + name[1:]


@frozen
class _Token:
    member: ClassVar = "NextToken"

    def encode(self) -> str:
        # Not orjson, whose integers have 64 bits.
        return pybase64.urlsafe_b64encode(json.dumps(astuple(self)).encode()).decode()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read a token; InvalidArgumentException if it is none."""
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
        kind: "next" comes with an answer; "stuck" is the iterator behind a trimmed record that
            never answers anything.
    """

    member = "ShardIterator"

    stream_name: str
    stream_created_ms: int
    shard_id: str
    number: int = field(validator=instance_of(int))
    kind: IteratorKind
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
