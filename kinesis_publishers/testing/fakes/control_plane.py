"""A control plane without a service: streams whose shards a test changes while they are read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from attrs import define, evolve, field, frozen

from kinesis_publishers.abc import ControlPlane
from kinesis_publishers.errors import StreamNotFoundError
from kinesis_publishers.model import StreamIdentity, StreamSummary
from kinesis_publishers.testing.fakes.consumers import (
    ConsumerCall,
    DeregisterConsumerCall,
    DescribeConsumerCall,
    FakeConsumers,
    ListConsumersCall,
    RegisterConsumerCall,
)
from kinesis_publishers.testing.fakes.samples import STREAM_ARN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_publishers.model import Shard, StreamConsumer

__all__ = ["DescribeCall", "FakeControlPlane", "FakeStream", "ListCall"]

_CREATED_AT = datetime(2025, 12, 1, tzinfo=UTC)
_DAY_SECONDS = 86_400.0


@frozen(kw_only=True)
class DescribeCall:
    """A DescribeStreamSummary that was made."""

    stream: str


@frozen(kw_only=True)
class ListCall:
    """A ListShards that was made."""

    stream_arn: str
    since: datetime | None


@define(eq=False)
class FakeStream:
    """A stream as the service describes it; every attribute may be changed between two calls.

    Attributes:
        shards: what ListShards shows, in the order in which it shows it.
        arn: the stream; its name is the last part.
        created_at: when it was created (aware).
        retention_seconds: how long it keeps its records.
        status: ``ACTIVE``, ``CREATING``, ``DELETING`` or ``UPDATING``.
        closed_at: when shards were closed, by shard id: a listing since later leaves them out.
        consumers: who is registered for enhanced fan-out.
    """

    shards: list[Shard] = field(factory=list)
    arn: str = field(default=STREAM_ARN, kw_only=True)
    created_at: datetime = field(default=_CREATED_AT, kw_only=True)
    retention_seconds: float = field(default=_DAY_SECONDS, kw_only=True)
    status: str = field(default="ACTIVE", kw_only=True)
    closed_at: dict[str, datetime] = field(factory=dict, kw_only=True)
    consumers: FakeConsumers = field(factory=FakeConsumers, kw_only=True)

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.arn.rpartition("/")[2]

    @property
    def identity(self) -> StreamIdentity:
        """Which stream this is."""
        return StreamIdentity(name=self.name, arn=self.arn, created_at=self.created_at)

    @property
    def summary(self) -> StreamSummary:
        """What DescribeStreamSummary says of it."""
        return StreamSummary(
            identity=self.identity, status=self.status, retention_seconds=self.retention_seconds
        )

    def add(self, *shards: Shard) -> None:
        """Let ListShards show ``shards`` as well."""
        self.shards.extend(shards)

    def close(self, shard_id: str, *, at: datetime | None = None) -> None:
        """Mark a shard as closed, and remember ``at`` as the instant."""
        self.shards = [
            evolve(one, ending_sequence_number="9" * 30) if one.shard_id == shard_id else one
            for one in self.shards
        ]
        if at is not None:
            self.closed_at[shard_id] = at

    def remove(self, shard_id: str) -> None:
        """Let a shard vanish, as the retention makes it."""
        self.shards = [one for one in self.shards if one.shard_id != shard_id]


class FakeControlPlane(ControlPlane):
    """Describes the given streams.

    Args:
        streams: what exists; anything else is not found.
        errors: what the first calls raise instead of answering; ``None`` lets one through.

    Attributes:
        streams: what exists.
        errors: what the next calls raise, whichever they are.
        consumer_errors: what the next calls of one kind raise, by the class of the call.
        calls: every call, in order.
    """

    def __init__(self, *streams: FakeStream, errors: Iterable[Exception | None] = ()) -> None:
        self.streams = list(streams)
        self.errors = list(errors)
        self.consumer_errors: dict[type[ConsumerCall], list[Exception | None]] = {}
        self.calls: list[DescribeCall | ListCall | ConsumerCall] = []

    @property
    def describe_calls(self) -> list[DescribeCall]:
        """Every DescribeStreamSummary, in order."""
        return [call for call in self.calls if isinstance(call, DescribeCall)]

    @property
    def list_calls(self) -> list[ListCall]:
        """Every ListShards, in order."""
        return [call for call in self.calls if isinstance(call, ListCall)]

    def consumer_calls(self, *kinds: type[ConsumerCall]) -> list[ConsumerCall]:
        """Return every call about consumers of these kinds, of all kinds unless given, in order."""
        return [call for call in self.calls if isinstance(call, kinds or ConsumerCall)]

    async def describe_stream(self, stream: str) -> StreamSummary:
        self.calls.append(DescribeCall(stream=stream))
        self._raise_next()
        found = self._find(stream, "DescribeStreamSummary")
        return found.summary

    async def list_shards(
        self, stream_arn: str, *, since: datetime | None = None
    ) -> tuple[Shard, ...]:
        self.calls.append(ListCall(stream_arn=stream_arn, since=since))
        self._raise_next()
        stream = self._find(stream_arn, "ListShards")
        return tuple(
            shard
            for shard in stream.shards
            if since is None or stream.closed_at.get(shard.shard_id, since) >= since
        )

    async def describe_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        self._note(DescribeConsumerCall(stream_arn=stream_arn, consumer_name=consumer_name))
        # The service does not say whether it is the stream or the consumer that is not there.
        holders = (one.consumers for one in self.streams if one.arn == stream_arn)
        return next(holders, FakeConsumers()).describe(stream_arn, consumer_name)

    async def list_stream_consumers(self, stream_arn: str) -> tuple[StreamConsumer, ...]:
        self._note(ListConsumersCall(stream_arn=stream_arn))
        return self._find(stream_arn, "ListStreamConsumers").consumers.list()

    async def register_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        self._note(RegisterConsumerCall(stream_arn=stream_arn, consumer_name=consumer_name))
        stream = self._find(stream_arn, "RegisterStreamConsumer")
        return stream.consumers.register(stream_arn, consumer_name)

    async def deregister_stream_consumer(self, consumer_arn: str) -> None:
        self._note(DeregisterConsumerCall(consumer_arn=consumer_arn))
        holders = (one.consumers for one in self.streams if consumer_arn in one.consumers.arns)
        next(holders, FakeConsumers()).deregister(consumer_arn)

    def _note(self, call: ConsumerCall) -> None:
        self.calls.append(call)
        self._raise_next()
        scripted = self.consumer_errors.get(type(call))
        error = scripted.pop(0) if scripted else None
        if error is not None:
            raise error

    def _raise_next(self) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error

    def _find(self, stream: str, operation: str) -> FakeStream:
        for one in self.streams:
            if stream in (one.name, one.arn):
                return one
        raise StreamNotFoundError(
            f"{operation} of {stream}: ResourceNotFoundException: the stream does not exist.",
            operation=operation,
            code="ResourceNotFoundException",
        )
