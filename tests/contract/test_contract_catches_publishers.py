"""The contract of publishers can fail: each way to break it is caught by the test that names it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers.testing.contracts import RecordPublisherContract, subjects
from tests.contract import broken_publishers as broken
from tests.contract.list_publisher import ListFactory, ListPublisher, ListSubject, subject_of

if TYPE_CHECKING:
    from kinesis_publishers import PublisherContext

EACH_ONCE = "test_each_record_is_delivered_once_in_order"
CANCELLED = "test_it_can_be_cancelled_while_the_consumer_is"
ERROR = "test_an_error_of_the_consumer_is_passed_on"
THROTTLED = "test_while_it_is_throttled_it_holds_no_room"
INTERRUPTED = "test_it_continues_after_an_interruption"
BEGINS = "test_it_begins_where_it_is_told_to"
PROCESSING = {"place": "processing a batch"}
FAILURE = {**PROCESSING, "kind": RuntimeError}
NO_ROOM = {"place": "waiting for room", "kind": RuntimeError}
NO_PAYLOAD = {"data": b"", "partition_key": "k"}
CASES: list[tuple[type[ListPublisher], str, dict[str, Any], str]] = [
    (broken.RepeatsARecord, EACH_ONCE, {}, "deliver each record of the shard once"),
    (broken.SkipsTheFirst, EACH_ONCE, {}, "deliver each record of the shard once"),
    (broken.TurnsBatchesRound, EACH_ONCE, {}, "sequence numbers of a batch do not increase"),
    (broken.NeverEnds, EACH_ONCE, {}, "has not returned RunResult.COMPLETE"),
    (broken.NeverEnds, "test_a_shard_without_records_is_complete", {}, "has not returned"),
    (broken.EndsTooEarly, EACH_ONCE, {}, "after 5 of 12 records"),
    (
        broken.IsAlwaysAtTheTip,
        "test_its_lag_is_zero_only_at_the_tip",
        {},
        "millis_behind_latest was 0 after 5 of 12 records",
    ),
    (broken.HasWrongArrivals, EACH_ONCE, {}, "arrival_epoch_seconds 0.0 instead of 1767225600.0"),
    (broken.CountsMilliseconds, EACH_ONCE, {}, "instead of 1767225600.0: .* in seconds since 1970"),
    (
        broken.SharesItsPlace,
        "test_two_publishers_share_no_state",
        {},
        "keep the place in the publisher",
    ),
    (
        broken.ForgetsThatItHasEnded,
        "test_a_shard_that_has_ended_stays_ended",
        {},
        "(nothing may be delivered after COMPLETE|INCOMPLETE after COMPLETE)",
    ),
    (
        broken.TakesItsEndBack,
        "test_a_shard_that_has_ended_stays_ended",
        {},
        "INCOMPLETE after COMPLETE",
    ),
    (broken.EndsAnOpenShard, "test_a_shard_that_is_open_is_never_complete", {}, "has not ended"),
    (
        broken.AsksAgainAtOnce,
        "test_a_shard_that_is_open_is_never_complete",
        {},
        "ended 100 times without waiting",
    ),
    (broken.ReturnsNothing, EACH_ONCE, {}, "run\\(\\) returned None, which is no RunResult"),
    (
        broken.ReturnsCancelled,
        EACH_ONCE,
        {},
        "returned CANCELLED though the publisher was not cancelled",
    ),
    (broken.NamesAnotherShard, EACH_ONCE, {}, "delivered by the publisher of orders/shardId-0"),
    (broken.LosesAColumn, EACH_ONCE, {}, "5 payloads and 0 partition_keys"),
    (broken.DeliversText, EACH_ONCE, {}, "payloads of a batch has 'text', of type str"),
    (broken.HasANegativeLag, EACH_ONCE, {}, "millis_behind_latest is -1"),
    (
        broken.StripsPayloads,
        "test_unusual_records_come_through_unchanged",
        NO_PAYLOAD,
        "a payload was changed",
    ),
    (
        broken.TakesAtForAfter,
        BEGINS,
        {"start": "at a number", "index": 5},
        "was to begin AT_SEQUENCE_NUMBER 996, and did not",
    ),
    (
        broken.TakesAfterForAt,
        BEGINS,
        {"start": "after a number", "index": 5},
        "was to begin AFTER_SEQUENCE_NUMBER 996, and did not",
    ),
    (
        broken.SkipsTheRestOfAnAggregate,
        BEGINS,
        {"start": "in an aggregate", "index": 4},
        "was to begin AT_SEQUENCE_NUMBER 995:2, and did not",
    ),
    (
        broken.IgnoresTimestamps,
        BEGINS,
        {"start": "at an arrival", "index": 5},
        "was to begin AT_TIMESTAMP 2026-01-01T00:00:05",
    ),
    (broken.AcceptsLatest, "test_latest_is_refused", {}, "refuse it with a ValueError"),
    (broken.DeliversTwoAtOnce, EACH_ONCE, {}, "one at a time"),
    (
        broken.DeliversBehindTheBack,
        EACH_ONCE,
        {},
        "while the consumer was still processing",
    ),
    (broken.WrapsErrors, ERROR, FAILURE, "neither swallow nor wrap"),
    (broken.RaisesGroups, ERROR, FAILURE, "a TaskGroup makes a group of it"),
    (broken.SwallowsErrors, ERROR, FAILURE, "run\\(\\) ended with None"),
    (broken.SwallowsErrorsOfRoom, ERROR, NO_ROOM, "run\\(\\) ended with None"),
    (broken.SleepsInRealTime, "test_a_shard_that_is_open_is_never_complete", {}, "asyncio.sleep"),
    (broken.PacesInRealTime, EACH_ONCE, {}, "sleep on the clock that it was given"),
    (broken.Hangs, CANCELLED, PROCESSING, "processing a batch: it did not come to that within"),
    (broken.SwallowsCancellation, CANCELLED, PROCESSING, "never swallow it"),
    (broken.GoesOnWhenCancelled, CANCELLED, PROCESSING, "let CancelledError pass"),
    (broken.LeavesATask, CANCELLED, PROCESSING, "left running"),
    (
        broken.TakesAfterForAt,
        "test_a_later_publisher_continues",
        {},
        "is not the shard",
    ),
    (broken.GoesOnAfterWhatItDelivered, INTERRUPTED, {}, "continue with the one after that"),
    (broken.BeginsAgain, INTERRUPTED, {}, "continue with the one after that"),
    (broken.SleepsWithRoom, THROTTLED, {}, "other shards need that room"),
    (broken.RetriesInTheRun, THROTTLED, {}, "a run that was refused returned"),
    (broken.AsksForNegativeRoom, EACH_ONCE, {}, "it cannot be negative"),
]


@pytest.mark.parametrize(
    ("publisher", "test", "arguments", "message"),
    CASES,
    ids=[f"{kind.__name__}-{test}" for kind, test, *_ in CASES],
)
async def test_a_broken_publisher_is_caught(
    publisher: type[ListPublisher],
    test: str,
    arguments: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subjects, "CANCELLING_SECONDS", 0.1)
    if publisher is broken.Hangs:
        monkeypatch.setattr(subjects, "REACHING_SECONDS", 0.1)
    with pytest.raises(AssertionError, match=message):
        await getattr(RecordPublisherContract(), test)(subject_of(publisher), **arguments)


def test_every_test_of_the_contract_has_a_part_that_breaks_it() -> None:
    tests = {name for name in dir(RecordPublisherContract) if name.startswith("test_")}
    assert tests == {case[1] for case in CASES}


class _OpensSomething(ListFactory):
    open_ones = 0

    def __init__(self, context: PublisherContext) -> None:
        super().__init__(context)
        type(self).open_ones += 1

    async def close(self) -> None:
        type(self).open_ones -= 1


@pytest.mark.parametrize(
    "publisher", [ListPublisher, broken.RepeatsARecord, broken.GoesOnWhenCancelled]
)
@pytest.mark.parametrize(
    ("test", "arguments"),
    [(EACH_ONCE, {}), (CANCELLED, PROCESSING), ("test_latest_is_refused", {})],
)
async def test_what_a_publisher_was_made_with_is_closed_however_a_test_ends(
    publisher: type[ListPublisher],
    test: str,
    arguments: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subjects, "CANCELLING_SECONDS", 0.1)

    class Factory(_OpensSomething):
        publisher_class = publisher

    class Subject(ListSubject):
        factory_class = Factory

    with suppress(AssertionError):
        await getattr(RecordPublisherContract(), test)(Subject(), **arguments)
    assert Factory.open_ones == 0


async def test_a_factory_that_cannot_be_closed_fails_the_test_that_made_it() -> None:
    class Factory(ListFactory):
        async def close(self) -> None:
            raise LookupError("it has gone")

    class Subject(ListSubject):
        factory_class = Factory

    with pytest.raises(LookupError, match="it has gone"):
        await RecordPublisherContract().test_latest_is_refused(Subject())
