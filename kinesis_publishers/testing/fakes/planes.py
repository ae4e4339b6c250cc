"""Planes that follow a script of the test, and record every call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from attrs import define, evolve, field, frozen

from kinesis_publishers.abc import ControlPlane, DataPlane, PublisherContext, ShardSubscription
from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.errors import StreamNotFoundError
from kinesis_publishers.events import EventSink, ignore_event
from kinesis_publishers.model import (
    RecordPage,
    Shard,
    ShardKey,
    StartingPosition,
    StreamConsumer,
    StreamIdentity,
    StreamSummary,
    SubscriptionEvent,
)
from kinesis_publishers.model.sources import stream_name_of
from kinesis_publishers.testing.fakes.samples import STREAM_ARN
from kinesis_publishers.testing.fakes.shards import ShardBehaviour, raise_next

__all__ = [
    "DescribeCall",
    "FakeControlPlane",
    "FakeDataPlane",
    "FakeStream",
    "FakeSubscription",
    "IteratorCall",
    "ListCall",
    "RecordsCall",
    "SubscribeCall",
    "publisher_context",
]

_CREATED_AT = datetime(2025, 12, 1, tzinfo=UTC)
_DAY_SECONDS = 86_400.0


class FakeSubscription(ShardSubscription):
    """Hands out what ``pushed`` yields, and raises what it raises.

    Attributes:
        taken: how many events have been received.
        is_closed: whether the subscriber has left; nothing may be taken after that.
    """

    def __init__(self, pushed: AsyncIterator[SubscriptionEvent]) -> None:
        self._pushed = pushed
        self._announced: SubscriptionEvent | None = None
        self.taken = 0
        self.is_closed = False

    async def wait_for_event(self) -> int | None:
        assert not self.is_closed, "a closed subscription was read from"
        if self._announced is None:
            self._announced = await anext(self._pushed, None)
        return None if self._announced is None else sum(map(len, self._announced.page.payloads))

    async def receive(self) -> SubscriptionEvent:
        assert not self.is_closed, "a closed subscription was read from"
        event, self._announced = self._announced, None
        assert event is not None, "receive() was called before an event was announced"
        self.taken += 1
        return event


@frozen(kw_only=True)
class IteratorCall:
    """A GetShardIterator that was made."""

    shard_id: str
    position: StartingPosition


@frozen(kw_only=True)
class RecordsCall:
    """A GetRecords that was made, answered or not; ``index`` is where its iterator stood."""

    shard_id: str
    shard_iterator: str
    limit: int
    index: int


@frozen(kw_only=True)
class SubscribeCall:
    """A SubscribeToShard that was made, accepted or not."""

    shard_id: str
    consumer_arn: str
    position: StartingPosition


class FakeDataPlane(DataPlane):
    """Answers as the behaviours of its shards say.

    An iterator that it has not handed out fails the test.

    Args:
        shards: the behaviour of each shard, by shard id; or one behaviour for all shards.
    """

    def __init__(self, shards: Mapping[str, ShardBehaviour] | ShardBehaviour) -> None:
        self._shards = shards
        self._iterators: dict[str, tuple[ShardKey, int]] = {}
        #: Every call, in order.
        self.calls: list[IteratorCall | RecordsCall | SubscribeCall] = []
        #: Every subscription that was accepted, in order.
        self.subscriptions: list[FakeSubscription] = []

    @property
    def iterator_calls(self) -> list[IteratorCall]:
        return [call for call in self.calls if isinstance(call, IteratorCall)]

    @property
    def records_calls(self) -> list[RecordsCall]:
        return [call for call in self.calls if isinstance(call, RecordsCall)]

    @property
    def subscribe_calls(self) -> list[SubscribeCall]:
        return [call for call in self.calls if isinstance(call, SubscribeCall)]

    def behaviour_of(self, shard_id: str) -> ShardBehaviour:
        """Return the behaviour of a shard."""
        if not isinstance(self._shards, Mapping):
            return self._shards
        assert shard_id in self._shards, f"no test expected a call for {shard_id}"
        return self._shards[shard_id]

    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        self.calls.append(IteratorCall(shard_id=shard.shard_id, position=position))
        return self._iterator_at(shard, await self.behaviour_of(shard.shard_id).locate(position))

    async def get_records(self, shard: Shard, shard_iterator: str, limit: int) -> RecordPage:
        assert shard_iterator in self._iterators, f"{shard_iterator} was never handed out"
        key, index = self._iterators[shard_iterator]
        assert key == shard.key, f"{shard_iterator} belongs to {key}, not to {shard}"
        assert 1 <= limit <= 10_000, f"Limit must be 1 to 10,000, not {limit}"
        self.calls.append(
            RecordsCall(
                shard_id=shard.shard_id, shard_iterator=shard_iterator, limit=limit, index=index
            )
        )
        answer = await self.behaviour_of(shard.shard_id).read(index, limit)
        following = answer.next_index
        return answer.as_page(None if following is None else self._iterator_at(shard, following))

    @asynccontextmanager
    async def subscribe_to_shard(
        self, shard: Shard, consumer_arn: str, position: StartingPosition
    ) -> AsyncIterator[FakeSubscription]:
        self.calls.append(
            SubscribeCall(shard_id=shard.shard_id, consumer_arn=consumer_arn, position=position)
        )
        behaviour = self.behaviour_of(shard.shard_id)
        await behaviour.accept(consumer_arn, position)
        subscription = FakeSubscription(behaviour.subscribe(position))
        self.subscriptions.append(subscription)
        try:
            yield subscription
        finally:
            subscription.is_closed = True

    def _iterator_at(self, shard: Shard, index: int) -> str:
        token = f"iterator-{len(self._iterators) + 1}-of-{shard.shard_id}"
        self._iterators[token] = shard.key, index
        return token


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
    """The description of a stream. Any attribute may change between two calls.

    Attributes:
        shards: the shards that ListShards returns, in its order.
        arn: the stream; its name is the last part.
        status: ``ACTIVE``, ``CREATING``, ``DELETING`` or ``UPDATING``.
        closed_at: when shards were closed, by shard id: a listing since later leaves them out.
    """

    shards: list[Shard] = field(factory=list)
    arn: str = field(default=STREAM_ARN, kw_only=True)
    created_at: datetime = field(default=_CREATED_AT, kw_only=True)
    retention_seconds: float = field(default=_DAY_SECONDS, kw_only=True)
    status: str = field(default="ACTIVE", kw_only=True)
    closed_at: dict[str, datetime] = field(factory=dict, kw_only=True)

    @property
    def name(self) -> str:
        return stream_name_of(self.arn)

    @property
    def identity(self) -> StreamIdentity:
        return StreamIdentity(name=self.name, arn=self.arn, created_at=self.created_at)

    @property
    def summary(self) -> StreamSummary:
        """What DescribeStreamSummary says of it."""
        return StreamSummary(
            identity=self.identity, status=self.status, retention_seconds=self.retention_seconds
        )

    def add(self, *shards: Shard) -> None:
        self.shards.extend(shards)

    def close(self, shard_id: str, *, at: datetime | None = None) -> None:
        """Mark a shard as closed since ``at``."""
        self.shards = [
            evolve(one, ending_sequence_number="9" * 30) if one.shard_id == shard_id else one
            for one in self.shards
        ]
        if at is not None:
            self.closed_at[shard_id] = at

    def remove(self, shard_id: str) -> None:
        """Remove a shard, as the service does after the retention."""
        self.shards = [one for one in self.shards if one.shard_id != shard_id]


class FakeControlPlane(ControlPlane):
    """Describes the streams of a test; it has no stream consumers.

    Attributes:
        streams: the streams that exist; any other is not found.
        errors: the errors that the next calls raise; ``None`` lets a call succeed.
        calls: every call, in order.
    """

    def __init__(self, *streams: FakeStream, errors: Iterable[Exception | None] = ()) -> None:
        self.streams = list(streams)
        self.errors = list(errors)
        self.calls: list[DescribeCall | ListCall] = []

    @property
    def describe_calls(self) -> list[DescribeCall]:
        return [call for call in self.calls if isinstance(call, DescribeCall)]

    @property
    def list_calls(self) -> list[ListCall]:
        return [call for call in self.calls if isinstance(call, ListCall)]

    async def describe_stream(self, stream: str) -> StreamSummary:
        self.calls.append(DescribeCall(stream=stream))
        raise_next(self.errors)
        return self._find(stream, "DescribeStreamSummary").summary

    async def list_shards(
        self, stream_arn: str, *, since: datetime | None = None
    ) -> tuple[Shard, ...]:
        self.calls.append(ListCall(stream_arn=stream_arn, since=since))
        raise_next(self.errors)
        stream = self._find(stream_arn, "ListShards")
        return tuple(
            shard
            for shard in stream.shards
            if since is None or stream.closed_at.get(shard.shard_id, since) >= since
        )

    async def describe_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        raise _no_script("describe_stream_consumer")

    async def list_stream_consumers(self, stream_arn: str) -> tuple[StreamConsumer, ...]:
        raise _no_script("list_stream_consumers")

    async def register_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        raise _no_script("register_stream_consumer")

    async def deregister_stream_consumer(self, consumer_arn: str) -> None:
        raise _no_script("deregister_stream_consumer")

    def _find(self, stream: str, operation: str) -> FakeStream:
        for one in self.streams:
            if stream in (one.name, one.arn):
                return one
        raise StreamNotFoundError(
            f"{operation} of {stream}: ResourceNotFoundException: the stream does not exist.",
            operation=operation,
            code="ResourceNotFoundException",
        )


def _no_script(method: str) -> AssertionError:
    return AssertionError(
        f"{method}() was called, but a script has no stream consumers: use "
        "LocalKinesis.control_plane()"
    )


def publisher_context(
    data_plane: DataPlane | None = None,
    *,
    control_plane: ControlPlane | None = None,
    clock: Clock | None = None,
    events: EventSink | None = None,
) -> PublisherContext:
    """Return the context of a factory.

    Without a data plane, a call for any shard fails the test; without a control plane, there are no
    streams; without a clock, time is real.
    """
    return PublisherContext(
        data_plane=data_plane or FakeDataPlane({}),
        control_plane=control_plane or FakeControlPlane(),
        clock=clock or SystemClock(),
        events=events or ignore_event,
    )
