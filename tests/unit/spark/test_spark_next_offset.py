"""Where a micro-batch ends, and when an offset is written anew without records."""

from __future__ import annotations

from datetime import timedelta

import pytest
from attrs import evolve

from kinesis_publishers import SequenceNumber, ShardProgress, StartingPosition
from kinesis_publishers.engine.lineage import starting_progress
from kinesis_publishers.model import Shard
from kinesis_publishers_spark.chunks import Chunk, next_offset
from kinesis_publishers_spark.offsets import Offset, ShardOffset, needs_refresh
from tests.unit.spark.spark_builders import (
    ARN,
    IDENTITY,
    NOON,
    after,
    arrival,
    chunk,
    offset,
    shard,
)

A, B, C = shard(0), shard(1), shard(2)
HORIZON = ShardProgress(position=StartingPosition.trim_horizon())
PINNED = ShardProgress(position=StartingPosition.at_timestamp(NOON), as_of=NOON)
SIX_HOURS = timedelta(hours=6)


def end_of(
    start: Offset,
    taken: list[Chunk],
    waiting: list[Chunk],
    known: Offset,
    begun: Offset | None = None,
) -> Offset:
    return next_offset(start, taken, waiting, known=known, begun=begun or Offset())


def test_a_shard_whose_records_are_all_taken_stands_where_the_fetcher_stands() -> None:
    known = offset({A: evolve(after(5), as_of=arrival(60))})
    end = end_of(offset({A: after(3)}), [chunk(A, [4, 5])], [], known)
    assert end == offset({A: evolve(after(5), as_of=arrival(60))}, first={A: 4})


def test_a_shard_with_records_left_stands_after_those_that_were_taken() -> None:
    taken, left = chunk(A, [4, 5, 6]).split(2)
    end = end_of(offset({A: after(3)}), [taken], [left], offset({A: after(6, ended=True)}))
    assert end == offset({A: after(5)}, first={A: 4})


def test_a_shard_of_which_nothing_was_taken_stays_where_it_was() -> None:
    start = offset({A: PINNED, B: after(3)}, first={B: 2})
    known = offset({A: after(6), B: after(9)})
    end = end_of(start, [], [chunk(A, [6]), chunk(B, [9])], known)
    assert end == offset({A: PINNED, B: after(3)})


def test_the_first_of_several_chunks_marks_where_a_batch_begins() -> None:
    taken = [chunk(A, [4]), chunk(B, [1, 2]), chunk(A, [5, 6])]
    end = end_of(offset({A: after(3)}), taken, [], offset({A: after(6), B: after(2)}))
    assert {key: one.first for key, one in end.shards.items()} == {
        A: SequenceNumber("4"),
        B: SequenceNumber("1"),
    }


def test_the_end_of_a_shard_is_kept_once_its_records_are_taken() -> None:
    known = offset({A: after(6, ended=True), B: HORIZON})
    end = end_of(offset({A: after(3)}), [chunk(A, [6])], [], known)
    assert end.shards[A].progress.is_ended
    assert end.shards[B] == ShardOffset(progress=HORIZON)


def test_a_shard_found_since_whose_records_all_wait_begins_at_its_beginning() -> None:
    known = offset({A: after(3), B: after(9)})
    end = end_of(offset({A: after(3)}), [], [chunk(B, [8, 9])], known)
    assert end == offset({A: after(3), B: HORIZON})


def test_a_restart_reads_a_shard_whose_child_was_found_before_its_own_records_were_taken() -> None:
    known = offset({A: after(5, ended=True), B: after(9, ended=True), C: HORIZON})
    end = end_of(offset({A: after(3)}), [chunk(A, [5])], [chunk(B, [9])], known)
    listed = [
        Shard(stream_arn=ARN, shard_id=A.shard_id),
        Shard(stream_arn=ARN, shard_id=B.shard_id, parent_shard_id=A.shard_id),
        Shard(stream_arn=ARN, shard_id=C.shard_id, parent_shard_id=B.shard_id),
    ]
    resumed = {key: one.progress for key, one in end.shards.items()}
    resumed |= starting_progress(listed, resumed, None)
    assert resumed == {A: after(5, ended=True), B: HORIZON, C: HORIZON}


def test_positions_of_a_stream_that_was_created_again_are_not_carried_over() -> None:
    start = offset({A: after(3), B: after(4)})
    created_again = evolve(IDENTITY, created_at=NOON)
    known = Offset(
        streams={ARN: created_again},
        shards={key: ShardOffset(progress=after(9)) for key in (A, B)},
    )
    end = end_of(start, [chunk(A, [9])], [chunk(B, [9])], known)
    assert end.streams == {ARN: created_again}
    assert end.shards[B].progress == HORIZON


def test_shards_that_are_not_known_any_more_leave_the_offset() -> None:
    start = offset({A: after(3, ended=True), B: after(4)})
    assert end_of(start, [], [], offset({B: after(4)})) == offset({B: after(4)})


def refreshed(start: Offset, known: Offset) -> Offset:
    return end_of(start, [], [], known)


@pytest.mark.parametrize(
    ("before", "known"),
    [
        pytest.param({A: after(3)}, {A: after(3, ended=True)}, id="ended"),
        pytest.param({A: HORIZON}, {A: evolve(HORIZON, as_of=NOON)}, id="first answer"),
        pytest.param(
            {A: PINNED}, {A: evolve(PINNED, as_of=NOON + timedelta(hours=7))}, id="older than 6 h"
        ),
    ],
)
def test_an_offset_is_refreshed_once_and_not_again(
    before: dict[object, ShardProgress], known: dict[object, ShardProgress]
) -> None:
    start, now = offset(before), NOON + timedelta(hours=7)  # type: ignore[arg-type]
    fetched = offset(known)  # type: ignore[arg-type]
    assert needs_refresh(start, fetched, now)
    assert not needs_refresh(refreshed(start, fetched), fetched, now)


@pytest.mark.parametrize(
    ("before", "known", "now"),
    [
        pytest.param(PINNED, PINNED, NOON + timedelta(days=3), id="nothing newer is known"),
        pytest.param(
            PINNED, evolve(PINNED, as_of=NOON + SIX_HOURS), NOON + SIX_HOURS, id="exactly 6 h old"
        ),
        pytest.param(HORIZON, HORIZON, NOON, id="no answer yet"),
        pytest.param(
            after(3, ended=True),
            after(3, ended=True),
            NOON + timedelta(days=3),
            id="ended shards do not age",
        ),
    ],
)
def test_an_offset_is_not_refreshed_for_nothing(
    before: ShardProgress, known: ShardProgress, now: object
) -> None:
    assert not needs_refresh(offset({A: before}), offset({A: known}), now)  # type: ignore[arg-type]


@pytest.mark.parametrize("found", [evolve(HORIZON, as_of=NOON), HORIZON.ended()])
def test_a_shard_that_was_found_and_has_no_records_is_no_reason_to_write(
    found: ShardProgress,
) -> None:
    known = offset({A: after(3), B: found})
    assert not needs_refresh(offset({A: after(3)}), known, NOON + timedelta(days=1))


def test_records_of_a_shard_that_has_left_the_listing_stay_in_the_offset() -> None:
    start = offset({A: after(3), B: after(9)})
    first, rest = chunk(A, [4, 5, 6]).split(1)
    known = offset({B: after(9)})
    end = end_of(start, [first], [rest], known)
    assert end == offset({A: after(4), B: after(9)}, first={A: 4})
    last = end_of(end, [rest], [], known)
    assert last == offset({A: after(6, ended=True), B: after(9)}, first={A: 5})
    assert end_of(last, [], [], known) == offset({B: after(9)})


def test_a_new_stream_whose_records_all_wait_keeps_its_pinned_beginning() -> None:
    begun = offset({A: after(3), B: PINNED})
    end = end_of(offset({A: after(3)}), [chunk(A, [4])], [chunk(B, [7])], begun, begun)
    assert end.shards[B].progress == PINNED


@pytest.mark.parametrize("start", [Offset(), evolve(offset({A: PINNED}), left_out={"x"})])
def test_streams_that_come_and_go_are_written_although_there_are_no_records(start: Offset) -> None:
    known = offset({A: PINNED})
    assert needs_refresh(start, known, NOON)
    assert not needs_refresh(end_of(start, [], [], known), known, NOON)
