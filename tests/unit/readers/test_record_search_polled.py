"""Searches over GetRecords: throttles, the service's clock, the end of a closed shard."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from attrs import define, evolve

from kinesis_publishers import PublisherContext, SequenceNumber, StartingPosition
from kinesis_publishers.config import PollingConfig
from kinesis_publishers.engine.consumer_context import MissingShard
from kinesis_publishers.engine.data_loss import DataLossGuard
from kinesis_publishers.errors import InvalidArgumentError, StreamNotFoundError
from kinesis_publishers.publishers.polling import PollingRecordPublisherFactory
from kinesis_publishers.readers.ranges.record_search import RecordSearch, polled_pages
from kinesis_publishers.retry import RetryPolicy
from kinesis_publishers.testing.fakes import (
    Answer,
    FailingCalls,
    FakeControlPlane,
    FakeDataPlane,
    StoredShard,
    finish,
    sample_records,
    sample_shard,
)
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from kinesis_publishers import Shard
    from kinesis_publishers.testing.fakes import ShardBehaviour

_POLICY = RetryPolicy(max_retries=3, base_seconds=0.3, max_seconds=1.0, exponent=1.5)
_CONFIG = PollingConfig(
    max_records=10_000,
    interval_seconds=0.2,
    adaptive_reads=True,
    get_records_retry=_POLICY,
    get_iterator_retry=_POLICY,
)
_START = StartingPosition.trim_horizon()


@define(eq=False, kw_only=True)
class _ServiceWithClock(StoredShard):
    """A service whose clock is behind that of this machine."""

    clock: ManualClock
    behind: timedelta

    async def locate(self, position: StartingPosition) -> int:
        instant = position.timestamp
        if instant is not None and instant > self.clock.now() - self.behind:
            raise InvalidArgumentError("in the future", operation="GetShardIterator")
        return await super().locate(position)


def search_in(shard: ShardBehaviour, clock: ManualClock) -> tuple[RecordSearch, FakeDataPlane]:
    plane = FakeDataPlane(shard)
    context = PublisherContext(
        data_plane=plane, control_plane=FakeControlPlane(), clock=clock, events=lambda _: None
    )

    async def is_listed(_: Shard) -> bool:
        return True

    guard = DataLossGuard(
        fail=True, events=context.events, describe=context.control_plane.describe_stream
    )
    pages = partial(
        polled_pages,
        PollingRecordPublisherFactory(_CONFIG, context).create,
        lambda shard: MissingShard(shard, guard, is_listed, clock, context.events),
    )
    return RecordSearch(pages), plane


def last_number(count: int) -> SequenceNumber:
    return SequenceNumber(sample_records(count)[-1].sequence_number)


async def test_a_search_goes_on_when_the_stream_was_not_found_for_a_moment() -> None:
    clock = ManualClock()
    missing = StreamNotFoundError("not found", operation="GetRecords")
    shard = FailingCalls(
        StoredShard(sample_records(10)), on_locate=(missing,), on_read=(missing, missing)
    )
    search, _ = search_in(shard, clock)
    until = clock.now() + timedelta(seconds=5)
    found = await finish(search.last_record(sample_shard(), since=_START, until=until), clock)
    assert found == last_number(5)


async def test_a_search_takes_few_small_calls() -> None:
    clock = ManualClock()
    # They arrive one second apart, from the clock's first instant on.
    search, plane = search_in(StoredShard(sample_records(50_000)), clock)
    until = clock.now() + timedelta(seconds=40_000)
    found = await finish(search.last_record(sample_shard(), since=_START, until=until), clock)
    assert found == last_number(40_000)
    assert len(plane.iterator_calls) == len(plane.records_calls) < 10
    assert {call.limit for call in plane.records_calls} == {100}


async def test_an_instant_that_the_service_has_not_reached_is_waited_for() -> None:
    clock = ManualClock()
    behind = timedelta(seconds=20)
    service = _ServiceWithClock(records=sample_records(5), clock=clock, behind=behind)
    search, _ = search_in(service, clock)
    began = clock.now()
    position = StartingPosition.at_timestamp(began)
    found = await finish(search.first_record(sample_shard(), position), clock)
    # It arrived at this very instant.
    assert found == last_number(1)
    assert clock.now() - began >= behind


async def test_a_closed_shard_has_no_record_after_its_last_one() -> None:
    clock = ManualClock()
    shard = StoredShard(sample_records(5), is_closed=True)
    search, _ = search_in(shard, clock)
    last = StartingPosition.at(last_number(5))
    after = StartingPosition.after(last_number(5))
    closed = sample_shard(is_closed=True)
    assert await finish(search.first_record(closed, after), clock) is None
    assert await finish(search.first_record(closed, last), clock) == last_number(5)


async def test_a_search_sees_the_records_of_a_page_in_their_order() -> None:
    class Reversing(StoredShard):
        async def read(self, index: int, limit: int) -> Answer:
            answer = await super().read(index, limit)
            return evolve(answer, records=answer.records[::-1])

    clock = ManualClock()
    search, _ = search_in(Reversing(sample_records(500)), clock)
    until = clock.now() + timedelta(seconds=411)
    found = await finish(search.last_record(sample_shard(), since=_START, until=until), clock)
    assert found == last_number(411)
