"""What follows when a subscription cannot be opened, or breaks."""

from __future__ import annotations

from datetime import timedelta

import pytest
from attrs import evolve

from kinesis_publishers import RunResult, SequenceNumber, StartingPosition
from kinesis_publishers.config.retries import RecoverableErrors
from kinesis_publishers.errors import (
    AccessDeniedError,
    ConnectionFailedError,
    ConsumerNotFoundError,
    EncryptionKeyError,
    InternalServiceError,
    InvalidArgumentError,
    LimitExceededError,
    MalformedResponseError,
    PositionTrimmedError,
    ResourceInUseError,
    RetriesExhaustedError,
    ServiceError,
    StreamNotFoundError,
    ThroughputExceededError,
)
from kinesis_publishers.events import Throttled
from kinesis_publishers.testing.fakes import (
    SUCCESSOR,
    RecordingConsumer,
    event_of,
    events,
    sample_records,
)
from tests.unit.publishers.fanout_support import CONSUMER_ARN, POLICY, FanOut, KnownConsumer

LAST = event_of(sample_records(1), continuation=None, child_shards=(SUCCESSOR,))
NOT_FOUND = StreamNotFoundError(
    "not found", code="ResourceNotFoundException", request_id="request-7"
)
DENIED = AccessDeniedError("Allow kinesis:SubscribeToShard", code="AccessDeniedException")


async def read(*pushed: object, **options: object) -> tuple[FanOut, RecordingConsumer]:
    """Read a shard that pushes this to its end."""
    return await _read(FanOut.of(events(*pushed, LAST), **options))


async def read_after(*refusals: Exception, **options: object) -> tuple[FanOut, RecordingConsumer]:
    """Read a shard to its end that refuses the first subscriptions."""
    return await _read(FanOut.of(events(LAST, refusals=refusals), **options))


async def _read(fan_out: FanOut) -> tuple[FanOut, RecordingConsumer]:
    consumer = RecordingConsumer()
    await fan_out.run_to_end(consumer, within=1000.0)
    return fan_out, consumer


@pytest.fixture(params=[read, read_after], ids=["when it breaks", "when it is refused"])
def reading(request: pytest.FixtureRequest):
    """Let the errors come after, or instead of, the acceptance of the subscription."""
    return request.param


@pytest.mark.parametrize(
    "error",
    [
        ConnectionFailedError("reset"),
        ConnectionFailedError("silence", code="SubscriptionSilent"),
        ResourceInUseError("too young"),
        LimitExceededError("rate"),
        ThroughputExceededError("quota"),
    ],
    ids=lambda error: str(error),
)
async def test_what_says_nothing_about_the_next_call_never_exhausts_the_retries(
    reading, error: Exception
):
    fan_out, consumer = await reading(*[error] * 20)
    assert len(fan_out.plane.subscribe_calls) == 21
    assert len(consumer.records) == 1


async def test_twenty_refusals_in_a_row_wait_at_least_a_second_each():
    *first, last = sample_records(5)
    one_each = [item for one in first for item in (event_of([one]), None)]
    end = event_of([last], continuation=None, child_shards=(SUCCESSOR,))
    limited = LimitExceededError("Rate exceeded", code="LimitExceededException")
    shard = events(*one_each, end, refusals=[None, limited] * 5)
    fan_out, consumer = FanOut.of(shard), RecordingConsumer()
    await fan_out.run_to_end(consumer)
    assert len(consumer.records) == 5
    assert min(fan_out.clock.sleeps) >= 1.0
    assert len(fan_out.events_of(Throttled)) == 4


@pytest.mark.parametrize(
    "error", [InternalServiceError("failed"), MalformedResponseError("bad checksum")], ids=str
)
async def test_other_retryable_errors_count(reading, error: ServiceError):
    with pytest.raises(RetriesExhaustedError) as caught:
        await reading(*[error] * 10)
    assert caught.value.__cause__ is error
    assert caught.value.attempts == POLICY.max_retries + 1


async def test_other_retryable_errors_are_repeated_while_an_outage_may_last(reading):
    error, patient = InternalServiceError("failed"), evolve(POLICY, outage_seconds=300.0)
    _, consumer = await reading(*[error] * 50, subscribe_retry=patient)
    assert len(consumer.records) == 1


async def test_the_count_begins_anew_with_every_event():
    error, heartbeat = InternalServiceError("failed"), event_of(continuation="1")
    fan_out, _ = await read(*[heartbeat, error, error, error] * 5)
    assert len(fan_out.plane.subscribe_calls) == 16


async def test_events_before_an_error_are_delivered_and_then_gone_on_from():
    first, second, last = sample_records(3)
    fan_out, consumer = await _read(
        FanOut.of(
            events(
                event_of([first]),
                ConnectionFailedError("reset"),
                event_of([second]),
                InternalServiceError("failed"),
                event_of([last], continuation=None, child_shards=(SUCCESSOR,)),
            )
        )
    )
    assert [r.data for r in consumer.records] == [r.data for r in sample_records(3)]
    assert [str(position) for position in fan_out.positions] == [
        "TRIM_HORIZON",
        "AFTER_SEQUENCE_NUMBER 991",
        "AFTER_SEQUENCE_NUMBER 992",
    ]


@pytest.mark.parametrize("error", [DENIED, EncryptionKeyError("no key")], ids=str)
async def test_a_permanent_error_ends_the_reading_at_once(reading, error: Exception):
    with pytest.raises(type(error)) as caught:
        await reading(error)
    assert caught.value is error


async def test_an_error_is_judged_by_its_whole_cause_chain(reading):
    wrapped = RuntimeError("in a custom plane")
    wrapped.__cause__ = ConnectionFailedError("reset")
    fan_out, _ = await reading(*[wrapped] * 10)
    assert len(fan_out.plane.subscribe_calls) == 11
    fatal = RuntimeError("in a custom plane")
    fatal.__cause__ = DENIED
    with pytest.raises(AccessDeniedError):
        await reading(fatal)


async def test_an_error_that_is_not_one_of_the_service_is_not_repeated(reading):
    with pytest.raises(ZeroDivisionError):
        await reading(ZeroDivisionError("a defect"))


async def test_errors_that_the_user_names_are_repeated_wherever_they_stand_in_the_chain(reading):
    recoverable = RecoverableErrors.parse(["AccessDeniedException", "ssl.SSLError"])
    import ssl

    wrapped = InternalServiceError("failed")
    wrapped.__cause__ = ssl.SSLError("bad record")
    fan_out, _ = await reading(*[DENIED, wrapped] * 10, recoverable_errors=recoverable)
    assert len(fan_out.plane.subscribe_calls) == 21


async def test_a_sequence_number_that_the_service_does_not_know_is_lost_data():
    start = StartingPosition.after(SequenceNumber("12"))
    with pytest.raises(PositionTrimmedError, match="AFTER_SEQUENCE_NUMBER 12"):
        await read_after(InvalidArgumentError("unknown"), start=start)


async def test_an_instant_in_the_future_of_the_service_is_waited_for():
    fan_out = FanOut.of(events())
    start = StartingPosition.at_timestamp(fan_out.clock.now() + timedelta(seconds=20))
    fan_out, consumer = await read_after(*[InvalidArgumentError("future")] * 15, start=start)
    assert fan_out.clock.sleeps == [1.0] * 15
    assert len(consumer.records) == 1


async def test_an_instant_that_is_refused_for_another_reason_is_an_error():
    fan_out = FanOut.of(events())
    start = StartingPosition.at_timestamp(fan_out.clock.now() - timedelta(days=2))
    with pytest.raises(InvalidArgumentError):
        await read_after(InvalidArgumentError("too old"), start=start)


async def test_without_a_sequence_number_nothing_is_said_to_be_lost():
    with pytest.raises(InvalidArgumentError) as caught:
        await read_after(InvalidArgumentError("bad consumer"))
    assert type(caught.value) is InvalidArgumentError


async def test_what_the_user_calls_recoverable_is_so_even_where_it_would_mean_lost_data():
    named = RecoverableErrors.parse(["InvalidArgumentException"])
    refusals = [InvalidArgumentError("for now", code="InvalidArgumentException")] * 20
    start = StartingPosition.after(SequenceNumber("12"))
    fan_out, _ = await read_after(*refusals, start=start, recoverable_errors=named)
    assert fan_out.positions == [start] * 21


async def test_throttles_of_either_kind_are_reported():
    fan_out, _ = await read_after(LimitExceededError("rate"), ThroughputExceededError("quota"))
    assert len(fan_out.events_of(Throttled)) == 2


async def test_a_lag_that_is_stuck_at_the_retention_is_a_position_that_is_gone():
    stuck = event_of(continuation="12", millis_behind_latest=86_400_000)
    start = StartingPosition.after(SequenceNumber("12"))
    with pytest.raises(PositionTrimmedError, match="stuck at 86400000 ms"):
        await read(*[stuck] * 30, start=start)


async def test_a_shard_that_ends_has_not_lost_its_position_however_it_lags():
    stuck = event_of(continuation="12", millis_behind_latest=86_400_000)
    end = event_of(continuation=None, child_shards=(SUCCESSOR,), millis_behind_latest=86_400_000)
    fan_out = FanOut.of(
        events(*[stuck] * 10, end), start=StartingPosition.after(SequenceNumber("12"))
    )
    assert await fan_out.run(RecordingConsumer()) is RunResult.COMPLETE


class TestWhenSomethingIsNotFound:
    async def test_a_consumer_that_was_registered_again_is_used_from_then_on(self):
        again = CONSUMER_ARN.replace("1700000000", "1700000099")
        fan_out, consumer = await read(NOT_FOUND, registrar=KnownConsumer(arn=again))
        assert fan_out.registrar.renewals == [CONSUMER_ARN]
        assert fan_out.control_plane.list_calls == [], "nothing else was missing"
        arns = [call.consumer_arn for call in fan_out.plane.subscribe_calls]
        assert arns == [CONSUMER_ARN, again]
        assert len(consumer.records) == 1

    async def test_nothing_is_said_to_have_ended(self):
        fan_out = FanOut.of(events(refusals=[NOT_FOUND] * 100))
        assert await fan_out.run(RecordingConsumer()) is RunResult.INCOMPLETE

    async def test_if_the_consumer_is_there_it_is_the_stream_or_the_shard(self):
        with pytest.raises(StreamNotFoundError) as caught:
            await read(NOT_FOUND)
        assert caught.value is NOT_FOUND

    async def test_a_consumer_that_is_not_registered_is_an_error(self):
        gone = ConsumerNotFoundError("the consumer is gone")
        with pytest.raises(ConsumerNotFoundError) as caught:
            await read(NOT_FOUND, registrar=KnownConsumer(renew_error=gone))
        assert caught.value is gone

    async def test_a_consumer_that_is_registered_again_and_again_counts_as_a_failure(self):
        class DeletedAgainAndAgain(KnownConsumer):
            async def renew(self, stream_arn: str, consumer_arn: str) -> str:
                return f"{consumer_arn}0"

        with pytest.raises(
            RetriesExhaustedError,
            match=r"not found\. The consumer was registered again\. .* ResourceNotFound",
        ) as caught:
            await read(*[NOT_FOUND] * 10, registrar=DeletedAgainAndAgain())
        assert caught.value.__cause__.request_id == "request-7"

    async def test_a_question_without_an_answer_is_asked_again_by_a_later_run(self):
        busy = KnownConsumer(renew_error=InternalServiceError("DescribeStreamConsumer is busy"))
        with pytest.raises(RetriesExhaustedError, match="DescribeStreamConsumer is busy"):
            await read(*[NOT_FOUND] * 10, registrar=busy)
        assert len(busy.renewals) > 1

    async def test_a_question_that_is_not_allowed_is_an_error(self):
        with pytest.raises(AccessDeniedError):
            await read(NOT_FOUND, registrar=KnownConsumer(renew_error=DENIED))
