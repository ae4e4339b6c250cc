"""Where a publisher begins."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.errors import KinesisPublishersError
from kinesis_publishers.model import Record, RunResult, SequenceNumber, StartingPosition
from kinesis_publishers.testing.contracts.base import closes_subject, outcome_of
from kinesis_publishers.testing.contracts.batch_checks import assert_same_records
from kinesis_publishers.testing.contracts.checking_consumer import (
    CheckingConsumer,
    run_once,
    run_to_end,
)
from kinesis_publishers.testing.fakes.samples import sample_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.testing.contracts.subjects import HeldShard, PublisherSubject

__all__ = ["PositionContract"]

_SOME = 12
# In turns; enough for one record per run, and some that are refused.
_MOST_RUNS = 100


@closes_subject
class PositionContract:
    """Every kind of starting position is honoured, and LATEST is refused."""

    @pytest.mark.parametrize("index", [0, 5, 11])
    async def test_at_a_sequence_number_it_begins_with_that_record(
        self, subject: PublisherSubject, index: int
    ) -> None:
        held = await subject.hold(sample_records(_SOME))
        start = StartingPosition.at(SequenceNumber(held.records[index].sequence_number))
        await _assert_read(subject, held, start, held.records[index:])

    @pytest.mark.parametrize("index", [0, 5, 11])
    async def test_after_a_sequence_number_it_begins_with_the_next_record(
        self, subject: PublisherSubject, index: int
    ) -> None:
        held = await subject.hold(sample_records(_SOME))
        start = StartingPosition.after(SequenceNumber(held.records[index].sequence_number))
        await _assert_read(subject, held, start, held.records[index + 1 :])

    async def test_inside_an_aggregate_it_begins_with_the_whole_record(
        self, subject: PublisherSubject
    ) -> None:
        held = await subject.hold(sample_records(_SOME))
        start = StartingPosition.at(SequenceNumber(held.records[4].sequence_number, 2))
        # Whoever reads drops the sub-records that were processed already.
        await _assert_read(subject, held, start, held.records[4:])

    @pytest.mark.parametrize("index", [0, 5, 11])
    @pytest.mark.parametrize("seconds", [-0.5, 0.0, 0.5])
    async def test_at_a_timestamp_it_begins_with_what_arrived_then_or_later(
        self, subject: PublisherSubject, index: int, seconds: float
    ) -> None:
        held = await subject.hold(sample_records(_SOME))
        arrivals = [one.approximate_arrival_timestamp for one in held.records]
        assert len(set(arrivals)) == len(arrivals), (
            f"{type(subject).__name__}.hold() gave several records the same arrival time: keep "
            "them as far apart as they were (a second each)"
        )
        instant = arrivals[index] + timedelta(seconds=seconds)
        expected = [
            one for one, arrival in zip(held.records, arrivals, strict=True) if arrival >= instant
        ]
        await _assert_read(subject, held, StartingPosition.at_timestamp(instant), expected)

    async def test_two_publishers_of_one_shard_know_nothing_of_each_other(
        self, subject: PublisherSubject
    ) -> None:
        held = await subject.hold(sample_records(_SOME))
        start = StartingPosition.trim_horizon()
        publishers = [await subject.publisher(held, start) for _ in range(2)]
        consumers = [CheckingConsumer(held.shard) for _ in publishers]
        unfinished = list(zip(publishers, consumers, strict=True))
        for _ in range(_MOST_RUNS):
            for one in list(unfinished):
                if await subject.finish(run_once(*one)) is RunResult.COMPLETE:
                    unfinished.remove(one)
        for consumer in consumers:
            assert_same_records(
                consumer.records,
                held.records,
                advice="two publishers took turns in reading one shard, and each delivers all of "
                "it: keep the place in the publisher",
            )

    async def test_latest_is_refused(self, subject: PublisherSubject) -> None:
        held = await subject.hold(sample_records(_SOME))
        error = await outcome_of(_read(subject, held, StartingPosition.latest()))
        assert isinstance(error, ValueError | KinesisPublishersError), (
            f"StartingPosition.latest() led to {error!r}: refuse it with a ValueError. It means "
            "another place each time that it is asked, so that a restart loses records; whoever "
            "creates publishers pins it to an instant first"
        )


async def _assert_read(
    subject: PublisherSubject, held: HeldShard, start: StartingPosition, expected: Sequence[Record]
) -> None:
    assert_same_records(
        await _read(subject, held, start),
        expected,
        advice=f"reading was to begin {start}, and did not",
    )


async def _read(
    subject: PublisherSubject, held: HeldShard, start: StartingPosition
) -> list[Record]:
    consumer = CheckingConsumer(held.shard)
    publisher = await subject.publisher(held, start)
    await subject.finish(run_to_end(publisher, consumer))
    return consumer.records
