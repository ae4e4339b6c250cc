"""What filters leave to be read, and to Spark: the rows of a query are the same, pushed or not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers import Shard, StartingPosition
from kinesis_publishers.model import Positions
from kinesis_publishers.readers.bounded_read import BatchBounds, Narrowing
from kinesis_publishers_spark.batch_reader import PushedFilters
from tests.examples import examples

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
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_ARRIVAL = "approximateArrivalTimestamp"
_NAMES = ("shardId", "streamName")
_COLUMNS = (*_NAMES, _ARRIVAL, "partitionKey")
_SHARDS = ("shardId-000000000000", "shardId-000000000001")
_STREAMS = ("orders", "returns")


@frozen
class _Row:
    """A record of a shard; its columns by their names in lower case."""

    shardid: str
    streamname: str
    approximatearrivaltimestamp: datetime
    partitionkey: str


def minutes(value: float) -> datetime:
    return _NOON + timedelta(minutes=value)


# Arrival times are out of order within a shard, by less than a minute.
_arrivals = st.lists(st.integers(-20, 0).map(float), min_size=6, max_size=12).map(sorted)
_disorder = st.lists(st.floats(-0.49, 0.49), min_size=1, max_size=5)
_zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])
_instants = st.one_of(st.integers(-22, 2).map(float), st.floats(-22, 2)).map(minutes)
_zoned = st.builds(lambda instant, zone: instant.astimezone(zone), _instants, _zones)
_literals = {
    "shardId": st.sampled_from([*_SHARDS * 3, "shardId-000000000007", None]),
    "streamName": st.sampled_from([*_STREAMS * 3, "nothing", None]),
    _ARRIVAL: st.one_of(_zoned, _zoned, _zoned, st.none()),
    "partitionKey": st.sampled_from([*"ab" * 3, None]),
}
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: lambda one, other: one == other,
    GreaterThan: lambda one, other: one > other,
    GreaterThanOrEqual: lambda one, other: one >= other,
    LessThan: lambda one, other: one < other,
    LessThanOrEqual: lambda one, other: one <= other,
    StringStartsWith: lambda one, other: one.startswith(other),
    StringEndsWith: lambda one, other: one.endswith(other),
    StringContains: lambda one, other: other in one,
}


def holds(one: Any, row: _Row) -> bool | None:
    """Evaluate a filter as SQL does; ``None`` is unknown, and no row is kept for it."""
    if isinstance(one, Not):
        inner = holds(one.child, row)
        return None if inner is None else not inner
    value = getattr(row, one.attribute[0].lower())
    if isinstance(one, IsNull | IsNotNull):
        return isinstance(one, IsNotNull)
    if isinstance(one, In):
        found = value in one.value
        return None if not found and None in one.value else found
    if isinstance(one, EqualNullSafe):
        return bool(value == one.value)
    return None if one.value is None else _COMPARISONS[type(one)](value, one.value)


_ORDERED = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
_TEXTUAL = (*_ORDERED, StringStartsWith, StringEndsWith, StringContains)


@st.composite
def _comparisons(draw: st.DrawFn, columns: Sequence[str]) -> Any:
    column = draw(st.sampled_from(columns))
    path = (draw(st.sampled_from([column, column.lower(), column.upper()])),)
    kinds = _ORDERED if column == _ARRIVAL else _TEXTUAL
    return draw(st.sampled_from(kinds))(path, draw(_literals[column]))


@st.composite
def _others(draw: st.DrawFn) -> Any:
    column = draw(st.sampled_from(_COLUMNS))
    several = st.lists(_literals[column], min_size=1, max_size=40).map(tuple)
    inner = draw(
        st.one_of(
            st.builds(In, st.just((column,)), several),
            st.sampled_from([IsNull((column,)), IsNotNull((column,))]),
            _comparisons([column]),
        )
    )
    return Not(inner) if draw(st.booleans()) else inner


# Two of the kinds that are pushed down, mostly, and one of any kind.
_pushed = st.lists(st.one_of(_comparisons([_ARRIVAL]), _comparisons(_NAMES)), max_size=2)
_filters = st.builds(
    lambda pushed, any_kind: pushed + any_kind, _pushed, st.lists(_others(), max_size=1)
)


def rows_between(
    bounds: BatchBounds, narrowing: Narrowing, shards: Iterable[tuple[Shard, list[_Row]]]
) -> list[_Row]:
    """Return what a batch reads, as the service finds positions by time."""
    found = []
    for shard, rows in shards:
        if narrowing.needs_shard(shard) and not bounds.is_empty(shard.key):
            found += rows[_index(bounds.starts.default, rows) : _index(bounds.ends.default, rows)]
    return found


def _index(position: StartingPosition, rows: list[_Row]) -> int:
    instant = position.timestamp
    if instant is None:
        return 0
    arrived = (at for at, row in enumerate(rows) if row.approximatearrivaltimestamp >= instant)
    return next(arrived, len(rows))


def shard_of(stream: str, shard_id: str) -> Shard:
    return Shard(stream_arn=f"arn:aws:kinesis:eu-west-1:1:stream/{stream}", shard_id=shard_id)


@settings(max_examples=examples(100))
@given(
    st.lists(_arrivals, min_size=4, max_size=4),
    _disorder,
    _filters,
    st.one_of(st.none(), st.integers(-20, -10)),
    st.integers(-9, 0),
)
def test_the_rows_are_the_same_pushed_down_or_not(
    arrivals: list[list[float]],
    disorder: list[float],
    filters: list[Any],
    begin: int | None,
    end: int,
) -> None:
    places = [(stream, shard_id) for stream in _STREAMS for shard_id in _SHARDS]
    shards = [
        (
            shard_of(stream, shard_id),
            [
                _Row(shard_id, stream, minutes(one + disorder[at % len(disorder)]), "ab"[at % 2])
                for at, one in enumerate(of_shard)
            ],
        )
        for (stream, shard_id), of_shard in zip(places, arrivals, strict=True)
    ]
    bounds = BatchBounds(
        starts=Positions(
            StartingPosition.trim_horizon()
            if begin is None
            else StartingPosition.at_timestamp(minutes(begin))
        ),
        ends=Positions(StartingPosition.at_timestamp(minutes(end))),
    )
    everything = rows_between(bounds, Narrowing(), shards)
    expected = [row for row in everything if all(holds(one, row) for one in filters)]
    pushed = PushedFilters.of(filters)
    narrowed = bounds.narrowed(pushed.narrowing)
    read = rows_between(narrowed, pushed.narrowing, shards)
    assert [row for row in read if all(holds(one, row) for one in pushed.rest)] == expected


EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
SHARD, STREAM = ("shardId",), ("streamName",)
ARRIVAL = (_ARRIVAL,)


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
