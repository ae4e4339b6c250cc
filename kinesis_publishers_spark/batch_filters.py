"""What the filters of a query say about the records that it needs. Pure."""

from __future__ import annotations

from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from kinesis_publishers.readers import Narrowing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql.datasource import Filter

__all__ = ["PushedFilters"]

# Filters are told apart by their names: Spark before 4.1 does not have their classes.
_EQUAL = ("EqualTo", "EqualNullSafe")
_SINCE = ("GreaterThan", "GreaterThanOrEqual", *_EQUAL)
_UNTIL = ("LessThan", "LessThanOrEqual", *_EQUAL)
_SHARD, _STREAM = "shardid", "streamname"
_ARRIVAL = "approximatearrivaltimestamp"


@frozen
class PushedFilters:
    """The filters of a query, as far as they decide what is read.

    Attributes:
        narrowing: what the query does not need.
        rest: the filters that Spark still has to evaluate for each row.
    """

    narrowing: Narrowing = field(factory=Narrowing)
    rest: tuple[Filter, ...] = ()

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> PushedFilters:
        """Sort out ``filters``, all of which hold."""
        return reduce(_with_filter, filters, cls())


def _with_filter(pushed: PushedFilters, one: Filter) -> PushedFilters:
    column = _column(one)
    if column in (_SHARD, _STREAM):
        return _with_names(pushed, one, is_shard=column == _SHARD)
    if column == _ARRIVAL:
        pushed = evolve(pushed, narrowing=_with_arrival(pushed.narrowing, one))
    # A minute more is read than the arrival times ask for, and records are not in their order:
    # Spark looks at each row.
    return evolve(pushed, rest=(*pushed.rest, one))


def _column(one: Filter) -> str | None:
    path: Sequence[str] = getattr(one, "attribute", ())
    return path[0].lower() if len(path) == 1 else None


def _with_names(pushed: PushedFilters, one: Filter, *, is_shard: bool) -> PushedFilters:
    kind, value = type(one).__name__, getattr(one, "value", None)
    known = pushed.narrowing
    if kind == "IsNotNull":  # it never is
        return pushed
    if kind == "In" and isinstance(value, tuple):
        wanted = frozenset(value)
    elif kind in _EQUAL:
        wanted = frozenset((value,))
    else:
        return evolve(pushed, rest=(*pushed.rest, one))
    if is_shard:
        narrowing = evolve(known, shard_ids=_both(known.shard_ids, wanted))
    else:
        narrowing = evolve(known, stream_names=_both(known.stream_names, wanted))
    return evolve(pushed, narrowing=narrowing)


def _both(known: frozenset[str] | None, wanted: frozenset[str]) -> frozenset[str]:
    return wanted if known is None else known & wanted


def _with_arrival(narrowing: Narrowing, one: Filter) -> Narrowing:
    kind, instant = type(one).__name__, getattr(one, "value", None)
    # Without a zone it would mean another instant on another machine.
    if not isinstance(instant, datetime) or instant.tzinfo is None:
        return narrowing
    if kind in _SINCE:
        known = narrowing.arrived_since
        narrowing = evolve(narrowing, arrived_since=max(instant, known or instant))
    if kind in _UNTIL:
        known = narrowing.arrived_until
        narrowing = evolve(narrowing, arrived_until=min(instant, known or instant))
    return narrowing
