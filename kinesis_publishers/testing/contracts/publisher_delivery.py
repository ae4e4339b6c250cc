"""What a publisher delivers, and when it may say that there is no more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.model import RunResult, StartingPosition
from kinesis_publishers.testing.contracts.base import (
    assert_can_be_cancelled,
    closes_subject,
    no_task_is_left,
    require,
)
from kinesis_publishers.testing.contracts.batch_checks import assert_same_records
from kinesis_publishers.testing.contracts.checking_consumer import (
    CheckingConsumer,
    run_once,
    run_to_end,
    skip_unless_several,
)
from kinesis_publishers.testing.fakes.samples import sample_records

if TYPE_CHECKING:
    from kinesis_publishers.abc import RecordPublisher
    from kinesis_publishers.testing.contracts.subjects import PublisherSubject

__all__ = ["DeliveryContract"]

TRIM_HORIZON = StartingPosition.trim_horizon()
_SOME = 12
_MIB = 1024 * 1024
# A few may have their reasons, as a service that answers at once.
_MOST_RUNS_AT_ONCE = 100


@closes_subject
class DeliveryContract:
    """Each record once, in order, and the end of the shard only after the last one."""

    async def test_each_record_is_delivered_once_and_in_order(
        self, subject: PublisherSubject
    ) -> None:
        held = await subject.hold(sample_records(_SOME))
        consumer = CheckingConsumer(held.shard)
        await subject.finish(run_to_end(await subject.publisher(held, TRIM_HORIZON), consumer))
        assert_same_records(
            consumer.records,
            held.records,
            advice="deliver each record of the shard once, in the order of sequence numbers",
        )

    async def test_a_shard_without_records_is_complete(self, subject: PublisherSubject) -> None:
        held = await subject.hold([])
        consumer = CheckingConsumer(held.shard)
        await subject.finish(run_to_end(await subject.publisher(held, TRIM_HORIZON), consumer))
        assert_same_records(consumer.records, [], advice="the shard holds no records")

    async def test_it_is_complete_only_after_the_last_record(
        self, subject: PublisherSubject
    ) -> None:
        held = await subject.hold(sample_records(_SOME))
        consumer = CheckingConsumer(held.shard)
        await subject.finish(run_to_end(await subject.publisher(held, TRIM_HORIZON), consumer))
        assert len(consumer.records) >= len(held.records), (
            f"run() returned COMPLETE after {len(consumer.records)} of {len(held.records)} "
            "records: it means that everything has been delivered, and the rest is never read"
        )

    async def test_it_says_that_nothing_is_missing_only_with_the_last_record(
        self, subject: PublisherSubject
    ) -> None:
        held = await subject.hold(sample_records(_SOME))
        consumer = CheckingConsumer(held.shard)
        await subject.finish(run_to_end(await subject.publisher(held, TRIM_HORIZON), consumer))
        delivered = 0
        for batch in consumer.batches:
            delivered += len(batch)
            assert batch.millis_behind_latest != 0 or delivered >= len(held.records), (
                f"millis_behind_latest was 0 after {delivered} of {len(held.records)} records: it "
                "says that the tip was reached, where whoever reads what there is stops. With "
                "records left give their distance from the tip, or None if it is not known"
            )
        skip_unless_several(consumer, subject)

    async def test_it_keeps_to_it_that_the_shard_has_ended(self, subject: PublisherSubject) -> None:
        held = await subject.hold(sample_records(_SOME))
        publisher, consumer = (
            await subject.publisher(held, TRIM_HORIZON),
            CheckingConsumer(held.shard),
        )
        await subject.finish(run_to_end(publisher, consumer))
        for _ in range(2):
            result = await subject.finish(run_once(publisher, consumer))
            assert result is RunResult.COMPLETE, (
                f"run() returned {result} after COMPLETE: a shard that has ended stays ended"
            )
        assert_same_records(
            consumer.records, held.records, advice="after COMPLETE nothing is delivered any more"
        )

    async def test_a_shard_that_is_open_is_never_complete(self, subject: PublisherSubject) -> None:
        require(subject, "can_hold_open")
        held = await subject.hold(sample_records(_SOME), is_open=True)
        publisher, consumer = (
            await subject.publisher(held, TRIM_HORIZON),
            CheckingConsumer(held.shard),
        )
        quiet_turns = iter(range(5))

        def is_waiting_for_more() -> bool:
            return len(consumer.records) >= _SOME and next(quiet_turns, None) is None

        with no_task_is_left():
            await assert_can_be_cancelled(
                _read_open_shard(publisher, consumer),
                is_waiting_for_more,
                what="while it waits for more records",
                clock=subject.clock,
            )
        assert_same_records(
            consumer.records, held.records, advice="what is there is delivered without an end"
        )

    @pytest.mark.parametrize(
        ("data", "partition_key"),
        [
            pytest.param(b"", "k", id="no payload"),
            pytest.param(bytes(range(256)) * (_MIB // 256 - 1), "k", id="almost 1 MiB"),
            pytest.param(b"x", "\N{KEY}\N{CJK UNIFIED IDEOGRAPH-6587} '\"\\", id="unicode key"),
            pytest.param(b"x", "k" * 256, id="256 characters"),
            pytest.param(b"x", "null", id="like null"),
        ],
    )
    async def test_unusual_records_come_through_unchanged(
        self, subject: PublisherSubject, data: bytes, partition_key: str
    ) -> None:
        usual = sample_records(2)
        unusual = [one._replace(data=data, partition_key=partition_key) for one in usual]
        held = await subject.hold(unusual)
        consumer = CheckingConsumer(held.shard)
        await subject.finish(run_to_end(await subject.publisher(held, TRIM_HORIZON), consumer))
        got = [(one.data, one.partition_key) for one in consumer.records]
        assert [key for _, key in got] == [partition_key] * 2, "a partition key was changed"
        assert [one == data for one, _ in got] == [True] * 2, "a payload was changed"


async def _read_open_shard(publisher: RecordPublisher, consumer: CheckingConsumer) -> None:
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1

    runs_at_once = 0
    while True:
        before = turns
        asyncio.get_running_loop().call_soon(count)
        result = await run_once(publisher, consumer)
        assert result is RunResult.INCOMPLETE, (
            "run() returned COMPLETE for a shard that has not ended: what arrives later is never "
            "read; return INCOMPLETE"
        )
        runs_at_once = runs_at_once + 1 if turns == before else 0
        assert runs_at_once < _MOST_RUNS_AT_ONCE, (
            f"run() ended {runs_at_once} times without waiting for anything: everything else on "
            "the event loop stands still; sleep before the service is asked again"
        )
