"""Publishers that break the contract, each in one point."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from kinesis_publishers import RecordBatch, RunResult, SequenceNumber, StartingPosition
from kinesis_publishers.model import PositionType, continue_from
from kinesis_publishers.testing.fakes import batch_of, sample_shard
from tests.contract.list_publisher import ListPublisher

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
    """All publishers of a shard have one place, which begins again with each of them."""

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


class SleepsInRealTime(ListPublisher):
    async def read(self, consumer: RecordBatchConsumer) -> None:
        if self.is_open and self.cursor == len(self.records):
            await asyncio.sleep(0.1)
        await super().read(consumer)


class PacesInRealTime(ListPublisher):
    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        await self.read(consumer)
        await asyncio.sleep(0.1)
        return self.result()
