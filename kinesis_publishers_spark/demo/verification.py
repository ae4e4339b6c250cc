"""Decides whether what was read is what was put: every record exactly once and unchanged. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from attrs import frozen

from kinesis_publishers_spark.demo.flights import CarrierDelays

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesis_publishers_spark.demo.flights import FlightRecord

__all__ = ["Comparison", "compare_delays", "compare_records", "summarize_flights"]


@frozen(kw_only=True)
class Comparison:
    """How records that were read differ from those that were put.

    Attributes:
        expected: how many there should be.
        received: how many there are.
        missing: how many of those expected never came.
        repeated: how often one came that had come before.
        different: how many came with other data or another partition key.
        unknown: how many came that carry the number of no flight.
    """

    expected: int
    received: int
    missing: int
    repeated: int
    different: int
    unknown: int

    @property
    def is_exact(self) -> bool:
        """Whether every record came exactly once and unchanged, and nothing else did."""
        return not (self.missing or self.repeated or self.different or self.unknown)


def compare_records(
    expected: Sequence[FlightRecord], received: Iterable[FlightRecord]
) -> Comparison:
    """Compare records by the number of the flight in them, which is its index in ``expected``."""
    times_seen = [0] * len(expected)
    total = different = unknown = 0
    for record in received:
        total += 1
        row = _row_number(record.data)
        if row is None or not 0 <= row < len(expected):
            unknown += 1
            continue
        times_seen[row] += 1
        different += record != expected[row]
    return Comparison(
        expected=len(expected),
        received=total,
        missing=times_seen.count(0),
        repeated=sum(times - 1 for times in times_seen if times > 1),
        different=different,
        unknown=unknown,
    )


def _row_number(data: bytes) -> int | None:
    try:
        value: Any = orjson.loads(data)
    except ValueError:
        return None
    row = value.get("row") if isinstance(value, dict) else None
    return row if isinstance(row, int) else None


def summarize_flights(records: Iterable[FlightRecord]) -> dict[str, CarrierDelays]:
    """Return what the flights say about each carrier: what Spark's result must be."""
    delays: dict[str, list[int | None]] = {}
    for record in records:
        flight = orjson.loads(record.data)
        delays.setdefault(flight["carrier"], []).append(flight["dep_delay"])
    return {carrier: _summarize(values) for carrier, values in delays.items()}


def _summarize(delays: Sequence[int | None]) -> CarrierDelays:
    known = [delay for delay in delays if delay is not None]
    return CarrierDelays(flights=len(delays), departed=len(known), delay_minutes=sum(known))


def compare_delays(
    expected: Mapping[str, CarrierDelays], computed: Mapping[str, CarrierDelays]
) -> list[str]:
    """Return one line for each carrier whose figures differ; they are exact integers."""
    return [
        f"{carrier}: expected {expected.get(carrier)}, Spark computed {computed.get(carrier)}"
        for carrier in sorted(expected.keys() | computed.keys())
        if expected.get(carrier) != computed.get(carrier)
    ]
