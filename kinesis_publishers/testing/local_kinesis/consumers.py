"""The stream consumers of one stream: what they are called, which phase they are in."""

from __future__ import annotations

import re
from typing import Literal

from attrs import define, field, frozen

from kinesis_publishers.testing.local_kinesis.requests import violation

__all__ = ["Consumer", "ConsumerArn", "ConsumerStatus", "StreamConsumers"]

ConsumerStatus = Literal["CREATING", "DELETING", "ACTIVE"]

_ARN = re.compile(
    r"(?P<stream_arn>arn:aws[^:]*:kinesis:[^:]*:\d{12}:stream/(?P<stream>[a-zA-Z0-9_.-]+))"
    r"/consumer/(?P<name>[a-zA-Z0-9_.-]+):[0-9]+"
)


@frozen
class ConsumerArn:
    """The parts of a ConsumerARN."""

    text: str
    stream_arn: str
    stream_name: str
    consumer_name: str

    @classmethod
    def parse(cls, text: str) -> ConsumerArn:
        """Read a ConsumerARN.

        Raises:
            ApiError: ValidationException if it is none.
        """
        match = _ARN.fullmatch(text)
        if match is None:
            raise violation(
                "ConsumerARN",
                text,
                "Member must satisfy regular expression pattern: " + _ARN.pattern,
            )
        return cls(text, match["stream_arn"], match["stream"], match["name"])


@define(eq=False)
class Consumer:
    """A registered consumer.

    Attributes:
        arn: ends in the second of ``created_ms``: one that is registered again has another.
        active_ms: when it stops being CREATING.
        deleted_ms: when it is gone, once it has been deregistered.
    """

    name: str
    arn: str
    created_ms: int
    active_ms: int
    deleted_ms: int | None = None
    tags: dict[str, str] = field(factory=dict)

    def status(self, now_ms: int) -> ConsumerStatus:
        if self.deleted_ms is not None:
            return "DELETING"
        return "CREATING" if now_ms < self.active_ms else "ACTIVE"


@define(eq=False)
class StreamConsumers:
    """The consumers of one stream by name, without those whose deletion is over."""

    _by_name: dict[str, Consumer] = field(factory=dict)

    def add(self, consumer: Consumer) -> None:
        self._by_name[consumer.name] = consumer

    def get(self, name: str, now_ms: int) -> Consumer | None:
        consumer = self._by_name.get(name)
        if consumer is None or consumer.deleted_ms is None or consumer.deleted_ms > now_ms:
            return consumer
        del self._by_name[name]
        return None

    def present(self, now_ms: int) -> list[Consumer]:
        """Return those that DescribeStreamConsumer knows, in the order of their names."""
        found = (self.get(name, now_ms) for name in sorted(self._by_name))
        return [consumer for consumer in found if consumer is not None]
