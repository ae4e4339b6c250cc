"""The contract of publishers can fail: each way to break it is caught by the test that names it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from list_publisher import ListPublisher, subject_of

from kinesis_publishers import RecordBatch, RunResult, SequenceNumber, StartingPosition
from kinesis_publishers.model import PositionType, continue_from
from kinesis_publishers.testing.contracts import RecordPublisherContract, base
from kinesis_publishers.testing.fakes import batch_of, sample_shard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers import Record, RecordBatchConsumer


class RepeatsARecord(ListPublisher):
    async def deliver(self, found: Sequence[Record], consumer: RecordBatchConsumer) -> None:
        await super().deliver(found, consumer)
        await super().deliver(found[-1:], consumer)


class SkipsTheFirst(ListPublisher):
    async def deliver(self, found: Sequence[Record], consumer: RecordBatchConsumer) -> None:
        await super().deliver(found[1:], consumer)


class TurnsBatchesRound(ListPublisher):
    async def deliver(self, found: Sequence[Record], consumer: RecordBatchConsumer) -> None:
        await super().deliver(found[::-1], consumer)


class EndsTooEarly(ListPublisher):
    def result(self) -> RunResult:
        return RunResult.COMPLETE


class NeverEnds(ListPublisher):
    def result(self) -> RunResult:
        return RunResult.INCOMPLETE


class EndsAnOpenShard(ListPublisher):
    is_open = False


class AsksAgainAtOnce(ListPublisher):
    async def read(self, consumer: RecordBatchConsumer) -> None:
        if not self.is_open or self.cursor != len(self.records):
            await super().read(consumer)


class ForgetsThatItHasEnded(ListPublisher):
    def result(self) -> RunResult:
        result = super().result()
        if result is RunResult.COMPLETE:
            self.cursor = None
            self.position = StartingPosition.trim_horizon()
        return result


class TakesItsEndBack(ListPublisher):
    has_ended = False

    def result(self) -> RunResult:
        had_ended, self.has_ended = self.has_ended, super().result() is RunResult.COMPLETE
        return RunResult.INCOMPLETE if had_ended else super().result()


class ReturnsNothing(ListPublisher):
    async def run(self, consumer: RecordBatchConsumer) -> Any:
        await self.read(consumer)


class ReturnsCancelled(ListPublisher):
    def result(self) -> RunResult:
        return RunResult.CANCELLED


class NamesAnotherShard(ListPublisher):
    async def deliver(self, found: Sequence[Record], consumer: RecordBatchConsumer) -> None:
        await consumer(batch_of(found, shard=sample_shard(77)))


class _Delivers(ListPublisher):
    changes: ClassVar[dict[str, Any]] = {}

    async def deliver(self, found: Sequence[Record], consumer: RecordBatchConsumer) -> None:
        columns: dict[str, Any] = {
            "payloads": [one.data for one in found],
            "partition_keys": [one.partition_key for one in found],
            "sequence_numbers": [one.sequence_number for one in found],
            "arrival_epoch_seconds": [one.arrival_epoch_seconds for one in found],
            "requested_at": self.context.clock.now(),
        }
        await consumer(RecordBatch(shard=self.shard, **{**columns, **self.changes}))


class LosesAColumn(_Delivers):
    changes: ClassVar = {"partition_keys": []}


class DeliversText(_Delivers):
    changes: ClassVar = {"payloads": ["text"] * 5, "millis_behind_latest": 0}


class HasANegativeLag(_Delivers):
    changes: ClassVar = {"millis_behind_latest": -1}


class IsAlwaysAtTheTip(ListPublisher):
    def lag_after(self, found: Sequence[Record]) -> int | None:
        return 0


class HasWrongArrivals(ListPublisher):
    async def deliver(self, found: Sequence[Record], consumer: RecordBatchConsumer) -> None:
        await super().deliver([one._replace(arrival_epoch_seconds=0.0) for one in found], consumer)


class CountsMilliseconds(ListPublisher):
    async def deliver(self, found: Sequence[Record], consumer: RecordBatchConsumer) -> None:
        wrong = [
            one._replace(arrival_epoch_seconds=one.arrival_epoch_seconds * 1e3) for one in found
        ]
        await super().deliver(wrong, consumer)


class SharesItsPlace(ListPublisher):
    """All publishers of a shard have one place, which begins anew with each of them."""

    places: ClassVar[dict[str, int]] = {}

    def __init__(self, shard: Any, *arguments: Any) -> None:
        super().__init__(shard, *arguments)
        self.places.pop(shard.shard_id, None)

    async def read(self, consumer: RecordBatchConsumer) -> None:
        self.cursor = self.places.get(self.shard.shard_id)
        await super().read(consumer)
        assert self.cursor is not None
        self.places[self.shard.shard_id] = self.cursor


class StripsPayloads(ListPublisher):
    async def deliver(self, found: Sequence[Record], consumer: RecordBatchConsumer) -> None:
        changed = [one._replace(data=one.data or b"\0") for one in found]
        await super().deliver(changed, consumer)


class TakesAtForAfter(ListPublisher):
    def locate(self) -> int:
        return super().locate() + (self.position.type is PositionType.AT_SEQUENCE_NUMBER)


class TakesAfterForAt(ListPublisher):
    def locate(self) -> int:
        is_after = self.position.type is PositionType.AFTER_SEQUENCE_NUMBER
        return max(0, super().locate() - is_after)


class SkipsTheRestOfAnAggregate(ListPublisher):
    def locate(self) -> int:
        number = self.position.sequence_number
        inside = number is not None and number.sub_sequence_number is not None
        return super().locate() + inside


class IgnoresTimestamps(ListPublisher):
    def locate(self) -> int:
        return 0 if self.position.timestamp is not None else super().locate()


class AcceptsLatest(ListPublisher):
    def __init__(self, shard: Any, start: StartingPosition, context: Any) -> None:
        is_latest = start.type is PositionType.LATEST
        super().__init__(shard, StartingPosition.trim_horizon() if is_latest else start, context)


class DeliversTwoAtOnce(ListPublisher):
    async def deliver(self, found: Sequence[Record], consumer: RecordBatchConsumer) -> None:
        await asyncio.gather(
            super().deliver(found[:1], consumer),
            super().deliver(found[1:], consumer),
            return_exceptions=True,
        )


class DeliversBehindTheBack(ListPublisher):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.tasks: set[asyncio.Task[None]] = set()

    async def deliver(self, found: Sequence[Record], consumer: RecordBatchConsumer) -> None:
        task = asyncio.get_running_loop().create_task(super().deliver(found, consumer))
        self.tasks.add(task)
        await asyncio.sleep(0)


class WrapsErrors(ListPublisher):
    async def deliver(self, found: Sequence[Record], consumer: RecordBatchConsumer) -> None:
        try:
            await super().deliver(found, consumer)
        except BaseException as error:
            raise RuntimeError("the delivery failed") from error


class RaisesGroups(ListPublisher):
    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.read(consumer))
        return self.result()


class SwallowsErrors(ListPublisher):
    async def deliver(self, found: Sequence[Record], consumer: RecordBatchConsumer) -> None:
        try:
            await super().deliver(found, consumer)
        except Exception:  # noqa: BLE001 - that is what is wrong with it
            return


class SwallowsErrorsOfRoom(ListPublisher):
    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        try:
            return await super().run(consumer)
        except Exception:  # noqa: BLE001 - that is what is wrong with it
            return RunResult.COMPLETE


class Hangs(ListPublisher):
    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        raise await asyncio.get_running_loop().create_future()


class SwallowsCancellation(ListPublisher):
    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        try:
            return await super().run(consumer)
        except asyncio.CancelledError:
            return RunResult.COMPLETE


class GoesOnWhenCancelled(ListPublisher):
    times = 0

    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        try:
            return await super().run(consumer)
        except asyncio.CancelledError:
            self.times += 1
            return RunResult.INCOMPLETE if self.times < 5 else RunResult.COMPLETE


class LeavesATask(ListPublisher):
    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        sleep = asyncio.get_running_loop().create_future()
        self.task = asyncio.ensure_future(asyncio.wait([sleep]))
        return await super().run(consumer)


class GoesOnAfterWhatItDelivered(ListPublisher):
    def follow(self, processed: SequenceNumber | None, found: Sequence[Record]) -> None:
        last = SequenceNumber(found[-1].sequence_number)
        self.position = continue_from(self.position, last)


class BeginsAgain(ListPublisher):
    def follow(self, processed: SequenceNumber | None, found: Sequence[Record]) -> None:
        """Keep the position that it was made with."""


class SleepsWithRoom(ListPublisher):
    async def read(self, consumer: RecordBatchConsumer) -> None:
        await consumer.wait_for_space(1, 1)
        await super().read(consumer)


class RetriesInTheRun(ListPublisher):
    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        while not self.cursor:
            await self.read(consumer)
        return await super().run(consumer)


class AsksForNegativeRoom(ListPublisher):
    async def read(self, consumer: RecordBatchConsumer) -> None:
        await consumer.wait_for_space(-1, 0)
        await super().read(consumer)


EACH_ONCE = "test_each_record_is_delivered_once_and_in_order"
PROCESSING = "test_it_can_be_cancelled_while_the_consumer_processes"
ERROR = "test_an_error_of_the_consumer_comes_out_as_it_is"
ROOM = "test_an_error_while_waiting_for_room_comes_out_as_it_is"
THROTTLED = "test_while_it_is_throttled_it_holds_no_room"
INTERRUPTED = "test_after_an_interruption_it_goes_on_after_what_was_processed"
POSITION = {"index": 5}
FAILURE = {"kind": RuntimeError}
NO_PAYLOAD = {"data": b"", "partition_key": "k"}
CASES: list[tuple[type[ListPublisher], str, dict[str, Any], str]] = [
    (RepeatsARecord, EACH_ONCE, {}, "deliver each record of the shard once"),
    (SkipsTheFirst, EACH_ONCE, {}, "deliver each record of the shard once"),
    (TurnsBatchesRound, EACH_ONCE, {}, "sequence numbers of a batch do not increase"),
    (NeverEnds, EACH_ONCE, {}, "has not returned RunResult.COMPLETE"),
    (NeverEnds, "test_a_shard_without_records_is_complete", {}, "has not returned"),
    (EndsTooEarly, "test_it_is_complete_only_after_the_last_record", {}, "after 5 of 12 records"),
    (
        IsAlwaysAtTheTip,
        "test_it_says_that_nothing_is_missing_only_with_the_last_record",
        {},
        "millis_behind_latest was 0 after 5 of 12 records",
    ),
    (HasWrongArrivals, EACH_ONCE, {}, "arrival_epoch_seconds 0.0 instead of 1767225600.0"),
    (CountsMilliseconds, EACH_ONCE, {}, "instead of 1767225600.0: .* in seconds since 1970"),
    (
        SharesItsPlace,
        "test_two_publishers_of_one_shard_know_nothing_of_each_other",
        {},
        "keep the place in the publisher",
    ),
    (
        ForgetsThatItHasEnded,
        "test_it_keeps_to_it_that_the_shard_has_ended",
        {},
        "(nothing is delivered any more|INCOMPLETE after COMPLETE)",
    ),
    (
        TakesItsEndBack,
        "test_it_keeps_to_it_that_the_shard_has_ended",
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
    (ReturnsCancelled, EACH_ONCE, {}, "returned CANCELLED though nobody asked"),
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
        "test_at_a_sequence_number_it_begins_with_that_record",
        POSITION,
        "was to begin AT_SEQUENCE_NUMBER 996, and did not",
    ),
    (
        TakesAfterForAt,
        "test_after_a_sequence_number_it_begins_with_the_next_record",
        POSITION,
        "was to begin AFTER_SEQUENCE_NUMBER 996, and did not",
    ),
    (
        SkipsTheRestOfAnAggregate,
        "test_inside_an_aggregate_it_begins_with_the_whole_record",
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
    (DeliversTwoAtOnce, "test_the_next_delivery_waits_for_the_consumer", {}, "one at a time"),
    (
        DeliversBehindTheBack,
        "test_the_next_delivery_waits_for_the_consumer",
        {},
        "while the consumer was still processing",
    ),
    (WrapsErrors, ERROR, FAILURE, "neither swallow nor wrap"),
    (RaisesGroups, ERROR, FAILURE, "a TaskGroup makes a group of it"),
    (SwallowsErrors, ERROR, FAILURE, "run\\(\\) ended with None"),
    (SwallowsErrorsOfRoom, ROOM, {}, "run\\(\\) ended with None"),
    (Hangs, PROCESSING, {}, "processes a batch: it did not come to that within"),
    (SwallowsCancellation, PROCESSING, {}, "never swallow it"),
    (GoesOnWhenCancelled, PROCESSING, {}, "let CancelledError pass"),
    (LeavesATask, PROCESSING, {}, "left running"),
    (
        TakesAfterForAt,
        "test_a_later_publisher_goes_on_where_the_consumer_has_come_to",
        {},
        "is not the shard",
    ),
    (GoesOnAfterWhatItDelivered, INTERRUPTED, {}, "go on with the one after that"),
    (BeginsAgain, INTERRUPTED, {}, "go on with the one after that"),
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
    monkeypatch.setattr(base, "CANCELLING_SECONDS", 0.1)
    if broken is Hangs:
        monkeypatch.setattr(base, "_PATIENCE_SECONDS", 0.1)
    with pytest.raises(AssertionError, match=message):
        await getattr(RecordPublisherContract(), test)(subject_of(broken), **arguments)


@pytest.mark.parametrize(("test", "arguments"), {case[1]: case[2] for case in CASES}.items())
async def test_the_same_tests_pass_for_a_publisher_that_is_not_broken(
    test: str, arguments: dict[str, Any]
) -> None:
    await getattr(RecordPublisherContract(), test)(subject_of(ListPublisher), **arguments)


def test_every_test_of_the_contract_is_broken_by_somebody() -> None:
    tests = {name for name in dir(RecordPublisherContract) if name.startswith("test_")}
    # Waiting for room ends in the same way as processing, by the same code.
    assert tests - {case[1] for case in CASES} == {
        "test_it_can_be_cancelled_while_it_waits_for_room",
    }
