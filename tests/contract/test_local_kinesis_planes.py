"""The planes in process answer as the clients of production do over HTTP."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers import Record, SequenceNumber, StartingPosition
from kinesis_publishers.errors import (
    ConnectionFailedError,
    ConsumerNotFoundError,
    InternalServiceError,
    InvalidArgumentError,
    IteratorExpiredError,
    LimitExceededError,
    MalformedResponseError,
    ResourceInUseError,
    ServiceError,
    StreamNotFoundError,
    ThroughputExceededError,
)
from kinesis_publishers.model import Shard
from kinesis_publishers.testing.fakes import sample_records
from kinesis_publishers.testing.local_kinesis import Fault
from tests.contract.service_subjects import BEHAVIOUR, LIMITS, InProcessService

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from kinesis_publishers import DataPlane
    from kinesis_publishers.abc import ControlPlane
    from kinesis_publishers.model import RecordPage, SubscriptionEvent
    from tests.contract.service_subjects import Service

pytestmark = pytest.mark.asyncio(loop_scope="module")
TRIM_HORIZON = StartingPosition.trim_horizon()
STREAM = "orders"
CONSUMER = "billing"
FIRST_SHARD = "shardId-000000000000"
RECORDS = sample_records(10)
NOT_AWS = "<html>gateway timeout</html>"


def arn_in(service: Service) -> str:
    return service.arn_of(STREAM)


def shard_in(service: Service) -> Shard:
    return Shard(stream_arn=arn_in(service), shard_id=FIRST_SHARD)


def keys_of(pages: Sequence[RecordPage]) -> list[str]:
    return [key for page in pages for key in page.partition_keys]


def keys(records: Sequence[Record]) -> list[str]:
    return [one.partition_key for one in records]


async def error_of(work: Awaitable[object]) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        await work
    return caught.value


async def closed_shard(service: Service, *faults: Fault) -> DataPlane:
    """Hold :data:`RECORDS` in a shard that has ended; return the plane that reads it."""
    await service.hold(STREAM, RECORDS)
    service.server.reshard(STREAM, 2)
    for fault in faults:
        service.server.add_fault(fault)
    return service.clients.data_plane


async def open_shard(service: Service, *faults: Fault) -> DataPlane:
    service.server.create_stream(STREAM)
    for fault in faults:
        service.server.add_fault(fault)
    return service.clients.data_plane


# Polling


async def poll(
    service: Service, start: StartingPosition = TRIM_HORIZON, limit: int = 4
) -> list[RecordPage]:
    """Return every answer from ``start`` to the end of the shard."""
    plane, shard = service.clients.data_plane, shard_in(service)
    iterator: str | None = await plane.get_shard_iterator(shard, start)
    pages = []
    while iterator is not None:
        pages.append(await plane.get_records(shard, iterator, limit))
        iterator = pages[-1].next_shard_iterator
    return pages


async def test_a_closed_shard_ends_with_its_children(service: Service) -> None:
    await closed_shard(service)
    pages = await poll(service)
    assert [len(page.payloads) for page in pages] == [4, 4, 2]
    assert keys_of(pages) == keys(RECORDS)
    assert [data for page in pages for data in page.payloads] == [one.data for one in RECORDS]
    assert pages[-1].millis_behind_latest == 0
    assert [len(page.child_shards) for page in pages] == [0, 0, 2]
    assert {one.parent_shard_ids for one in pages[-1].child_shards} == {(FIRST_SHARD,)}


@pytest.mark.parametrize("index", [0, 4, 9])
async def test_positions_lead_to_the_same_records(service: Service, index: int) -> None:
    await closed_shard(service)
    pages = await poll(service)
    numbers = [number for page in pages for number in page.sequence_numbers]
    arrivals = [arrival for page in pages for arrival in page.arrival_epoch_seconds]
    instant = sample_records(1)[0]._replace(arrival_epoch_seconds=arrivals[index])
    at = SequenceNumber(numbers[index])
    starts = {
        StartingPosition.at(at): index,
        StartingPosition.after(at): index + 1,
        StartingPosition.at_timestamp(instant.approximate_arrival_timestamp): index,
        StartingPosition.latest(): 10,
    }
    for start, first in starts.items():
        assert keys_of(await poll(service, start)) == keys(RECORDS[first:]), start


async def test_an_open_shard_hands_out_what_is_written_meanwhile(service: Service) -> None:
    plane, shard = await open_shard(service), shard_in(service)
    iterator: str | None = await plane.get_shard_iterator(shard, TRIM_HORIZON)
    for written in ([], RECORDS[:3], [], RECORDS[3:]):
        service.server.put_many(STREAM, [(one.partition_key, one.data) for one in written])
        page = await plane.get_records(shard, iterator or "", 10)
        assert (keys_of([page]), page.millis_behind_latest) == (keys(written), 0)
        iterator = page.next_shard_iterator
    service.server.reshard(STREAM, 2)
    page = await plane.get_records(shard, iterator or "", 10)
    assert (page.next_shard_iterator, bool(page.child_shards)) == (None, True)


async def test_an_expired_iterator_is_refused(service: Service) -> None:
    expired = Fault("GetRecords", "error", code="ExpiredIteratorException", every=2)
    plane, shard = await closed_shard(service, expired), shard_in(service)
    iterator = await plane.get_shard_iterator(shard, TRIM_HORIZON)
    page = await plane.get_records(shard, iterator, 3)
    error = await error_of(plane.get_records(shard, page.next_shard_iterator or "", 3))
    assert type(error) is IteratorExpiredError
    assert (error.code, error.retryable) == ("ExpiredIteratorException", False)
    after = StartingPosition.after(SequenceNumber(page.sequence_numbers[-1]))
    assert keys_of([page, *await poll(service, after)]) == keys(RECORDS)


async def test_a_throttled_call_is_refused_and_then_answered(service: Service) -> None:
    plane = await closed_shard(service, Fault("GetRecords", "throttle", times=2))
    shard = shard_in(service)
    iterator = await plane.get_shard_iterator(shard, TRIM_HORIZON)
    for _ in range(2):
        error = await error_of(plane.get_records(shard, iterator, 10))
        assert type(error) is ThroughputExceededError
        assert error.code == "ProvisionedThroughputExceededException"
        assert (error.operation, error.retryable) == ("GetRecords", True)
    assert keys_of([await plane.get_records(shard, iterator, 10)]) == keys(RECORDS)


@pytest.mark.parametrize("operation", ["GetShardIterator", "GetRecords"])
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"kind": "error", "code": "ValidationException"}, InvalidArgumentError),
        ({"kind": "error", "code": "NewException"}, ServiceError),
        ({"kind": "body", "status": 200, "message": NOT_AWS}, MalformedResponseError),
        ({"kind": "body", "status": 404, "message": NOT_AWS}, MalformedResponseError),
        ({"kind": "body", "status": 503, "message": NOT_AWS}, InternalServiceError),
        ({"kind": "reset"}, ConnectionFailedError),
        ({"kind": "truncate"}, ConnectionFailedError),
    ],
    ids=str,
)
async def test_a_failing_call_raises_the_same_error(
    service: Service, operation: str, fault: dict, kind: type[ServiceError]
) -> None:
    plane, shard = await closed_shard(service, Fault(operation, **fault)), shard_in(service)

    async def read() -> None:
        await plane.get_records(shard, await plane.get_shard_iterator(shard, TRIM_HORIZON), 1)

    error = await error_of(read())
    assert (type(error), error.operation) == (kind, operation)
    assert str(shard) in str(error) or kind is MalformedResponseError


# Fan-out


async def take(
    service: Service,
    arn: str,
    start: StartingPosition = TRIM_HORIZON,
    *,
    into: list[SubscriptionEvent] | None = None,
) -> list[SubscriptionEvent]:
    """Subscribe once; return (and put ``into``) the events until it ends."""
    taken: list[SubscriptionEvent] = [] if into is None else into
    plane, shard = service.clients.data_plane, shard_in(service)
    async with plane.subscribe_to_shard(shard, arn, start) as subscription:
        while await subscription.wait_for_event() is not None:
            taken.append(await subscription.receive())
            if taken[-1].continuation_sequence_number is None:
                break
    return taken


def keys_in(events: Sequence[SubscriptionEvent]) -> list[str]:
    return keys_of([event.page for event in events])


def registered(service: Service) -> str:
    return service.server.register_consumer(STREAM, CONSUMER)


async def test_a_subscription_to_a_closed_shard_ends_without_a_continuation(
    service: Service,
) -> None:
    await closed_shard(service)
    taken = await take(service, registered(service))
    assert keys_in(taken) == keys(RECORDS)
    ends = [one.continuation_sequence_number is None for one in taken]
    assert ends == [bool(one.page.child_shards) for one in taken] == [False, True]
    last = SequenceNumber(taken[0].page.sequence_numbers[-1])
    assert taken[0].continuation_sequence_number == last
    assert service.server.open_subscriptions() == 0


async def test_a_subscription_continues_after_its_continuation(service: Service) -> None:
    await closed_shard(service, Fault("SubscribeToShard", "end", after_events=1))
    arn = registered(service)
    first = await take(service, arn)
    assert keys_in(first) == keys(RECORDS[:5])
    reached = first[-1].continuation_sequence_number
    assert reached is not None
    assert keys_in(await take(service, arn, StartingPosition.after(reached))) == keys(RECORDS[5:])


@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        ("ResourceNotFoundException", ConsumerNotFoundError, False),
        ("LimitExceededException", LimitExceededError, True),
    ],
)
async def test_a_refused_subscription_raises_the_same_error(
    service: Service, code: str, kind: type[ServiceError], retryable: bool
) -> None:
    await closed_shard(service, Fault("SubscribeToShard", "error", code=code))
    error = await error_of(take(service, registered(service)))
    assert issubclass(type(error), (kind, StreamNotFoundError))
    assert (error.code, error.retryable) == (code, retryable)
    assert error.operation == "SubscribeToShard"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"kind": "exception", "code": "InternalFailureException"}, InternalServiceError),
        ({"kind": "reset"}, ConnectionFailedError),
        ({"kind": "reset_mid_event"}, ConnectionFailedError),
        ({"kind": "truncated_frame"}, ConnectionFailedError),
        ({"kind": "bad_crc"}, MalformedResponseError),
    ],
    ids=str,
)
async def test_an_error_during_a_subscription_comes_after_the_events_before_it(
    service: Service, fault: dict, kind: type[ServiceError]
) -> None:
    await closed_shard(service, Fault("SubscribeToShard", after_events=1, **fault))
    taken: list[SubscriptionEvent] = []
    error = await error_of(take(service, registered(service), into=taken))
    assert (type(error), len(taken)) == (kind, 1)


async def test_a_call_that_is_not_answered_can_be_cancelled(service: Service) -> None:
    await closed_shard(service, Fault("SubscribeToShard", "delay", delay_seconds=60))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(take(service, registered(service)), 0.05)


async def test_waiting_for_an_event_takes_nothing(service: Service) -> None:
    plane, shard = await closed_shard(service), shard_in(service)
    arn = registered(service)
    async with plane.subscribe_to_shard(shard, arn, TRIM_HORIZON) as subscription:
        assert len({await subscription.wait_for_event() for _ in range(3)}) == 1
        assert keys_in([await subscription.receive()]) == keys(RECORDS[:5])


async def test_a_subscription_continues_after_a_heartbeat(service: Service) -> None:
    await open_shard(service, Fault("SubscribeToShard", "end", after_events=1))
    arn = registered(service)
    (heartbeat,) = await service.finish(take(service, arn))
    assert (keys_in([heartbeat]), heartbeat.page.millis_behind_latest) == ([], 0)
    assert heartbeat.continuation_sequence_number is not None
    service.server.put_many(STREAM, [("key-0", b"value")])
    service.server.reshard(STREAM, 2)
    start = StartingPosition.after(heartbeat.continuation_sequence_number)
    assert keys_in(await take(service, arn, start)) == ["key-0"]


async def test_a_subscription_that_is_left_is_closed() -> None:
    service = InProcessService()
    plane, shard = await open_shard(service), shard_in(service)
    async with plane.subscribe_to_shard(shard, registered(service), TRIM_HORIZON) as subscription:
        assert service.server.open_subscriptions() == 1
        waiting = asyncio.ensure_future(subscription.wait_for_event())
        await service.clock.settle()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert service.server.open_subscriptions() == 0


# Streams and consumers


def control_plane(service: Service, *, changes_take: float = 0.0) -> ControlPlane:
    service.server.create_stream(STREAM)
    service.server.behaviour = evolve(
        BEHAVIOUR, consumer_creating_seconds=changes_take, consumer_deleting_seconds=changes_take
    )
    return service.clients.control_plane


async def test_a_stream_is_described_by_its_name_and_by_its_arn(service: Service) -> None:
    plane = control_plane(service)
    summary = await plane.describe_stream(STREAM)
    assert summary == await plane.describe_stream(arn_in(service))
    assert (summary.identity.arn, summary.status) == (arn_in(service), "ACTIVE")
    assert summary.retention_seconds == 24 * 3600.0
    assert summary.identity.created_at.utcoffset() == timedelta(0)


async def test_shards_are_listed_page_by_page_and_since_an_instant(service: Service) -> None:
    service.server.limits = evolve(LIMITS, list_shards_max_results=2)
    plane = control_plane(service)
    created_at = (await plane.describe_stream(STREAM)).identity.created_at
    service.server.reshard(STREAM, 4)
    listed = await plane.list_shards(arn_in(service))
    assert len(listed) == 7
    assert listed[0].ending_sequence_number is not None
    assert listed[1].parent_shard_id == listed[0].shard_id
    await service.let_pass(60)
    since = created_at + timedelta(seconds=10)
    assert await plane.list_shards(arn_in(service), since=since) == tuple(
        one for one in listed if one.ending_sequence_number is None
    )
    # An instant beyond the retention is refused by some services, and means everything.
    long_ago = created_at - timedelta(days=30)
    service.server.add_fault(Fault("ListShards", "error", code="InvalidArgumentException"))
    assert await plane.list_shards(arn_in(service), since=long_ago) == listed
    service.server.limits = LIMITS


async def test_a_listing_continues_with_the_page_that_was_refused(service: Service) -> None:
    service.server.limits = evolve(LIMITS, list_shards_max_results=2)
    plane = control_plane(service)
    service.server.reshard(STREAM, 4)
    service.server.add_fault(Fault("ListShards", "throttle", every=2, times=None))
    for _ in range(3):  # the second, the third and the last page
        assert type(await error_of(plane.list_shards(arn_in(service)))) is LimitExceededError
    assert len({one.shard_id for one in await plane.list_shards(arn_in(service))}) == 7
    assert len(service.server.calls("ListShards")) == 7


@pytest.mark.parametrize(
    ("code", "calls"), [("LimitExceededException", 4), ("ExpiredNextTokenException", 5)]
)
async def test_a_listing_of_streams_continues_unless_its_token_has_ended(
    service: Service, code: str, calls: int
) -> None:
    names = {f"more-{number:03}" for number in range(250)}  # three pages
    for name in sorted(names):
        service.server.create_stream(name)
    plane = control_plane(service)
    service.server.add_fault(Fault("ListStreams", "error", code=code, every=2, times=1))
    await error_of(plane.list_streams())
    assert {one.name for one in await plane.list_streams()} >= names
    assert len(service.server.calls("ListStreams")) == calls


async def test_without_a_stream_nothing_is_found(service: Service) -> None:
    plane, arn = service.clients.control_plane, arn_in(service)
    assert type(await error_of(plane.describe_stream(STREAM))) is StreamNotFoundError
    assert type(await error_of(plane.list_shards(arn))) is StreamNotFoundError
    describing = plane.describe_stream_consumer(arn, CONSUMER)
    assert type(await error_of(describing)) is ConsumerNotFoundError
    registering = plane.register_stream_consumer(arn, CONSUMER)
    assert type(await error_of(registering)) is StreamNotFoundError


async def test_a_consumer_is_registered_described_listed_and_removed(service: Service) -> None:
    plane, arn = control_plane(service, changes_take=10), arn_in(service)
    absent = await error_of(plane.describe_stream_consumer(arn, CONSUMER))
    assert (type(absent), absent.code) == (ConsumerNotFoundError, "ResourceNotFoundException")
    created = await plane.register_stream_consumer(arn, CONSUMER)
    assert created.status == "CREATING"
    assert created.arn.startswith(f"{arn}/consumer/{CONSUMER}:")
    again = await error_of(plane.register_stream_consumer(arn, CONSUMER))
    assert (type(again), again.code) == (ResourceInUseError, "ResourceInUseException")
    await service.let_pass(10)
    found = await plane.describe_stream_consumer(arn, CONSUMER)
    assert found == evolve(created, status="ACTIVE")
    assert await plane.list_stream_consumers(arn) == (found,)
    await plane.deregister_stream_consumer(found.arn)
    leaving = await plane.describe_stream_consumer(arn, CONSUMER)
    assert leaving.status == "DELETING"
    await service.let_pass(10)
    gone = await error_of(plane.describe_stream_consumer(arn, CONSUMER))
    assert type(gone) is ConsumerNotFoundError
    missing = await error_of(plane.deregister_stream_consumer(found.arn))
    assert type(missing) is ConsumerNotFoundError


async def test_consumers_are_listed_page_by_page(service: Service) -> None:
    plane = control_plane(service)
    names = [f"reader-{number:03d}" for number in range(101)]
    for name in names:
        service.server.register_consumer(STREAM, name)
    listed = await plane.list_stream_consumers(arn_in(service))
    assert [one.name for one in listed] == names


async def test_a_registration_above_a_limit_is_refused_and_can_be_repeated(
    service: Service,
) -> None:
    plane = control_plane(service)
    service.server.add_fault(Fault("RegisterStreamConsumer", "throttle", times=2))
    for _ in range(2):
        error = await error_of(plane.register_stream_consumer(arn_in(service), CONSUMER))
        assert (type(error), error.code) == (LimitExceededError, "LimitExceededException")
        assert error.retryable
    assert (await plane.register_stream_consumer(arn_in(service), CONSUMER)).status == "ACTIVE"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"kind": "reset"}, ConnectionFailedError),
        ({"kind": "body", "status": 200, "message": "null"}, MalformedResponseError),
        ({"kind": "body", "status": 503, "message": NOT_AWS}, InternalServiceError),
    ],
    ids=str,
)
async def test_a_failing_call_of_the_control_plane_raises_the_same_error(
    service: Service, fault: dict, kind: type[ServiceError]
) -> None:
    plane = control_plane(service)
    service.server.add_fault(Fault("DescribeStreamSummary", **fault))
    error = await error_of(plane.describe_stream(STREAM))
    assert (type(error), error.operation) == (kind, "DescribeStreamSummary")


async def test_a_delayed_answer_waits_on_the_clock_of_the_service(service: Service) -> None:
    plane = control_plane(service)
    service.server.add_fault(Fault("DescribeStreamSummary", "delay", delay_seconds=0.05))
    summary = await service.finish(plane.describe_stream(STREAM))
    assert summary.identity.name == STREAM
