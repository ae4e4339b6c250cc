"""The stream consumers of a fake stream: they change with every description, not with time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from attrs import define, field, frozen

from kinesis_publishers.errors import (
    ConsumerNotFoundError,
    LimitExceededError,
    ResourceInUseError,
    ServiceError,
)
from kinesis_publishers.model import StreamConsumer

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "ConsumerCall",
    "DeregisterConsumerCall",
    "DescribeConsumerCall",
    "FakeConsumers",
    "ListConsumersCall",
    "RegisterConsumerCall",
]

_FIRST_CREATED_AT = datetime(2026, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


@frozen(kw_only=True)
class DescribeConsumerCall:
    """A DescribeStreamConsumer that was made."""

    stream_arn: str
    consumer_name: str


@frozen(kw_only=True)
class ListConsumersCall:
    """A ListStreamConsumers that was made."""

    stream_arn: str


@frozen(kw_only=True)
class RegisterConsumerCall:
    """A RegisterStreamConsumer that was made."""

    stream_arn: str
    consumer_name: str


@frozen(kw_only=True)
class DeregisterConsumerCall:
    """A DeregisterStreamConsumer that was made."""

    consumer_arn: str


ConsumerCall: TypeAlias = (
    DescribeConsumerCall | ListConsumersCall | RegisterConsumerCall | DeregisterConsumerCall
)


@define(eq=False)
class _Consumer:
    name: str
    arn: str
    created_at: datetime
    status: str
    descriptions_left: int

    def as_model(self) -> StreamConsumer:
        return StreamConsumer(
            name=self.name, arn=self.arn, status=self.status, created_at=self.created_at
        )


@define(eq=False)
class FakeConsumers:
    """The consumers of one stream; every attribute may be changed between two calls.

    Attributes:
        creating_descriptions: how many descriptions show a new consumer as CREATING before it is
            ACTIVE.
        deleting_descriptions: how many show a removed one as DELETING before it is gone.
        limit: how many the stream takes.
        refusals: how many of the next registrations are refused with LimitExceeded all the same.
    """

    creating_descriptions: int = field(default=0, kw_only=True)
    deleting_descriptions: int = field(default=0, kw_only=True)
    limit: int = field(default=20, kw_only=True)
    refusals: int = field(default=0, kw_only=True)
    _found: dict[str, _Consumer] = field(factory=dict, init=False)
    _registered: int = field(default=0, init=False)

    @property
    def arns(self) -> list[str]:
        """The ARNs of those that are there."""
        return [one.arn for one in self._found.values()]

    def add(self, stream_arn: str, name: str, status: str = "ACTIVE", descriptions: int = 0) -> str:
        """Let a consumer be there, whoever has registered it, and return its ARN.

        Args:
            stream_arn: the stream.
            name: the consumer's name.
            status: what it is now.
            descriptions: how many descriptions show it as that, if it is not ACTIVE.
        """
        created_at = _FIRST_CREATED_AT + self._registered * _SECOND
        self._registered += 1
        arn = f"{stream_arn}/consumer/{name}:{int(created_at.timestamp())}"
        self._found[name] = _Consumer(name, arn, created_at, status, descriptions)
        return arn

    def remove(self, name: str) -> None:
        """Let a consumer vanish at once, as if somebody else had removed it long ago."""
        del self._found[name]

    def describe(self, stream_arn: str, name: str) -> StreamConsumer:
        """Answer DescribeStreamConsumer."""
        consumer = self._found.get(name)
        if consumer is not None and consumer.status != "ACTIVE":
            consumer.descriptions_left -= 1
            if consumer.descriptions_left < 0:
                self._finish_change(consumer)
        if name not in self._found:
            raise _not_found("DescribeStreamConsumer", f"{name} on {stream_arn}")
        return self._found[name].as_model()

    def list(self) -> tuple[StreamConsumer, ...]:
        """Answer ListStreamConsumers."""
        return tuple(one.as_model() for one in self._found.values())

    def register(self, stream_arn: str, name: str) -> StreamConsumer:
        """Answer RegisterStreamConsumer."""
        if name in self._found:
            raise _refusal(ResourceInUseError, "ResourceInUseException", f"{name} exists")
        if self.refusals > 0 or len(self._found) >= self.limit:
            self.refusals = max(0, self.refusals - 1)
            raise _refusal(
                LimitExceededError, "LimitExceededException", f"no more consumers on {stream_arn}"
            )
        self.add(stream_arn, name, "CREATING", self.creating_descriptions)
        return self._found[name].as_model()

    def deregister(self, consumer_arn: str) -> None:
        """Answer DeregisterStreamConsumer."""
        consumer = _find_arn(self._found.values(), consumer_arn)
        if consumer is None:
            raise _not_found("DeregisterStreamConsumer", consumer_arn)
        consumer.status, consumer.descriptions_left = "DELETING", self.deleting_descriptions

    def _finish_change(self, consumer: _Consumer) -> None:
        if consumer.status == "CREATING":
            consumer.status = "ACTIVE"
        else:
            del self._found[consumer.name]


def _find_arn(consumers: Iterable[_Consumer], arn: str) -> _Consumer | None:
    return next((one for one in consumers if one.arn == arn), None)


def _not_found(operation: str, what: str) -> ConsumerNotFoundError:
    return ConsumerNotFoundError(
        f"{operation} of {what}: ResourceNotFoundException: there is no such consumer.",
        operation=operation,
        code="ResourceNotFoundException",
    )


def _refusal(kind: type[ServiceError], code: str, text: str) -> ServiceError:
    operation = "RegisterStreamConsumer"
    return kind(f"{operation}: {code}: {text}.", operation=operation, code=code)
