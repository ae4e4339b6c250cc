"""A publisher's duties to its consumer: it waits, obeys the answer, and passes errors on."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from kinesis_publishers.model import (
    Record,
    RecordBatch,
    RunResult,
    SequenceNumber,
    Shard,
    StartingPosition,
)
from kinesis_publishers.testing.contracts.checking_consumer import (
    TRIM_HORIZON,
    CheckingConsumer,
    assert_same_records,
    read_shard,
    run_once,
    run_to_end,
)
from kinesis_publishers.testing.contracts.subjects import (
    PublisherSubject,
    assert_can_be_cancelled,
    no_task_is_left,
    outcome_of,
    require,
)
from kinesis_publishers.testing.fakes.samples import sample_records

_SOME = 12
_WAITING, _PROCESSING = _PLACES = ("waiting for room", "processing a batch")


class _ApplicationError(Exception):
    """An error of an application, which no publisher knows."""


class _EngineStop(BaseException):
    """Ends a run from above, and is no ``Exception``."""


class _Stopping(CheckingConsumer):
    """Raises ``error`` at ``place`` and with any records, or waits there forever."""

    def __init__(self, shard: Shard, place: str, error: BaseException | None = None) -> None:
        super().__init__(shard, self._take)
        self._place = place
        self._error = error
        self.stops: list[str] = []

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        if self._place == _WAITING:
            await self._stop(_WAITING)
        await super().wait_for_space(records, payload_bytes)

    async def _take(self, batch: RecordBatch) -> None:
        if len(batch):
            await self._stop(_PROCESSING)

    async def _stop(self, place: str) -> NoReturn:
        self.stops.append(place)
        raise self._error or await asyncio.get_running_loop().create_future()

    def skip_unless_asked(self) -> None:
        if self._place == _WAITING and self.stops[:1] == [_PROCESSING]:
            pytest.skip(
                "the publisher never calls wait_for_space(): its deliveries wait themselves"
            )


class ConsumerContract:
    """The consumer decides how fast records come, and where reading continues."""

    @pytest.mark.parametrize("kind", [_ApplicationError, _EngineStop])
    @pytest.mark.parametrize("place", _PLACES)
    async def test_an_error_of_the_consumer_is_passed_on(
        self, subject: PublisherSubject, place: str, kind: type[BaseException]
    ) -> None:
        held = await subject.hold(sample_records(_SOME))
        error = kind("the application failed")
        consumer = _Stopping(held.shard, place, error)
        publisher = await subject.publisher(held, TRIM_HORIZON)
        with no_task_is_left():
            raised = await outcome_of(subject.finish(run_to_end(publisher, consumer)))
        consumer.skip_unless_asked()
        assert raised is error, (
            f"the consumer raised {error!r}, and run() ended with {raised!r}: neither swallow nor "
            "wrap what the consumer raises (a TaskGroup makes a group of it)"
        )
        assert consumer.stops == [place], (
            "the publisher came again after the consumer had failed: let its error pass"
        )

    @pytest.mark.parametrize("place", _PLACES)
    async def test_it_can_be_cancelled_while_the_consumer_is(
        self, subject: PublisherSubject, place: str
    ) -> None:
        held = await subject.hold(sample_records(_SOME))
        consumer = _Stopping(held.shard, place)
        publisher = await subject.publisher(held, TRIM_HORIZON)
        await assert_can_be_cancelled(
            run_to_end(publisher, consumer),
            lambda: len(consumer.stops) > 0,
            what=f"while the consumer is {place}",
            clock=subject.clock,
        )
        consumer.skip_unless_asked()

    async def test_a_later_publisher_continues(self, subject: PublisherSubject) -> None:
        held = await subject.hold(sample_records(_SOME))
        processed: list[Record] = []

        async def fail_soon(batch: RecordBatch) -> SequenceNumber | None:
            processed.extend(list(batch)[:2])
            if len(processed) >= 2:
                raise _ApplicationError
            return SequenceNumber(processed[-1].sequence_number) if processed else None

        first = await subject.publisher(held, TRIM_HORIZON)
        await outcome_of(subject.finish(run_to_end(first, CheckingConsumer(held.shard, fail_soon))))
        assert processed, "nothing was delivered before the consumer failed"
        position = StartingPosition.after(SequenceNumber(processed[-1].sequence_number))
        consumer = await read_shard(subject, held, position)
        assert_same_records(
            [*processed, *consumer.records],
            held.records,
            advice="what the consumer had processed, and what came after it, is not the shard",
        )

    async def test_it_continues_after_an_interruption(self, subject: PublisherSubject) -> None:
        require(subject, "can_be_interrupted")
        held = await subject.hold(sample_records(_SOME))
        await subject.interrupt_after(1)
        first: list[Record] = []
        kept = 0

        async def process(batch: RecordBatch) -> SequenceNumber | None:
            nonlocal kept
            if first or not len(batch):
                return batch.last_sequence_number or _number(first[kept - 1 : kept])
            first.extend(batch)
            kept = len(first) // 2
            return _number(first[:kept])

        consumer = await read_shard(subject, held, process=process)
        assert_same_records(
            consumer.records[len(first) :],
            held.records[kept:],
            advice=f"the consumer had processed {kept} of the {len(first)} records of the first "
            "delivery when the service broke off: continue with the one after that",
        )

    async def test_while_it_is_throttled_it_holds_no_room(self, subject: PublisherSubject) -> None:
        require(subject, "can_be_throttled")
        held = await subject.hold(sample_records(_SOME))
        await subject.throttle(3)
        consumer = CheckingConsumer(held.shard, clock=subject.clock)
        publisher = await subject.publisher(held, TRIM_HORIZON)
        result = await subject.finish(run_once(publisher, consumer))
        assert (result, consumer.records) == (RunResult.INCOMPLETE, []), (
            f"a run that was refused returned {result} with {len(consumer.records)} records: "
            "return INCOMPLETE without a delivery, and wait at the beginning of the next run"
        )
        await subject.finish(run_to_end(publisher, consumer))
        assert_same_records(
            consumer.records, held.records, advice="being throttled must cost no record"
        )
        assert consumer.slept_with_room == 0, (
            f"it slept {consumer.slept_with_room:g} s after wait_for_space() had returned: other "
            "shards need that room; sleep first"
        )


def _number(records: list[Record]) -> SequenceNumber | None:
    return SequenceNumber(records[-1].sequence_number) if records else None
