"""The contract of publishers can fail: each way to break it is caught by the test that names it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers.testing.contracts import RecordPublisherContract, subjects
from tests.contract.broken_publishers import (
    AcceptsLatest,
    AsksAgainAtOnce,
    AsksForNegativeRoom,
    BeginsAgain,
    CountsMilliseconds,
    DeliversBehindTheBack,
    DeliversText,
    DeliversTwoAtOnce,
    EndsAnOpenShard,
    EndsTooEarly,
    ForgetsThatItHasEnded,
    GoesOnAfterWhatItDelivered,
    GoesOnWhenCancelled,
    Hangs,
    HasANegativeLag,
    HasWrongArrivals,
    IgnoresTimestamps,
    IsAlwaysAtTheTip,
    LeavesATask,
    LosesAColumn,
    NamesAnotherShard,
    NeverEnds,
    PacesInRealTime,
    RaisesGroups,
    RepeatsARecord,
    RetriesInTheRun,
    ReturnsCancelled,
    ReturnsNothing,
    SharesItsPlace,
    SkipsTheFirst,
    SkipsTheRestOfAnAggregate,
    SleepsInRealTime,
    SleepsWithRoom,
    StripsPayloads,
    SwallowsCancellation,
    SwallowsErrors,
    SwallowsErrorsOfRoom,
    TakesAfterForAt,
    TakesAtForAfter,
    TakesItsEndBack,
    TurnsBatchesRound,
    WrapsErrors,
)
from tests.contract.list_publisher import ListFactory, ListPublisher, ListSubject, subject_of

if TYPE_CHECKING:
    from kinesis_publishers import PublisherContext

EACH_ONCE = "test_each_record_is_delivered_once_in_order"
PROCESSING = "test_it_can_be_cancelled_while_processing"
ERROR = "test_an_error_of_the_consumer_is_passed_on"
ROOM = "test_an_error_of_waiting_is_passed_on"
THROTTLED = "test_while_it_is_throttled_it_holds_no_room"
INTERRUPTED = "test_it_continues_after_an_interruption"
POSITION = {"index": 5}
FAILURE = {"kind": RuntimeError}
NO_PAYLOAD = {"data": b"", "partition_key": "k"}
CASES: list[tuple[type[ListPublisher], str, dict[str, Any], str]] = [
    (RepeatsARecord, EACH_ONCE, {}, "deliver each record of the shard once"),
    (SkipsTheFirst, EACH_ONCE, {}, "deliver each record of the shard once"),
    (TurnsBatchesRound, EACH_ONCE, {}, "sequence numbers of a batch do not increase"),
    (NeverEnds, EACH_ONCE, {}, "has not returned RunResult.COMPLETE"),
    (NeverEnds, "test_a_shard_without_records_is_complete", {}, "has not returned"),
    (EndsTooEarly, "test_it_is_complete_after_the_last_record", {}, "after 5 of 12 records"),
    (
        IsAlwaysAtTheTip,
        "test_its_lag_is_zero_only_at_the_tip",
        {},
        "millis_behind_latest was 0 after 5 of 12 records",
    ),
    (HasWrongArrivals, EACH_ONCE, {}, "arrival_epoch_seconds 0.0 instead of 1767225600.0"),
    (CountsMilliseconds, EACH_ONCE, {}, "instead of 1767225600.0: .* in seconds since 1970"),
    (
        SharesItsPlace,
        "test_two_publishers_share_no_state",
        {},
        "keep the place in the publisher",
    ),
    (
        ForgetsThatItHasEnded,
        "test_a_shard_that_has_ended_stays_ended",
        {},
        "(nothing may be delivered after COMPLETE|INCOMPLETE after COMPLETE)",
    ),
    (
        TakesItsEndBack,
        "test_a_shard_that_has_ended_stays_ended",
        {},
        "INCOMPLETE after COMPLETE",
    ),
    (EndsAnOpenShard, "test_a_shard_that_is_open_is_never_complete", {}, "has not ended"),
    (
        AsksAgainAtOnce,
        "test_a_shard_that_is_open_is_never_complete",
        {},
        "ended 100 times without waiting",
    ),
    (ReturnsNothing, EACH_ONCE, {}, "run\\(\\) returned None, which is no RunResult"),
    (ReturnsCancelled, EACH_ONCE, {}, "returned CANCELLED though the publisher was not cancelled"),
    (NamesAnotherShard, EACH_ONCE, {}, "delivered by the publisher of orders/shardId-0"),
    (LosesAColumn, EACH_ONCE, {}, "5 payloads and 0 partition_keys"),
    (DeliversText, EACH_ONCE, {}, "payloads of a batch has 'text', of type str"),
    (HasANegativeLag, EACH_ONCE, {}, "millis_behind_latest is -1"),
    (
        StripsPayloads,
        "test_unusual_records_come_through_unchanged",
        NO_PAYLOAD,
        "a payload was changed",
    ),
    (
        TakesAtForAfter,
        "test_at_a_number_it_begins_there",
        POSITION,
        "was to begin AT_SEQUENCE_NUMBER 996, and did not",
    ),
    (
        TakesAfterForAt,
        "test_after_a_number_it_skips_it",
        POSITION,
        "was to begin AFTER_SEQUENCE_NUMBER 996, and did not",
    ),
    (
        SkipsTheRestOfAnAggregate,
        "test_in_an_aggregate_it_begins_with_all",
        {},
        "was to begin AT_SEQUENCE_NUMBER 995:2, and did not",
    ),
    (
        IgnoresTimestamps,
        "test_at_a_timestamp_it_begins_with_what_arrived_then_or_later",
        {**POSITION, "seconds": 0.0},
        "was to begin AT_TIMESTAMP 2026-01-01T00:00:05",
    ),
    (AcceptsLatest, "test_latest_is_refused", {}, "refuse it with a ValueError"),
    (DeliversTwoAtOnce, "test_each_delivery_waits_for_the_consumer", {}, "one at a time"),
    (
        DeliversBehindTheBack,
        "test_each_delivery_waits_for_the_consumer",
        {},
        "while the consumer was still processing",
    ),
    (WrapsErrors, ERROR, FAILURE, "neither swallow nor wrap"),
    (RaisesGroups, ERROR, FAILURE, "a TaskGroup makes a group of it"),
    (SwallowsErrors, ERROR, FAILURE, "run\\(\\) ended with None"),
    (SwallowsErrorsOfRoom, ROOM, {}, "run\\(\\) ended with None"),
    (SleepsInRealTime, "test_a_shard_that_is_open_is_never_complete", {}, "asyncio.sleep"),
    (PacesInRealTime, EACH_ONCE, {}, "sleep on the clock that it was given"),
    (Hangs, PROCESSING, {}, "processes a batch: it did not come to that within"),
    (SwallowsCancellation, PROCESSING, {}, "never swallow it"),
    (GoesOnWhenCancelled, PROCESSING, {}, "let CancelledError pass"),
    (LeavesATask, PROCESSING, {}, "left running"),
    (
        TakesAfterForAt,
        "test_a_later_publisher_continues",
        {},
        "is not the shard",
    ),
    (GoesOnAfterWhatItDelivered, INTERRUPTED, {}, "continue with the one after that"),
    (BeginsAgain, INTERRUPTED, {}, "continue with the one after that"),
    (SleepsWithRoom, THROTTLED, {}, "other shards need that room"),
    (RetriesInTheRun, THROTTLED, {}, "a run that was refused returned"),
    (AsksForNegativeRoom, EACH_ONCE, {}, "it cannot be negative"),
]


@pytest.mark.parametrize(
    ("broken", "test", "arguments", "message"),
    CASES,
    ids=[f"{kind.__name__}-{test}" for kind, test, *_ in CASES],
)
async def test_a_broken_publisher_is_caught(
    broken: type[ListPublisher],
    test: str,
    arguments: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subjects, "CANCELLING_SECONDS", 0.1)
    if broken is Hangs:
        monkeypatch.setattr(subjects, "REACHING_SECONDS", 0.1)
    with pytest.raises(AssertionError, match=message):
        await getattr(RecordPublisherContract(), test)(subject_of(broken), **arguments)


@pytest.mark.parametrize(("test", "arguments"), {case[1]: case[2] for case in CASES}.items())
async def test_the_same_tests_pass_for_a_publisher_that_is_not_broken(
    test: str, arguments: dict[str, Any]
) -> None:
    await getattr(RecordPublisherContract(), test)(subject_of(ListPublisher), **arguments)


def test_every_test_of_the_contract_has_a_part_that_breaks_it() -> None:
    tests = {name for name in dir(RecordPublisherContract) if name.startswith("test_")}
    # Waiting for room ends in the same way as processing, by the same code.
    assert tests - {case[1] for case in CASES} == {
        "test_it_can_be_cancelled_while_waiting",
    }


class _OpensSomething(ListFactory):
    open_ones = 0

    def __init__(self, context: PublisherContext) -> None:
        super().__init__(context)
        type(self).open_ones += 1

    async def close(self) -> None:
        type(self).open_ones -= 1


@pytest.mark.parametrize("publisher", [ListPublisher, RepeatsARecord, GoesOnWhenCancelled])
@pytest.mark.parametrize("test", [EACH_ONCE, PROCESSING, "test_latest_is_refused"])
async def test_what_a_publisher_was_made_with_is_closed_however_a_test_ends(
    publisher: type[ListPublisher], test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subjects, "CANCELLING_SECONDS", 0.1)

    class Factory(_OpensSomething):
        publisher_class = publisher

    class Subject(ListSubject):
        factory_class = Factory

    with suppress(AssertionError):
        await getattr(RecordPublisherContract(), test)(Subject())
    assert Factory.open_ones == 0


async def test_a_factory_that_cannot_be_closed_fails_the_test_that_made_it() -> None:
    class Factory(ListFactory):
        async def close(self) -> None:
            raise LookupError("it has gone")

    class Subject(ListSubject):
        factory_class = Factory

    with pytest.raises(LookupError, match="it has gone"):
        await RecordPublisherContract().test_latest_is_refused(Subject())
