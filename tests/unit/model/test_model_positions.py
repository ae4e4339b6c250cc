"""Places in a shard: their order, the resume rule, and what survives pickling."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers import SequenceNumber, ShardProgress, StartingPosition
from kinesis_publishers.model import PositionType, continue_from, resume_after

NUMBERS = st.integers(min_value=0, max_value=10**60)
SUB_NUMBERS = st.none() | st.integers(min_value=0, max_value=10_000)
PLACES = st.builds(lambda number, sub: SequenceNumber(str(number), sub), NUMBERS, SUB_NUMBERS)
INSTANTS = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001 - hypothesis wants naive bounds
    max_value=datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
POSITIONS = (
    st.sampled_from([StartingPosition.trim_horizon(), StartingPosition.latest()])
    | st.builds(StartingPosition.at_timestamp, INSTANTS)
    | st.builds(StartingPosition.at, PLACES)
    | st.builds(StartingPosition.after, PLACES)
)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def expected_key(place: SequenceNumber) -> tuple[int, bool, int]:
    sub = place.sub_sequence_number
    return int(place.sequence_number), sub is None, sub or 0


@given(PLACES, PLACES)
def test_places_are_ordered_by_number_and_not_by_text(left: SequenceNumber, right: SequenceNumber):
    assert (left < right) == (expected_key(left) < expected_key(right))
    assert (left <= right) == (expected_key(left) <= expected_key(right))
    assert (left == right) == (expected_key(left) == expected_key(right))


def test_a_whole_record_stands_after_every_record_inside_it():
    assert SequenceNumber("7", 10_000) < SequenceNumber("7") < SequenceNumber("8", 0)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "0x1", " 1", "1\n", "١٢", "LATEST"])
def test_a_sequence_number_must_be_decimal_digits(text: str):
    with pytest.raises(ValueError, match="sequence_number must be a decimal number"):
        SequenceNumber(text)


def test_places_do_not_compare_with_anything_else():
    with pytest.raises(TypeError):
        SequenceNumber("1") < "2"  # noqa: B015


@given(PLACES)
def test_reading_resumes_after_a_whole_record_and_at_one_that_is_processed_in_part(
    place: SequenceNumber,
):
    position = resume_after(place)
    assert position.sequence_number == place
    assert (position.type is PositionType.AT_SEQUENCE_NUMBER) == (
        place.sub_sequence_number is not None
    )


@given(POSITIONS)
def test_a_position_stays_where_it_is_while_nothing_was_processed(position: StartingPosition):
    assert continue_from(position, None) is position


@given(PLACES)
def test_progress_knows_the_record_from_which_it_resumes(place: SequenceNumber):
    assert ShardProgress(position=resume_after(place)).processed == place


@pytest.mark.parametrize(
    "position",
    [
        StartingPosition.trim_horizon(),
        StartingPosition.at_timestamp(NOW),
        StartingPosition.at(SequenceNumber("5")),
    ],
)
def test_progress_that_begins_somewhere_has_processed_nothing(position: StartingPosition):
    assert ShardProgress(position=position).processed is None


def test_the_end_of_a_shard_keeps_its_position():
    progress = ShardProgress(position=StartingPosition.after(SequenceNumber("5")), as_of=NOW)
    assert progress.ended() == ShardProgress(position=progress.position, as_of=NOW, is_ended=True)


@given(POSITIONS, st.none() | INSTANTS, st.booleans())
def test_progress_survives_pickling(
    position: StartingPosition, as_of: datetime | None, is_ended: bool
):
    progress = ShardProgress(position=position, as_of=as_of, is_ended=is_ended)
    assert pickle.loads(pickle.dumps(progress)) == progress


@pytest.mark.parametrize("kind", list(PositionType))
def test_a_position_has_exactly_what_its_type_needs(kind: PositionType):
    needs_number = kind.name.endswith("SEQUENCE_NUMBER")
    needs_time = kind is PositionType.AT_TIMESTAMP
    for number in (None, SequenceNumber("1")):
        for timestamp in (None, NOW):
            fits = ((number is not None), (timestamp is not None)) == (needs_number, needs_time)
            if fits:
                StartingPosition(kind, number, timestamp)
            else:
                with pytest.raises(ValueError, match="do not go together"):
                    StartingPosition(kind, number, timestamp)


def test_the_timestamp_of_a_position_must_have_a_time_zone():
    with pytest.raises(ValueError, match="time zone"):
        StartingPosition.at_timestamp(datetime(2026, 1, 1))  # noqa: DTZ001 - what is refused


def test_pinning_turns_latest_into_an_instant():
    assert StartingPosition.latest().pinned(NOW) == StartingPosition.at_timestamp(NOW)


@given(POSITIONS.filter(lambda one: one.type is not PositionType.LATEST))
def test_pinning_leaves_every_other_position_alone(position: StartingPosition):
    assert position.pinned(NOW) is position


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (StartingPosition.trim_horizon(), "TRIM_HORIZON"),
        (StartingPosition.at_timestamp(NOW), "AT_TIMESTAMP 2026-01-01T00:00:00+00:00"),
        (StartingPosition.after(SequenceNumber("5")), "AFTER_SEQUENCE_NUMBER 5"),
        (StartingPosition.at(SequenceNumber("5", 2)), "AT_SEQUENCE_NUMBER 5:2"),
    ],
)
def test_a_position_reads_well_in_a_message(position: StartingPosition, text: str):
    assert str(position) == text
