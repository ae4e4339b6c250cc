"""The contract of every :class:`~kinesis_publishers.RecordPublisher`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from attrs import evolve

from kinesis_publishers.abc import RecordPublisher
from kinesis_publishers.errors import KinesisPublishersError
from kinesis_publishers.model import RunResult, SequenceNumber, StartingPosition
from kinesis_publishers.testing.contracts.checking_consumer import (
    TRIM_HORIZON,
    CheckingConsumer,
    assert_same_records,
    read_shard,
    run_once,
    run_to_end,
)
from kinesis_publishers.testing.contracts.publisher_consumer import ConsumerContract
from kinesis_publishers.testing.contracts.subjects import (
    PublisherSubject,
    assert_can_be_cancelled,
    closes_subject,
    missing_fixture,
    outcome_of,
    require,
)
from kinesis_publishers.testing.fakes.samples import sample_records

_SOME = 12
_HALF_A_SECOND = timedelta(seconds=0.5)
# A few may have their reasons, as a service that answers at once.
_MOST_RUNS_AT_ONCE = 100


class DeliveryContract:
    """Each record once, in order, and the end of the shard only after the last one."""

    async def test_each_record_is_delivered_once_in_order(self, subject: PublisherSubject) -> None:
        held = await subject.hold(sample_records(_SOME))
        consumer = await read_shard(subject, held)
        assert_same_records(
            consumer.records,
            held.records,
            advice="deliver each record of the shard once, in the order of sequence numbers, and "
            f"return COMPLETE after the last one; it was COMPLETE after {len(consumer.records)} of "
            f"{len(held.records)} records",
        )

    async def test_a_shard_without_records_is_complete(self, subject: PublisherSubject) -> None:
        held = await subject.hold([])
        consumer = await read_shard(subject, held)
        assert_same_records(consumer.records, [], advice="the shard holds no records")

    async def test_its_lag_is_zero_only_at_the_tip(self, subject: PublisherSubject) -> None:
        held = await subject.hold(sample_records(_SOME))
        consumer = await read_shard(subject, held)
        delivered = 0
        for batch in consumer.batches:
            delivered += len(batch)
            assert batch.millis_behind_latest != 0 or delivered >= len(held.records), (
                f"millis_behind_latest was 0 after {delivered} of {len(held.records)} records: it "
                "says that the tip was reached, where a reader of the present records stops. With "
                "records left give their distance from the tip, or None if it is not known"
            )
        if sum(1 for batch in consumer.batches if len(batch)) < 2:
            pytest.skip(f"{type(subject).__name__} delivers {delivered} records at once")

    async def test_a_shard_that_has_ended_stays_ended(self, subject: PublisherSubject) -> None:
        held = await subject.hold(sample_records(_SOME))
        publisher = await subject.publisher(held, TRIM_HORIZON)
        consumer = CheckingConsumer(held.shard)
        await subject.finish(run_to_end(publisher, consumer))
        for _ in range(2):
            result = await subject.finish(run_once(publisher, consumer))
            assert result is RunResult.COMPLETE, (
                f"run() returned {result} after COMPLETE: a shard that has ended stays ended"
            )
        assert_same_records(
            consumer.records, held.records, advice="nothing may be delivered after COMPLETE"
        )

    async def test_a_shard_that_is_open_is_never_complete(self, subject: PublisherSubject) -> None:
        require(subject, "can_hold_open")
        held = await subject.hold(sample_records(_SOME), is_open=True)
        publisher = await subject.publisher(held, TRIM_HORIZON)
        consumer = CheckingConsumer(held.shard)
        quiet_turns = iter(range(5))

        def is_waiting_for_more() -> bool:
            return len(consumer.records) >= _SOME and next(quiet_turns, None) is None

        await assert_can_be_cancelled(
            _read_open_shard(publisher, consumer),
            is_waiting_for_more,
            what="while it waits for more records",
            clock=subject.clock,
        )
        assert_same_records(
            consumer.records, held.records, advice="an open shard delivers what it holds"
        )

    @pytest.mark.parametrize(
        ("data", "partition_key"),
        [
            pytest.param(b"", "k", id="no payload"),
            pytest.param(bytes(range(256)) * 4095, "k", id="almost 1 MiB"),
            pytest.param(b"x", "\N{KEY}\N{CJK UNIFIED IDEOGRAPH-6587} '\"\\", id="unicode key"),
            pytest.param(b"x", "k" * 256, id="256 characters"),
            pytest.param(b"x", "null", id="like null"),
            pytest.param(b"x", None, id="no key"),
        ],
    )
    async def test_unusual_records_come_through_unchanged(
        self, subject: PublisherSubject, data: bytes, partition_key: str | None
    ) -> None:
        usual = sample_records(2)
        unusual = [one._replace(data=data, partition_key=partition_key) for one in usual]
        held = await subject.hold(unusual)
        consumer = await read_shard(subject, held)
        got = [(one.data, one.partition_key) for one in consumer.records]
        assert [key for _, key in got] == [partition_key] * 2, "a partition key was changed"
        assert [one == data for one, _ in got] == [True] * 2, "a payload was changed"


async def _read_open_shard(publisher: RecordPublisher, consumer: CheckingConsumer) -> None:
    loop, runs_at_once = asyncio.get_running_loop(), 0
    while runs_at_once < _MOST_RUNS_AT_ONCE:
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        result = await run_once(publisher, consumer)
        assert result is RunResult.INCOMPLETE, (
            "run() returned COMPLETE for a shard that has not ended: what arrives later is never "
            "read; return INCOMPLETE"
        )
        runs_at_once = 0 if turn.done() else runs_at_once + 1
    raise AssertionError(
        f"run() ended {runs_at_once} times without waiting for anything: everything else on the "
        "event loop stands still; sleep before the service is asked again"
    )


# Where reading begins, by the place and the arrival of a record; and whether it skips that one.
_STARTS: dict[str, tuple[Callable[[SequenceNumber, datetime], StartingPosition], bool]] = {
    "at a number": (lambda number, _: StartingPosition.at(number), False),
    "after a number": (lambda number, _: StartingPosition.after(number), True),
    # The reader drops the sub-records that were processed before.
    "in an aggregate": (
        lambda one, _: StartingPosition.at(evolve(one, sub_sequence_number=2)),
        False,
    ),
    "before an arrival": (lambda _, at: StartingPosition.at_timestamp(at - _HALF_A_SECOND), False),
    "at an arrival": (lambda _, at: StartingPosition.at_timestamp(at), False),
    "after an arrival": (lambda _, at: StartingPosition.at_timestamp(at + _HALF_A_SECOND), True),
}


class PositionContract:
    """Every kind of starting position is honoured, and LATEST is refused."""

    @pytest.mark.parametrize("index", [0, 5, 11])
    @pytest.mark.parametrize("start", _STARTS)
    async def test_it_begins_where_it_is_told_to(
        self, subject: PublisherSubject, start: str, index: int
    ) -> None:
        held = await subject.hold(sample_records(_SOME))
        arrivals = [one.approximate_arrival_timestamp for one in held.records]
        assert len(set(arrivals)) == len(arrivals), (
            f"{type(subject).__name__}.hold() gave several records the same arrival time: keep "
            "them as far apart as they were (a second each)"
        )
        make, is_skipped = _STARTS[start]
        number = SequenceNumber(held.records[index].sequence_number)
        position = make(number, arrivals[index])
        consumer = await read_shard(subject, held, position)
        advice = f"reading was to begin {position}, and did not"
        assert_same_records(consumer.records, held.records[index + is_skipped :], advice=advice)

    async def test_two_publishers_share_no_state(self, subject: PublisherSubject) -> None:
        held = await subject.hold(sample_records(_SOME))
        one, other = [await subject.publisher(held, TRIM_HORIZON) for _ in range(2)]
        consumers = [CheckingConsumer(held.shard) for _ in range(2)]
        await subject.finish(run_once(one, consumers[0]))
        await subject.finish(run_to_end(other, consumers[1]))
        await subject.finish(run_to_end(one, consumers[0]))
        for consumer in consumers:
            assert_same_records(
                consumer.records,
                held.records,
                advice="two publishers took turns in reading one shard, and each delivers all of "
                "it: keep the place in the publisher",
            )

    async def test_latest_is_refused(self, subject: PublisherSubject) -> None:
        held = await subject.hold(sample_records(_SOME))
        error = await outcome_of(read_shard(subject, held, StartingPosition.latest()))
        assert isinstance(error, ValueError | KinesisPublishersError), (
            f"StartingPosition.latest() led to {error!r}: refuse it with a ValueError. It means "
            "another place each time that it is asked, so that a restart loses records; what "
            "creates publishers pins it to an instant first"
        )


@closes_subject
class RecordPublisherContract(DeliveryContract, PositionContract, ConsumerContract):
    """The duties of every publisher of any source. Override the fixture ``subject``."""

    subject = missing_fixture("PublisherSubject")
