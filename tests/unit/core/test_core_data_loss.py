"""When records count as lost, and what follows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers import Event, SequenceNumber, ShardProgress, StartingPosition
from kinesis_publishers.data_loss import DataLossGuard, is_beyond_retention
from kinesis_publishers.errors import PositionTrimmedError, StreamRecreatedError
from kinesis_publishers.events import DataLossTolerated
from kinesis_publishers.testing.fakes import STREAM_ARN, sample_shard

NOW = datetime(2026, 1, 10, tzinfo=UTC)
DAY = timedelta(days=1)
SHARD = sample_shard()
POSITION = StartingPosition.after(SequenceNumber("5"))


def progress(as_of: datetime | None, *, is_ended: bool = False) -> ShardProgress:
    return ShardProgress(position=POSITION, as_of=as_of, is_ended=is_ended)


@define(eq=False)
class Guarded:
    """A guard, and what it did."""

    fail: bool = True
    retention: timedelta = DAY
    questions: list[str] = field(factory=list)
    events: list[Event] = field(factory=list)
    guard: DataLossGuard = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.guard = DataLossGuard(
            fail=self.fail, events=self.events.append, retention_seconds=self.answer
        )

    async def answer(self, stream_arn: str) -> float:
        self.questions.append(stream_arn)
        return self.retention.total_seconds()


@given(st.timedeltas(timedelta(0), timedelta(days=400)), st.integers(24, 8760))
def test_what_was_read_up_to_an_instant_within_the_retention_is_safe(age: timedelta, hours: int):
    is_beyond = is_beyond_retention(progress(NOW - age), NOW, hours * 3600.0)
    assert is_beyond == (age > timedelta(hours=hours))


@pytest.mark.parametrize(
    "safe", [progress(None), progress(NOW - 9 * DAY, is_ended=True)], ids=["unknown", "ended"]
)
async def test_a_shard_that_has_ended_or_was_never_read_has_lost_nothing(safe: ShardProgress):
    guarded = Guarded()
    await guarded.guard.check_retention(SHARD, safe, NOW)
    assert guarded.questions == []


async def test_progress_beyond_the_retention_is_an_error_that_says_what_to_do():
    with pytest.raises(PositionTrimmedError) as caught:
        await Guarded().guard.check_retention(SHARD, progress(NOW - 2 * DAY), NOW)
    message = str(caught.value)
    assert message.startswith("orders/shardId-000000000000: everything up to 2026-01-08T00:00")
    assert "AFTER_SEQUENCE_NUMBER 5" in message
    assert "24 hours" in message
    assert "kinesis.failondataloss = false" in message


async def test_loss_that_is_tolerated_is_reported():
    guarded = Guarded(fail=False)
    await guarded.guard.check_retention(SHARD, progress(NOW - 2 * DAY), NOW)
    (event,) = guarded.events
    assert isinstance(event, DataLossTolerated)
    assert event.shard == SHARD.key


async def test_the_service_is_asked_once_while_nothing_is_suspicious():
    guarded = Guarded()
    for minutes in range(100):
        recent = progress(NOW - timedelta(minutes=minutes))
        await guarded.guard.check_retention(SHARD, recent, NOW)
    assert guarded.questions == [STREAM_ARN]


async def test_a_retention_that_was_lengthened_is_noticed():
    guarded = Guarded()
    await guarded.guard.check_retention(SHARD, progress(NOW), NOW)
    guarded.retention = 7 * DAY
    await guarded.guard.check_retention(SHARD, progress(NOW - 2 * DAY), NOW)
    assert guarded.questions == [STREAM_ARN] * 2
    await guarded.guard.check_retention(SHARD, progress(NOW - 2 * DAY), NOW)
    assert guarded.questions == [STREAM_ARN] * 2


async def test_each_stream_has_its_own_retention():
    guarded = Guarded()
    other = sample_shard(stream_arn="arn:aws:kinesis:eu-west-1:123456789012:stream/payments")
    for shard in (SHARD, other, SHARD, other):
        await guarded.guard.check_retention(shard, progress(NOW), NOW)
    assert guarded.questions == [STREAM_ARN, other.stream_arn]


def test_a_loss_is_raised_as_the_kind_that_it_is_with_its_cause():
    cause = LookupError("what showed it")
    with pytest.raises(StreamRecreatedError, match="gone") as caught:
        Guarded().guard.report(SHARD.key, "gone.", kind=StreamRecreatedError, cause=cause)
    assert caught.value.__cause__ is cause


async def test_loss_that_is_tolerated_is_reported_once_for_each_place():
    guarded = Guarded(fail=False)
    for age in (3 * DAY, 3 * DAY, 2 * DAY, 2 * DAY):
        await guarded.guard.check_retention(SHARD, progress(NOW - age), NOW)
    assert len(guarded.events) == 2
    assert len(guarded.questions) == 2


async def test_a_retention_that_is_known_is_asked_for_only_in_doubt():
    guarded = Guarded(fail=False)
    guarded.guard.note_retention(SHARD.stream_arn, DAY.total_seconds())
    await guarded.guard.check_retention(SHARD, progress(NOW), NOW)
    assert guarded.questions == []
    await guarded.guard.check_retention(SHARD, progress(NOW - 2 * DAY), NOW)
    assert guarded.questions == [SHARD.stream_arn]
