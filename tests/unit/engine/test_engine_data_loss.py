"""When records count as lost, and what follows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from attrs import define, evolve, field

from kinesis_publishers import (
    Event,
    SequenceNumber,
    Shard,
    ShardProgress,
    StartingPosition,
)
from kinesis_publishers.engine.data_loss import DataLossGuard
from kinesis_publishers.errors import DataLossError, PositionTrimmedError, StreamRecreatedError
from kinesis_publishers.events import DataLossTolerated
from kinesis_publishers.testing import ManualClock
from kinesis_publishers.testing.fakes import STREAM_ARN, FakeStream, sample_shard

if TYPE_CHECKING:
    from kinesis_publishers.model import StreamSummary


NOW = datetime(2026, 1, 10, tzinfo=UTC)
DAY = timedelta(days=1)
SHARD = sample_shard()
FIRST = SequenceNumber("9")
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
    created_at: datetime = NOW
    guard: DataLossGuard = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.guard = DataLossGuard(
            fail=self.fail,
            events=self.events.append,
            clock=ManualClock(NOW),
            describe=self.describe,
        )

    async def describe(self, stream_arn: str) -> StreamSummary:
        self.questions.append(stream_arn)
        seconds = self.retention.total_seconds()
        return FakeStream(retention_seconds=seconds, created_at=self.created_at).summary

    async def check_gap(
        self, age: timedelta, following: timedelta, *, later: timedelta = timedelta()
    ) -> None:
        """Let a record follow that came so long after what was read so long ago."""
        now = NOW + later
        before = progress(now - age)
        arrived = now - age + following
        await self.guard.check_retention(SHARD, before, now, first=FIRST, arrived=arrived)


@pytest.mark.parametrize(
    "safe",
    [progress(None), progress(NOW - 9 * DAY, is_ended=True), progress(NOW - DAY)],
    ids=["unknown", "ended", "younger than any retention"],
)
async def test_progress_that_cannot_have_lost_anything_costs_no_call(safe: ShardProgress):
    guarded = Guarded()
    await guarded.guard.check_retention(SHARD, safe, NOW)
    await guarded.guard.check_retention(SHARD, safe, NOW, first=FIRST, arrived=NOW)
    assert guarded.questions == []


async def test_progress_beyond_the_retention_is_an_error_that_says_what_to_do():
    with pytest.raises(PositionTrimmedError) as caught:
        await Guarded().guard.check_retention(SHARD, progress(NOW - 2 * DAY), NOW)
    message = str(caught.value)
    assert message.startswith("orders/shardId-000000000000: everything up to 2026-01-08T00:00")
    assert "AFTER_SEQUENCE_NUMBER 5" in message
    assert "24 hours" in message
    assert "kinesis.failondataloss = false" in message


async def test_a_retention_that_was_lengthened_is_noticed():
    guarded = Guarded()
    guarded.retention = 7 * DAY
    await guarded.guard.check_retention(SHARD, progress(NOW - 2 * DAY), NOW)


async def test_a_retention_that_is_shortened_under_a_reader_that_is_behind_is_loss():
    guarded = Guarded(retention=7 * DAY)
    await guarded.check_gap(2 * DAY, timedelta(hours=30))
    guarded.retention = DAY
    with pytest.raises(PositionTrimmedError, match="24 hours only"):
        await guarded.check_gap(2 * DAY, timedelta(hours=30))
    assert len(guarded.questions) == 2


async def test_records_that_came_one_after_the_other_cost_a_call_a_minute():
    guarded = Guarded(retention=7 * DAY)
    for seconds in range(90):
        await guarded.check_gap(2 * DAY, timedelta(seconds=1), later=timedelta(seconds=seconds))
    assert len(guarded.questions) == 2


async def test_a_reader_from_the_edge_of_the_retention_may_miss_some_seconds():
    guarded = Guarded()
    await guarded.check_gap(DAY + timedelta(seconds=20), timedelta(minutes=1))
    with pytest.raises(PositionTrimmedError, match="may have been removed unread"):
        await guarded.check_gap(DAY + timedelta(seconds=20), timedelta(minutes=1))


@pytest.mark.parametrize("gap", [0.5, 1.0, 7.0])
async def test_a_reader_that_stays_at_the_edge_of_the_retention_loses_records(gap: float):
    guarded, missing = Guarded(), timedelta(seconds=gap)
    for _ in range(int(30 / gap)):
        await guarded.check_gap(DAY + missing, missing)
    with pytest.raises(PositionTrimmedError, match="may have been removed unread"):
        await guarded.check_gap(DAY + missing, missing)


async def test_a_shard_that_was_idle_at_the_edge_of_the_retention_has_lost_nothing():
    guarded = Guarded()
    for _ in range(7):
        await guarded.check_gap(DAY + timedelta(seconds=1), timedelta(hours=2))


async def test_tolerated_loss_says_between_which_places_and_instants_records_are_missing():
    guarded = Guarded(fail=False)
    await guarded.check_gap(2 * DAY, 1.5 * DAY)
    (event,) = guarded.events
    assert isinstance(event, DataLossTolerated)
    assert (event.position, event.since) == (POSITION, NOW - 2 * DAY)
    assert (event.until, event.next_record) == (NOW - DAY, FIRST)


async def test_a_stream_that_was_created_again_is_told_from_positions_that_are_trimmed():
    guarded = Guarded(fail=False)
    guarded.guard.note_identity(FakeStream(created_at=NOW).identity)
    await guarded.guard.check_identity(STREAM_ARN)
    guarded.created_at = NOW + DAY
    with pytest.raises(StreamRecreatedError, match="deleted and created again"):
        await guarded.guard.check_identity(STREAM_ARN)
    with pytest.raises(StreamRecreatedError, match="deleted and created again"):
        await guarded.guard.report_trimmed(SHARD, progress(NOW), cause=LookupError())


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


_HALVES = [
    evolve(sample_shard(0), ending_hash_key=str(2**127 - 1)),
    evolve(sample_shard(1), starting_hash_key=str(2**127)),
]


def _audit(guarded: Guarded, listings: list[list[Shard]], seconds: float = 120.0) -> None:
    for number, listed in enumerate(listings):
        guarded.guard.audit(STREAM_ARN, listed, number * seconds)


def test_hash_keys_without_a_shard_for_three_looks_are_an_error() -> None:
    _audit(Guarded(), [_HALVES[:1]] * 2 + [_HALVES] + [_HALVES[1:]] * 2)
    with pytest.raises(DataLossError, match=f"0 to {2**127 - 1}: the listing lacks a shard"):
        _audit(Guarded(), [_HALVES, *[_HALVES[1:]] * 3])


def test_looks_are_two_minutes_apart() -> None:
    _audit(Guarded(), [_HALVES[1:]] * 24, seconds=10.0)
    with pytest.raises(DataLossError):
        _audit(Guarded(), [_HALVES[1:]] * 25, seconds=10.0)


def test_a_tolerated_hole_is_reported_once_while_it_lasts() -> None:
    guarded = Guarded(fail=False)
    _audit(guarded, [_HALVES[:1]] * 5 + [_HALVES] + [_HALVES[:1]] * 5)
    messages = [event.message for event in guarded.events if isinstance(event, DataLossTolerated)]
    assert len(messages) == 2
    assert f"{2**127} to {2**128 - 1}" in messages[0]
