"""Ranges under fan-out: one subscription, as long as it lasts; the rest is polled."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from attrs import define, evolve, field

from kinesis_publishers import (
    Properties,
    PublisherContext,
    RecordBatch,
    RunResult,
    SequenceNumber,
    ShardRange,
    StartingPosition,
)
from kinesis_publishers.config import SourceConfig
from kinesis_publishers.errors import (
    AccessDeniedError,
    ConnectionFailedError,
    ResourceInUseError,
)
from kinesis_publishers.publishers.polling import PollingRecordPublisherFactory
from kinesis_publishers.readers.ranges.reader import (
    KinesisRangeReader,
    SubscribeThenPoll,
    as_polling,
)
from kinesis_publishers.testing.fakes import (
    SUCCESSOR,
    FakeControlPlane,
    FakeDataPlane,
    RecordingConsumer,
    RecordingSink,
    ScriptedPublisherFactory,
    ScriptedRun,
    StoredShard,
    batch_of,
    finish,
    sample_records,
    sample_shard,
)
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.publishers.fanout_support import (
    CONSUMER_ARN,
    POLLING,
    KnownConsumer,
    fan_out_factory,
)
from tests.unit.readers.fetcher_support import World as FetcherWorld

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers.assembly import Services
    from kinesis_publishers.model import SubscriptionEvent

RECORDS = sample_records(10)
MIB = 1024 * 1024

_PLUGIN = "kinesis_publishers.testing.fakes:ScriptedPublisherFactory"


def place(index: int) -> SequenceNumber:
    return SequenceNumber(RECORDS[index].sequence_number)


@define(eq=False)
class TroubledShard(StoredShard):
    """A shard whose subscriptions are refused, or break after some events."""

    refusal: Exception | None = field(default=None, kw_only=True)
    breaks_after: int | None = field(default=None, kw_only=True)

    async def accept(self, consumer_arn: str, position: StartingPosition) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def subscribe(self, position: StartingPosition) -> AsyncIterator[SubscriptionEvent]:
        pushed = 0
        async for event in super().subscribe(position):
            if pushed == self.breaks_after:
                raise error_of(ConnectionFailedError)
            yield event
            pushed += 1


class NeverEnds(StoredShard):
    """A shard whose subscriptions stay open at the tip."""

    async def subscribe(self, position: StartingPosition) -> AsyncIterator[SubscriptionEvent]:
        async for event in super().subscribe(position):
            yield event
        await asyncio.get_running_loop().create_future()


def error_of(kind: type, code: str = "code") -> Exception:
    return kind("refused", operation="SubscribeToShard", code=code)


@define(eq=False)
class World:
    """One shard that can be subscribed to and polled."""

    shard: StoredShard
    clock: ManualClock = field(factory=ManualClock)
    plane: FakeDataPlane = field(init=False)
    services: Services = field(init=False)
    sink: RecordingSink = field(factory=RecordingSink)

    def __attrs_post_init__(self) -> None:
        self.plane = FakeDataPlane(self.shard)
        configured = fan_out_factory(self.plane, self.clock, KnownConsumer())
        polling = PollingRecordPublisherFactory(
            POLLING,
            PublisherContext(
                data_plane=self.plane,
                control_plane=FakeControlPlane(),
                clock=self.clock,
                events=lambda _: None,
            ),
        )
        services = FetcherWorld(clock=self.clock).parts()
        self.services = evolve(services, factory=configured, polling=polling)

    async def read(self, start: int, end: int | None, expected_bytes: int | None = None) -> None:
        """Read a range by one subscription and polling, without waiting for anything else."""
        wanted = ShardRange(
            shard=sample_shard().key,
            start=StartingPosition.after(place(start)),
            end=None if end is None else place(end),
        )
        reader = KinesisRangeReader(self.services)
        reading = reader.read([wanted], self.sink, expected_bytes=expected_bytes)
        await finish(reading, self.clock)

    async def publisher(self) -> SubscribeThenPoll:
        """Return what reads a large range from the oldest record on."""
        shard, horizon = sample_shard(), StartingPosition.trim_horizon()
        subscriber = await self.services.factory.create(horizon, shard)
        return SubscribeThenPoll(shard, horizon, subscriber, self.services.polling)


async def test_a_range_comes_by_one_subscription_that_is_closed_with_its_last_event():
    world = World(StoredShard(RECORDS, page_ends=[3, 6, 9]))
    await world.read(0, 4)
    assert world.sink.records == RECORDS[1:5]
    (subscription,) = world.plane.subscriptions
    assert subscription.is_closed
    assert subscription.taken == 2
    assert world.plane.subscribe_calls[0].consumer_arn == CONSUMER_ARN
    assert world.plane.records_calls == []


@pytest.mark.parametrize(
    "refusal", [error_of(ResourceInUseError), error_of(AccessDeniedError)], ids=["in use", "denied"]
)
async def test_a_subscription_that_is_refused_is_polled_for_and_not_waited_for(refusal: Exception):
    world = World(TroubledShard(RECORDS, refusal=refusal))
    before = world.clock.monotonic()
    await world.read(0, 4)
    assert world.sink.records == RECORDS[1:5]
    assert len(world.plane.subscribe_calls) == 1
    assert world.clock.monotonic() - before < 5


async def test_a_refusal_that_does_not_pass_is_warned_of(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        await World(TroubledShard(RECORDS, refusal=error_of(ResourceInUseError))).read(0, 4)
        assert caplog.messages == []
        await World(TroubledShard(RECORDS, refusal=error_of(AccessDeniedError))).read(0, 4)
    (message,) = caplog.messages
    assert str(sample_shard()) in message
    assert "refused" in message


@pytest.mark.parametrize("events", [0, 1, 2])
async def test_what_a_subscription_leaves_is_polled(events: int):
    world = World(TroubledShard(RECORDS, page_ends=[3, 6, 9], breaks_after=events))
    await world.read(0, 8)
    assert world.sink.records == RECORDS[1:9]
    assert len(world.plane.subscribe_calls) == 1
    polled_from = world.plane.iterator_calls[0].position
    assert polled_from == StartingPosition.after(place([0, 2, 5][events]))


async def test_what_comes_after_an_event_without_records_is_polled_from_where_reading_began():
    class HasProcessedMore(RecordingConsumer):
        async def __call__(self, batch: RecordBatch) -> SequenceNumber:
            await super().__call__(batch)
            # As after a loss, when reading begins again at the oldest record.
            return place(3)

    world = World(TroubledShard([], breaks_after=1))
    publisher = await world.publisher()
    for _ in range(2):
        await finish(publisher.run(HasProcessedMore()), world.clock)
    positions = [call.position for call in world.plane.iterator_calls]
    assert positions == [StartingPosition.trim_horizon()]


async def test_a_subscription_may_read_to_the_end_of_the_shard():
    world = World(StoredShard(RECORDS, is_closed=True, child_shards=(SUCCESSOR,)))
    await world.read(0, None)
    assert world.sink.records == RECORDS[1:]
    assert world.plane.records_calls == []


async def test_the_second_run_polls_and_never_subscribes_again():
    world = World(StoredShard(RECORDS))
    publisher = await world.publisher()
    consumer = RecordingConsumer()
    assert await publisher.run(consumer) is RunResult.INCOMPLETE
    assert consumer.records == RECORDS
    assert await finish(publisher.run(consumer), world.clock) is RunResult.INCOMPLETE
    assert consumer.records == RECORDS
    assert len(world.plane.subscribe_calls) == 1


async def test_a_subscription_that_waits_at_the_tip_is_closed_with_the_last_record():
    world = World(NeverEnds(RECORDS))
    await world.read(0, 9)
    assert world.sink.records == RECORDS[1:]
    (subscription,) = world.plane.subscriptions
    assert subscription.is_closed


@pytest.mark.parametrize(
    ("expected_bytes", "subscriptions"), [(None, 1), (4 * MIB, 1), (4 * MIB - 1, 0)]
)
async def test_only_much_is_worth_a_subscription(expected_bytes: int | None, subscriptions: int):
    world = World(StoredShard(RECORDS))
    await world.read(0, 4, expected_bytes)
    assert world.sink.records == RECORDS[1:5]
    assert len(world.plane.subscriptions) == subscriptions


async def test_a_custom_publisher_reads_its_ranges_itself():
    world = World(StoredShard())
    custom = ScriptedPublisherFactory([ScriptedRun(batches=[batch_of(RECORDS[1:5])])])
    world.services = evolve(world.services, factory=custom)
    await world.read(0, 4)
    assert world.sink.records == RECORDS[1:5]
    assert world.plane.calls == []


@pytest.mark.parametrize(
    ("publisher", "expected"),
    [("EFO", "POLLING"), ("POLLING", "POLLING"), (_PLUGIN, _PLUGIN)],
)
def test_fan_out_is_replaced_by_polling_and_nothing_else_is(publisher: str, expected: str):
    given = Properties.parse(
        {
            "kinesis.streams": "orders",
            "kinesis.stream.recordpublisher": publisher,
            "kinesis.stream.efo.consumername": "app",
        }
    )
    polled = as_polling(given)
    assert polled.get(SourceConfig.record_publisher) == expected


class SubscribesToo(ScriptedPublisherFactory):
    subscribes = True


@pytest.mark.parametrize("credentials", [{}, {"aws.credentials.provider": "CUSTOM"}])
def test_a_publisher_that_is_replaced_by_polling_takes_its_own_options_along(
    credentials: dict[str, str],
):
    class_key = "aws.credentials.provider.custom.class"
    others = {**credentials, class_key: "corp.credentials:Vault"} if credentials else {}
    given = {
        "kinesis.streams": "orders",
        "kinesis.stream.recordpublisher": f"{__name__}:SubscribesToo",
        "kinesis.custom.rate": "3",
        **others,
    }
    polled = as_polling(Properties.parse(given))
    assert polled.get(SourceConfig.record_publisher) == "POLLING"
    # A class for credentials is given every key.
    assert ("kinesis.custom.rate" in polled.to_dict()) is bool(others)
