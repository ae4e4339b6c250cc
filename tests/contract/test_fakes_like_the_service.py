"""A fake answers as the service does: the same expectations of each fake and of LocalKinesis."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from attrs import field, frozen

from kinesis_publishers import DataPlane, Record, SequenceNumber, StartingPosition
from kinesis_publishers.errors import (
    InternalServiceError,
    IteratorExpiredError,
    LimitExceededError,
    StreamNotFoundError,
    ThroughputExceededError,
)
from kinesis_publishers.model import Shard
from kinesis_publishers.testing import fakes
from kinesis_publishers.testing.local_kinesis import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesis_publishers import PublisherContext
    from kinesis_publishers.model import RecordPage, SubscriptionEvent
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from tests.contract.service_subjects import ShiftedClock

pytestmark = pytest.mark.asyncio(loop_scope="module")
TRIM_HORIZON = StartingPosition.trim_horizon()
STREAM = "orders"
CONSUMER = fakes.CONSUMER_NAME
RECORDS = fakes.sample_records(10)


@frozen(kw_only=True)
class Service:
    """Either of the two; ``is_fake`` says which behaviour a test has to arrange."""

    server: LocalKinesis
    clock: ShiftedClock
    clients: PublisherContext
    is_fake: bool
    stream_arn: str = field(init=False)

    @stream_arn.default
    def _stream_arn(self) -> str:
        region, account = self.server.behaviour.region, self.server.behaviour.account_id
        local = f"arn:aws:kinesis:{region}:{account}:stream/{STREAM}"
        return fakes.STREAM_ARN if self.is_fake else local

    @property
    def shard(self) -> Shard:
        return Shard(stream_arn=self.stream_arn, shard_id="shardId-000000000000")

    def data_plane(
        self,
        fake: Callable[[], DataPlane],
        *faults: Fault,
        records: int = 10,
        held: Sequence[Record] = RECORDS,
        is_closed: bool = True,
    ) -> DataPlane:
        """Return the fake, or a client of a stream that holds the same and has ``faults``."""
        if self.is_fake:
            return fake()
        self.clock.shift = -timedelta(seconds=records)
        self.server.create_stream(STREAM)
        for one in held[:records]:
            self.server.put_many(STREAM, [(one.partition_key, one.data)])
            self.clock.shift += timedelta(seconds=1)
        if is_closed:
            self.server.reshard(STREAM, 2)
        for fault in faults:
            self.server.add_fault(fault)
        return self.clients.data_plane

    def consumer_arn(self) -> str:
        """Return the consumer that subscribes."""
        if self.is_fake:
            return f"{self.stream_arn}/consumer/{CONSUMER}:1"
        return self.server.register_consumer(STREAM, CONSUMER)


@pytest.fixture(params=[True, False], ids=["fake", "LocalKinesis"])
def service(
    request: pytest.FixtureRequest,
    server: LocalKinesis,
    server_clock: ShiftedClock,
    clients: PublisherContext,
) -> Service:
    server.reset()
    server_clock.shift = timedelta()
    return Service(server=server, clock=server_clock, clients=clients, is_fake=request.param)


async def poll(
    plane: DataPlane, shard: Shard, start: StartingPosition = TRIM_HORIZON, limit: int = 4
) -> list[RecordPage]:
    """Return every answer from ``start`` to the end of the shard."""
    iterator: str | None = await plane.get_shard_iterator(shard, start)
    pages = []
    while iterator is not None:
        pages.append(await plane.get_records(shard, iterator, limit))
        iterator = pages[-1].next_shard_iterator
    return pages


def keys_of(pages: Sequence[RecordPage]) -> list[str]:
    return [key for page in pages for key in page.partition_keys]


def keys(records: Sequence[Record]) -> list[str]:
    return [one.partition_key for one in records]


def refused(fault: str, times: int = 1, **more: object) -> Fault:
    return Fault(fault, "error", times=times, **more)  # type: ignore[arg-type]


# Polling


async def test_records_in_calls_ends_with_the_children_of_the_shard(service: Service) -> None:
    plane = service.data_plane(lambda: fakes.records_in_calls(10, 3))
    pages = await poll(plane, service.shard)
    assert [len(page.payloads) for page in pages][:-1] == ([3, 3] if service.is_fake else [4, 4])
    assert keys_of(pages) == keys(RECORDS)
    assert pages[-1].millis_behind_latest == 0
    assert [bool(page.child_shards) for page in pages] == [False, False, True]


@pytest.mark.parametrize("index", [0, 4, 9])
async def test_positions_lead_to_the_same_records(service: Service, index: int) -> None:
    plane = service.data_plane(lambda: fakes.records_in_calls(10, 3))
    pages = await poll(plane, service.shard)
    numbers = [number for page in pages for number in page.sequence_numbers]
    arrivals = [arrival for page in pages for arrival in page.arrival_epoch_seconds]
    instant = fakes.sample_records(1)[0]._replace(arrival_epoch_seconds=arrivals[index])
    at = SequenceNumber(numbers[index])
    starts = {
        StartingPosition.at(at): index,
        StartingPosition.after(at): index + 1,
        StartingPosition.at_timestamp(instant.approximate_arrival_timestamp): index,
        StartingPosition.latest(): 10,
    }
    for start, first in starts.items():
        assert keys_of(await poll(plane, service.shard, start)) == keys(RECORDS[first:]), start


async def test_empty_shard_has_answers_without_records_and_ends(service: Service) -> None:
    plane = service.data_plane(lambda: fakes.empty_shard(3), records=0, is_closed=False)
    iterator = await plane.get_shard_iterator(service.shard, TRIM_HORIZON)
    for number in range(3):
        if number == 2 and not service.is_fake:
            service.server.reshard(STREAM, 2)
        page = await plane.get_records(service.shard, iterator or "", 10)
        assert (len(page.payloads), page.millis_behind_latest) == (0, 0)
        iterator = page.next_shard_iterator
        assert (iterator is None) is (number == 2)


async def test_expired_iterator_after_wants_another_iterator(service: Service) -> None:
    expired = refused("GetRecords", code="ExpiredIteratorException", every=2)
    plane = service.data_plane(lambda: fakes.expired_iterator_after(1, records=10), expired)
    iterator = await plane.get_shard_iterator(service.shard, TRIM_HORIZON)
    page = await plane.get_records(service.shard, iterator, 3)
    with pytest.raises(IteratorExpiredError) as caught:
        await plane.get_records(service.shard, page.next_shard_iterator or "", 3)
    assert (caught.value.code, caught.value.retryable) == ("ExpiredIteratorException", False)
    after = StartingPosition.after(SequenceNumber(page.sequence_numbers[-1]))
    assert keys_of([page, *await poll(plane, service.shard, after)]) == keys(RECORDS)


async def test_throttled_refuses_and_then_answers(service: Service) -> None:
    throttle = Fault("GetRecords", "throttle", times=2)
    plane = service.data_plane(lambda: fakes.throttled(2), throttle)
    iterator = await plane.get_shard_iterator(service.shard, TRIM_HORIZON)
    for _ in range(2):
        with pytest.raises(ThroughputExceededError) as caught:
            await plane.get_records(service.shard, iterator, 10)
        assert caught.value.code == "ProvisionedThroughputExceededException"
        assert (caught.value.operation, caught.value.retryable) == ("GetRecords", True)
    page = await plane.get_records(service.shard, iterator, 10)
    assert keys_of([page]) == keys(RECORDS)


async def test_aggregated_holds_what_the_service_would_give_back(service: Service) -> None:
    held = fakes.sample_aggregates(6, 3)
    plane = service.data_plane(lambda: fakes.aggregated(2, 3, 3), held=held)
    pages = await poll(plane, service.shard)
    assert [data for page in pages for data in page.payloads] == [one.data for one in held]
    assert keys_of(pages) == keys(held) == ["a"] * 6
    assert [bool(page.child_shards) for page in pages] == [False] * (len(pages) - 1) + [True]


async def test_live_feed_hands_out_what_is_written_meanwhile(service: Service) -> None:
    queue: asyncio.Queue = asyncio.Queue()
    plane = service.data_plane(lambda: fakes.live_feed(queue), records=0, is_closed=False)
    iterator: str | None = await plane.get_shard_iterator(service.shard, TRIM_HORIZON)
    for written in ([], RECORDS[:3], [], RECORDS[3:]):
        if service.is_fake:
            queue.put_nowait(written)
        else:
            service.server.put_many(STREAM, [(one.partition_key, one.data) for one in written])
        page = await plane.get_records(service.shard, iterator or "", 10)
        assert keys_of([page]) == keys(written)
        iterator = page.next_shard_iterator
    queue.put_nowait(None)
    if not service.is_fake:
        service.server.reshard(STREAM, 2)
    page = await plane.get_records(service.shard, iterator or "", 10)
    assert (page.next_shard_iterator, bool(page.child_shards)) == (None, True)


# Fan-out


async def take(
    plane: DataPlane,
    service: Service,
    arn: str,
    start: StartingPosition = TRIM_HORIZON,
    *,
    into: list[SubscriptionEvent] | None = None,
) -> list[SubscriptionEvent]:
    """Subscribe once; return (and put ``into``) the events until it ends."""
    taken: list[SubscriptionEvent] = [] if into is None else into
    async with plane.subscribe_to_shard(service.shard, arn, start) as subscription:
        while await subscription.wait_for_event() is not None:
            taken.append(await subscription.receive())
            if taken[-1].continuation_sequence_number is None:
                break
    return taken


def keys_in(events: Sequence[SubscriptionEvent]) -> list[str]:
    return keys_of([event.page for event in events])


async def test_bounded_shard_ends_without_a_continuation(service: Service) -> None:
    plane = service.data_plane(lambda: fakes.bounded_shard(10, 2))
    taken = await take(plane, service, service.consumer_arn())
    assert keys_in(taken) == keys(RECORDS)
    ends = [one.continuation_sequence_number is None for one in taken]
    assert ends == [bool(one.page.child_shards) for one in taken] == [False, True]
    assert taken[0].continuation_sequence_number == SequenceNumber(
        taken[0].page.sequence_numbers[-1]
    )


async def test_bounded_shard_goes_on_after_its_continuation(service: Service) -> None:
    end = Fault("SubscribeToShard", "end", after_events=1)
    plane = service.data_plane(lambda: fakes.bounded_shard(10, 2, per_subscription=1), end)
    arn = service.consumer_arn()
    first = await take(plane, service, arn)
    assert keys_in(first) == keys(RECORDS[:5])
    reached = first[-1].continuation_sequence_number
    assert reached is not None
    rest = await take(plane, service, arn, StartingPosition.after(reached))
    assert keys_in(rest) == keys(RECORDS[5:])


async def test_rnf_when_subscribing_is_not_found(service: Service) -> None:
    missing = refused("SubscribeToShard", code="ResourceNotFoundException")
    plane = service.data_plane(fakes.rnf_when_subscribing, missing)
    with pytest.raises(StreamNotFoundError) as caught:
        await take(plane, service, service.consumer_arn())
    assert caught.value.code == "ResourceNotFoundException"
    assert (caught.value.operation, caught.value.retryable) == ("SubscribeToShard", False)


async def test_an_error_during_a_subscription_comes_after_the_events_before_it(
    service: Service,
) -> None:
    error = InternalServiceError("x", operation="SubscribeToShard", code="InternalFailureException")
    failing = Fault("SubscribeToShard", "exception", after_events=1, code=error.code)
    plane = service.data_plane(lambda: fakes.error_during_subscription(error, records=10), failing)
    taken: list[SubscriptionEvent] = []
    with pytest.raises(InternalServiceError) as caught:
        await take(plane, service, service.consumer_arn(), into=taken)
    assert len(taken) == 1
    assert (caught.value.code, caught.value.retryable) == ("InternalFailureException", True)


async def test_alternating_success_and_error_refuses_every_second_call(service: Service) -> None:
    end = Fault("SubscribeToShard", "end", after_events=1, times=None)
    limit = refused("SubscribeToShard", times=5, code="LimitExceededException", every=2)
    plane = service.data_plane(fakes.alternating_success_and_error, limit, end)
    arn = service.consumer_arn()
    outcomes = []
    for _ in range(4):
        try:
            outcomes.append(len(await take(plane, service, arn)))
        except LimitExceededError as error:
            outcomes.append(error.code)
    assert outcomes == [1, "LimitExceededException", 1, "LimitExceededException"]


async def test_never_answers_does_neither(service: Service) -> None:
    plane = service.data_plane(
        fakes.never_answers, Fault("SubscribeToShard", "delay", delay_seconds=60)
    )
    work = take(plane, service, service.consumer_arn())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(work, 0.2)


async def test_pushes_without_demand_always_has_another_event(service: Service) -> None:
    plane = service.data_plane(lambda: fakes.pushes_without_demand(10))
    arn = service.consumer_arn()
    async with plane.subscribe_to_shard(service.shard, arn, TRIM_HORIZON) as subscription:
        for _ in range(2):
            sizes = {await subscription.wait_for_event() for _ in range(3)}
            event = await subscription.receive()
            # Waiting again takes nothing.
            assert sizes == {sum(map(len, event.page.payloads))} or not service.is_fake
            assert event.page.payloads


async def test_empty_event_then_record_goes_on_after_the_heartbeat(service: Service) -> None:
    end = Fault("SubscribeToShard", "end", after_events=1)
    plane = service.data_plane(fakes.empty_event_then_record, end, records=0, is_closed=False)
    arn = service.consumer_arn()
    (heartbeat,) = await take(plane, service, arn)
    assert (keys_in([heartbeat]), heartbeat.page.millis_behind_latest) == ([], 0)
    assert heartbeat.continuation_sequence_number is not None
    if not service.is_fake:
        service.server.put_many(STREAM, [("key-0", b"value")])
        service.server.reshard(STREAM, 2)
    start = StartingPosition.after(heartbeat.continuation_sequence_number)
    assert keys_in(await take(plane, service, arn, start)) == ["key-0"]
