"""Polling keeps within what AWS allows per shard, and uses it; LocalKinesis refuses the rest."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers import Event, PublisherContext, StartingPosition
from kinesis_publishers.config import ShardLimits
from kinesis_publishers.events import RecordsFetched, Throttled
from kinesis_publishers.publishers.polling import PollingRecordPublisherFactory
from kinesis_publishers.testing.fakes import (
    FakeDataPlane,
    RecordingConsumer,
    StoredShard,
    finish,
    sample_records,
)
from kinesis_publishers.testing.local_kinesis import LocalKinesis
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.publishers.polling_support import CONFIG, Polling
from tests.unit.publishers.test_polling_publisher import call_times

if TYPE_CHECKING:
    from kinesis_publishers.abc import RecordPublisher

MIB = 1024 * 1024
RECORDS = sample_records(3)


class LimitedShard:
    """A shard of a service with AWS's limits, and what polling it leads to."""

    def __init__(self, **config: object) -> None:
        self.clock = ManualClock()
        self.server = LocalKinesis(clock=self.clock)
        self.server.create_stream("orders")
        self.consumer = RecordingConsumer()
        self.events: list[Event] = []
        self._control_plane = self.server.control_plane()
        self._factory = PollingRecordPublisherFactory(
            evolve(CONFIG, **config),
            PublisherContext(
                data_plane=self.server.data_plane(),
                control_plane=self._control_plane,
                clock=self.clock,
                events=self.events.append,
            ),
        )

    async def publisher(self) -> RecordPublisher:
        stream = await self._control_plane.describe_stream("orders")
        (shard,) = await self._control_plane.list_shards(stream.identity.arn)
        return await self._factory.create(StartingPosition.trim_horizon(), shard)

    async def poll(self, *publishers: RecordPublisher, until: float) -> None:
        """Let publishers take turns until the clock shows so many seconds."""

        async def take_turns() -> None:
            for one in itertools.cycle(publishers):
                await one.run(self.consumer)
                if self.clock.monotonic() >= until:
                    return

        await finish(take_turns(), self.clock, within=until + 30)

    def put(self, count: int, size: int = 10) -> None:
        self.server.put_many("orders", [("key", bytes(size))] * count)

    def events_of(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.mark.parametrize("interval", [0.0, 0.05, 0.2])
async def test_no_period_is_so_short_that_calls_are_refused(interval: float):
    shard = LimitedShard(interval_seconds=interval)
    await shard.poll(await shard.publisher(), until=3.7)
    assert shard.events_of(Throttled) == []
    assert len(shard.events_of(RecordsFetched)) == 20


async def test_a_backlog_of_small_pages_takes_all_five_calls_of_a_second_at_once():
    shard = LimitedShard(max_records=10)
    shard.put(200)
    publisher = await shard.publisher()
    await shard.poll(publisher, until=0.01)
    assert len(shard.consumer.records) >= 50
    await shard.poll(publisher, until=3.01)
    assert len(shard.consumer.records) == 200
    assert shard.events_of(Throttled) == []


@pytest.mark.parametrize("size", [MIB, 300_000])
async def test_a_backlog_is_read_at_two_megabytes_a_second_without_a_refusal(size: int):
    shard, megabytes = LimitedShard(max_records=10), 50
    shard.put(megabytes * 1_000_000 // size, size)
    publisher = await shard.publisher()
    await shard.poll(publisher, until=megabytes / 2 + 0.3)
    assert len(shard.consumer.records) == megabytes * 1_000_000 // size
    assert shard.events_of(Throttled) == []


async def test_the_publishers_of_a_shard_share_its_calls():
    shard = LimitedShard()
    publishers = [await shard.publisher() for _ in range(8)]
    await shard.poll(*publishers, until=5)
    assert shard.events_of(Throttled) == []
    assert len(shard.events_of(RecordsFetched)) == pytest.approx(25, abs=2)


async def test_a_silent_shard_is_polled_once_a_second_until_records_return():
    shard = StoredShard(list(RECORDS))
    polling = Polling.of(FakeDataPlane(shard))
    starts = call_times(polling)
    while polling.clock.monotonic() < 40:
        await polling.run(RecordingConsumer())
    assert starts[-1] - starts[-2] == pytest.approx(1.0)
    shard.extend(sample_records(1, first=3))
    await polling.run(RecordingConsumer(), times=3)
    assert starts[-1] - starts[-2] == pytest.approx(0.2)


async def test_a_shard_with_a_record_every_few_seconds_is_polled_as_before():
    shard = StoredShard([])
    polling = Polling.of(FakeDataPlane(shard))
    starts = call_times(polling)
    for index in range(5):
        shard.extend(sample_records(1, first=index))
        await polling.run(RecordingConsumer(), times=20)
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert max(gaps) == pytest.approx(0.2)


async def test_without_limits_the_period_alone_holds():
    shard = StoredShard(sample_records(400))
    polling = Polling.of(shard, limits=ShardLimits.OFF, interval_seconds=0.05, max_records=100)
    starts = call_times(polling)
    await polling.run(RecordingConsumer(), times=1000)
    assert [later - earlier for earlier, later in itertools.pairwise(starts)] == pytest.approx(
        [0.05] * 999
    )


async def test_a_consumer_that_takes_long_is_not_slowed_further_by_what_it_was_given():
    async def takes_a_while(batch: object) -> None:
        await polling.clock.sleep(3)

    polling = Polling.of(StoredShard(sample_records(90, size=100_000)), max_records=30)
    starts = call_times(polling)
    await polling.run(RecordingConsumer(takes_a_while), times=3)
    assert starts == pytest.approx([0, 3, 6])
