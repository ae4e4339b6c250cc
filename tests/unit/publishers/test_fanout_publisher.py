"""What one subscription delivers, and where the next one begins."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import RunResult, SequenceNumber, StartingPosition
from kinesis_publishers.errors import InternalServiceError
from kinesis_publishers.events import EventReceived, SubscriptionEnded, SubscriptionStarted
from kinesis_publishers.testing.fakes import (
    SUCCESSOR,
    FakeSubscription,
    RecordingConsumer,
    bounded_shard,
    event_of,
    events,
    finish,
    sample_records,
)
from kinesis_publishers.testing.local_kinesis import Fault, LocalKinesis
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.publishers.fanout_support import CONSUMER_ARN, FanOut

if TYPE_CHECKING:
    from kinesis_publishers.model import SubscriptionEvent

LAST = event_of(sample_records(1, first=9), continuation=None, child_shards=(SUCCESSOR,))


def after(number: str) -> StartingPosition:
    return StartingPosition.after(SequenceNumber(number))


def has_processed(number: str | None) -> RecordingConsumer:
    """Return a consumer that says of every batch that it has come to this record."""

    async def process(_batch: object) -> SequenceNumber | None:
        return None if number is None else SequenceNumber(number)

    return RecordingConsumer(process)


async def test_it_subscribes_with_the_registered_consumer_at_the_starting_position():
    fan_out = FanOut.of(bounded_shard(1, 1))
    await fan_out.run(RecordingConsumer())
    (call,) = fan_out.plane.subscribe_calls
    assert (call.shard_id, call.consumer_arn) == ("shardId-000000000000", CONSUMER_ARN)
    assert call.position == StartingPosition.trim_horizon()


async def test_a_subscription_that_the_service_ended_is_continued_after_its_last_event():
    fan_out, consumer = FanOut.of(bounded_shard(6, 6, per_subscription=2)), RecordingConsumer()
    assert await fan_out.run_to_end(consumer) == 3
    assert [r.data for r in consumer.records] == [r.data for r in sample_records(6)]
    assert fan_out.positions == [StartingPosition.trim_horizon(), after("992"), after("994")]


async def test_an_empty_event_moves_the_continuation_but_no_record():
    last = event_of(sample_records(1), continuation=None, child_shards=(SUCCESSOR,))
    plane = events(event_of(continuation="500"), None, last)
    fan_out, consumer = FanOut.of(plane), RecordingConsumer()
    assert await fan_out.run(consumer) is RunResult.INCOMPLETE
    assert [len(batch) for batch in consumer.batches] == [0]
    assert await fan_out.run(consumer) is RunResult.COMPLETE
    assert fan_out.positions == [StartingPosition.trim_horizon(), after("500")]


async def test_an_empty_event_tells_the_lag():
    plane = events(event_of(continuation="1", millis_behind_latest=4711))
    consumer = RecordingConsumer()
    await FanOut.of(plane).run(consumer)
    assert [batch.millis_behind_latest for batch in consumer.batches] == [4711]


@pytest.mark.parametrize(
    ("pushed", "processed", "expected"),
    [
        ([event_of(sample_records(2), continuation="7777")], "991", "991"),
        ([event_of(sample_records(2)), event_of(continuation="7777")], "991", "991"),
        ([event_of(sample_records(2)), event_of(continuation="7777")], "992", "7777"),
    ],
    ids=["with its records", "empty, before all is processed", "empty, after that"],
)
async def test_a_continuation_is_used_once_everything_before_it_is_processed(
    pushed: list[SubscriptionEvent], processed: str, expected: str
):
    fan_out, consumer = FanOut.of(events(*pushed)), has_processed(processed)
    for _ in range(2):
        await fan_out.run(consumer)
    assert [len(batch) for batch in consumer.batches] == [2, 0][: len(pushed)]
    assert fan_out.positions[1] == after(expected)


async def test_position_stays_while_nothing_has_been_processed():
    start = StartingPosition.at_timestamp(datetime(2026, 1, 1, tzinfo=UTC))
    fan_out = FanOut.of(events(event_of(sample_records(1))), start=start)
    consumer = has_processed(None)
    await fan_out.run(consumer)
    await fan_out.run(consumer)
    assert fan_out.positions == [start, start]


async def test_the_next_subscription_waits_until_five_seconds_after_the_last_one_began():
    fan_out, consumer = FanOut.of(bounded_shard(3, 3, per_subscription=1)), RecordingConsumer()
    await fan_out.run_to_end(consumer)
    assert fan_out.clock.sleeps == [5.0, 5.0]


async def test_a_subscription_that_lasted_longer_is_reopened_at_once():
    async def take_a_while(batch):
        await fan_out.clock.sleep(20.0)
        return batch.last_sequence_number

    fan_out = FanOut.of(bounded_shard(2, 2, per_subscription=1))
    await fan_out.run_to_end(RecordingConsumer(take_a_while))
    assert 5.0 not in fan_out.clock.sleeps


async def test_everything_that_arrived_before_the_subscription_is_delivered_with_lag_zero():
    """An event does not say when it was made: what counts is when the subscription began."""

    async def take_a_while(batch):
        await fan_out.clock.sleep(20.0)
        return batch.last_sequence_number

    fan_out = FanOut.of(bounded_shard(2, 2))
    began_at = fan_out.clock.now()
    consumer = RecordingConsumer(take_a_while)
    await fan_out.run(consumer, within=200.0)
    assert [batch.requested_at for batch in consumer.batches] == [began_at, began_at]


async def test_an_event_that_was_waited_for_was_made_after_the_wait_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A shard without records has an event every few seconds: it is at its tip, and says so."""
    wait = FakeSubscription.wait_for_event

    async def wait_long(subscription: FakeSubscription) -> int | None:
        await fan_out.clock.sleep(5.0)
        return await wait(subscription)

    monkeypatch.setattr(FakeSubscription, "wait_for_event", wait_long)
    fan_out = FanOut.of(events(*[event_of(continuation="500")] * 3, LAST))
    began_at = fan_out.clock.now()
    consumer = RecordingConsumer()
    await fan_out.run(consumer, within=200.0)
    seconds = [(batch.requested_at - began_at).total_seconds() for batch in consumer.batches]
    assert seconds == [0.0, 4.0, 9.0, 14.0]


async def test_an_event_without_continuation_and_without_children_is_not_the_end_of_the_shard():
    invalid = event_of(sample_records(1), continuation=None)
    fan_out, consumer = FanOut.of(events(invalid, LAST)), RecordingConsumer()
    assert await fan_out.run(consumer) is RunResult.INCOMPLETE
    assert await fan_out.run(consumer) is RunResult.COMPLETE
    assert fan_out.positions[1] == after("991")
    assert [r.sequence_number for r in consumer.records] == ["991", "1000"]


async def test_an_empty_event_does_not_lead_back_to_what_was_processed_before():
    """That may be trimmed: it is why reading began again at TRIM_HORIZON."""
    fan_out = FanOut.of(events(event_of(continuation=None), LAST))
    await fan_out.run_to_end(has_processed("12"))
    assert fan_out.positions == [StartingPosition.trim_horizon()] * 2


async def test_an_error_of_the_consumer_is_not_taken_for_one_of_the_service():
    error = ConnectionResetError("of the application")

    async def fail(_batch: object) -> SequenceNumber:
        raise error

    fan_out = FanOut.of(bounded_shard(2, 2))
    with pytest.raises(ConnectionResetError) as caught:
        await fan_out.run(RecordingConsumer(fail))
    assert caught.value is error
    assert [one.is_closed for one in fan_out.plane.subscriptions] == [True]


async def test_a_subscription_without_an_answer_is_given_up_after_the_timeout():
    server = LocalKinesis(clock=ManualClock())
    server.add_fault(Fault("SubscribeToShard", "delay", delay_seconds=60))
    fan_out = FanOut.of(server.data_plane(), subscribe_timeout_seconds=17.0)
    assert await fan_out.run(RecordingConsumer(), within=18.0) is RunResult.INCOMPLETE
    assert fan_out.clock.monotonic() >= 17.0


async def test_the_life_of_a_subscription_is_reported():
    fan_out = FanOut.of(bounded_shard(3, 3, per_subscription=1))
    await fan_out.run_to_end(RecordingConsumer())
    started = fan_out.events_of(SubscriptionStarted)
    assert [event.position for event in started] == fan_out.positions
    assert [event.is_reopened for event in started] == [False, True, True]
    assert [event.reason for event in fan_out.events_of(SubscriptionEnded)] == [
        "the service ended it",
        "the service ended it",
        "the shard has ended",
    ]
    assert [event.records for event in fan_out.events_of(EventReceived)] == [1, 1, 1]


async def test_the_end_of_a_subscription_says_why_and_after_how_long():
    async def fail_after_a_while(_batch: object) -> SequenceNumber:
        await fan_out.clock.sleep(20.0)
        raise ValueError("of the application")

    fan_out = FanOut.of(events(InternalServiceError("AWS failed"), event_of(sample_records(1))))
    consumer = RecordingConsumer(fail_after_a_while)
    await fan_out.run(consumer)
    with pytest.raises(ValueError, match="of the application"):
        await fan_out.run(consumer)
    assert [(one.reason, one.seconds) for one in fan_out.events_of(SubscriptionEnded)] == [
        ("AWS failed", 0.0),
        ("the reader stopped or failed", 20.0),
    ]


async def test_stopping_between_two_events_drops_what_is_not_taken_yet():
    class Stop(BaseException):
        pass

    async def stop(_batch: object) -> SequenceNumber:
        raise Stop

    fan_out, consumer = FanOut.of(bounded_shard(5, 5)), RecordingConsumer(stop)
    with pytest.raises(Stop):
        await finish(fan_out.publisher.run(consumer), fan_out.clock)
    assert fan_out.plane.subscriptions[0].taken == 1
    assert len(consumer.batches) == 1
