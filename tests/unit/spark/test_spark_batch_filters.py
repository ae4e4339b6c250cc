"""What filters leave to be read, and what Spark still has to evaluate."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kinesis_publishers.readers.bounded_read import Narrowing
from kinesis_publishers_spark.batch_reader import PushedFilters

datasource = pytest.importorskip("pyspark.sql.datasource")
if not hasattr(datasource, "EqualTo"):
    pytest.skip("Spark before 4.1 pushes no filters down", allow_module_level=True)

from pyspark.sql.datasource import (  # noqa: E402 - what Spark 4.0 does not have
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
SHARD, STREAM = ("shardId",), ("streamName",)
ARRIVAL = ("approximateArrivalTimestamp",)


@pytest.mark.parametrize(
    ("filters", "narrowing"),
    [
        ([EqualTo(SHARD, "a")], Narrowing(shard_ids=frozenset("a"))),
        ([EqualNullSafe(SHARD, "a")], Narrowing(shard_ids=frozenset("a"))),
        ([In(SHARD, ("a", "b"))], Narrowing(shard_ids=frozenset("ab"))),
        ([In(SHARD, ("a", "b")), EqualTo(SHARD, "b")], Narrowing(shard_ids=frozenset("b"))),
        ([EqualTo(SHARD, "a"), EqualTo(SHARD, "b")], Narrowing(shard_ids=frozenset())),
        ([EqualTo(("shardid",), "a")], Narrowing(shard_ids=frozenset("a"))),
        ([IsNotNull(STREAM), EqualTo(STREAM, "s")], Narrowing(stream_names=frozenset("s"))),
        ([In(STREAM, ("s", "t"))], Narrowing(stream_names=frozenset("st"))),
    ],
)
def test_shards_and_streams_are_left_out_exactly(filters: list[Any], narrowing: Narrowing) -> None:
    assert PushedFilters.of(filters) == PushedFilters(narrowing)


@pytest.mark.parametrize(
    ("filters", "since", "until"),
    [
        ([GreaterThan(ARRIVAL, EARLY)], EARLY, None),
        ([LessThan(ARRIVAL, LATE)], None, LATE),
        ([GreaterThanOrEqual(ARRIVAL, EARLY), LessThanOrEqual(ARRIVAL, LATE)], EARLY, LATE),
        ([EqualTo(ARRIVAL, LATE)], LATE, LATE),
        ([GreaterThan(ARRIVAL, EARLY), GreaterThan(ARRIVAL, LATE)], LATE, None),
        ([LessThan(ARRIVAL, EARLY), LessThan(ARRIVAL, LATE)], None, EARLY),
    ],
)
def test_arrival_times_narrow_what_is_read_and_stay_with_spark(
    filters: list[Any], since: datetime | None, until: datetime | None
) -> None:
    pushed = PushedFilters.of(filters)
    assert pushed.narrowing == Narrowing(arrived_since=since, arrived_until=until)
    # The very objects: Spark looks for them by identity.
    assert all(kept is given for kept, given in zip(pushed.rest, filters, strict=True))


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(SHARD, "a")),
        Not(EqualTo(ARRIVAL, EARLY)),
        StringStartsWith(SHARD, "a"),
        GreaterThan(SHARD, "a"),
        IsNull(SHARD),
        IsNotNull(ARRIVAL),
        In(ARRIVAL, (EARLY, LATE)),
        EqualTo(("partitionKey",), "a"),
        EqualTo(("shardId", "field"), "a"),
        GreaterThan(ARRIVAL, EARLY.replace(tzinfo=None)),
        GreaterThan(ARRIVAL, None),
    ],
)
def test_everything_else_is_left_to_spark(one: Any) -> None:
    assert PushedFilters.of([one]) == PushedFilters(Narrowing(), (one,))
