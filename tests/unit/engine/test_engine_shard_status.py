"""Up to which instant a shard has been read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from kinesis_publishers import ShardProgress, ShardStatus, StartingPosition
from kinesis_publishers.testing.fakes import sample_shard

INSTANT = datetime(2026, 1, 1, tzinfo=UTC)
OPEN = sample_shard()
STATUS = ShardStatus(shard=OPEN, progress=ShardProgress(position=StartingPosition.trim_horizon()))


@pytest.mark.parametrize(
    ("seconds", "is_read"), [(None, False), (-0.001, False), (0.0, True), (1.0, True)]
)
def test_an_open_shard_is_read_until_an_instant_that_its_answers_have_reached(
    seconds: float | None, is_read: bool
) -> None:
    read_until = None if seconds is None else INSTANT + timedelta(seconds=seconds)
    assert evolve(STATUS, read_until=read_until).is_read_until(INSTANT) is is_read


def test_a_closed_shard_is_read_to_its_end_whatever_its_answers_say() -> None:
    closed = evolve(OPEN, ending_sequence_number="9")
    status = evolve(STATUS, shard=closed, read_until=INSTANT + timedelta(days=1))
    assert not status.is_read_until(INSTANT)
