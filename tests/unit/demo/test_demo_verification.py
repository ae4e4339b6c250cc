"""The comparison finds every way in which records can be wrong."""

from __future__ import annotations

import orjson
import pytest
from attrs import asdict, evolve
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers_spark.demo.flights import (
    CarrierDelays,
    FlightRecord,
    compare_delays,
    compare_records,
    summarize_flights,
)


def _flight(row: int, carrier: str = "UA", dep_delay: int | None = 0) -> FlightRecord:
    value = {"row": row, "carrier": carrier, "dep_delay": dep_delay}
    return FlightRecord(f"N{row}", orjson.dumps(value))


_PUT = [_flight(row) for row in range(6)]
_CHANGED_DATA = evolve(_PUT[2], data=orjson.dumps({"row": 2, "carrier": "DL", "dep_delay": 0}))
_CHANGED_KEY = evolve(_PUT[2], partition_key="N0")
_OUT_OF_RANGE = _flight(6)
_NEGATIVE = _flight(-1)
_NO_JSON = FlightRecord("N1", b"\x00")
_NO_OBJECT = FlightRecord("N1", b"[1]")
_NO_ROW = FlightRecord("N1", b"{}")


@given(st.permutations(_PUT))
def test_the_same_records_in_any_order_are_exact(received: list[FlightRecord]) -> None:
    comparison = compare_records(_PUT, received)
    assert comparison.is_exact
    assert (comparison.expected, comparison.received) == (6, 6)


@pytest.mark.parametrize(
    ("received", "found"),
    [
        pytest.param(_PUT[1:], {"missing": 1}, id="first missing"),
        pytest.param(_PUT[:-2], {"missing": 2}, id="last two missing"),
        pytest.param([], {"missing": 6}, id="all missing"),
        pytest.param([*_PUT, _PUT[3]], {"repeated": 1}, id="one repeated"),
        pytest.param([*_PUT, _PUT[3], _PUT[3]], {"repeated": 2}, id="one repeated twice"),
        pytest.param([*_PUT, *_PUT], {"repeated": 6}, id="all repeated"),
        pytest.param([*_PUT[:2], _CHANGED_DATA, *_PUT[3:]], {"different": 1}, id="other data"),
        pytest.param([*_PUT[:2], _CHANGED_KEY, *_PUT[3:]], {"different": 1}, id="other key"),
        pytest.param(
            [*_PUT, _CHANGED_DATA], {"different": 1, "repeated": 1}, id="repeated with other data"
        ),
        pytest.param([*_PUT[1:], _PUT[1]], {"missing": 1, "repeated": 1}, id="one for another"),
        pytest.param([*_PUT, _OUT_OF_RANGE], {"unknown": 1}, id="never put"),
        pytest.param([*_PUT, _NEGATIVE], {"unknown": 1}, id="negative number"),
        pytest.param([*_PUT, _NO_JSON], {"unknown": 1}, id="no JSON"),
        pytest.param([*_PUT, _NO_OBJECT], {"unknown": 1}, id="no object"),
        pytest.param([*_PUT[1:], _NO_ROW], {"missing": 1, "unknown": 1}, id="no number"),
    ],
)
def test_each_fault_is_counted_as_what_it_is(
    received: list[FlightRecord], found: dict[str, int]
) -> None:
    comparison = compare_records(_PUT, received)
    sound = {"missing": 0, "repeated": 0, "different": 0, "unknown": 0}
    counts = asdict(comparison)
    assert {name: counts[name] for name in sound} == sound | found
    assert not comparison.is_exact


def test_flights_are_counted_and_delays_summed_by_carrier() -> None:
    flights = [
        _flight(0, "UA", 5),
        _flight(1, "UA", -3),
        _flight(2, "UA", None),
        _flight(3, "DL", None),
    ]
    delays = summarize_flights(flights)
    assert delays == {
        "UA": CarrierDelays(flights=3, departed=2, delay_minutes=2),
        "DL": CarrierDelays(flights=1, departed=0, delay_minutes=0),
    }
    assert delays["UA"].mean_delay_minutes == 1.0
    assert delays["DL"].mean_delay_minutes is None


_UA = CarrierDelays(flights=3, departed=2, delay_minutes=2)


@pytest.mark.parametrize(
    ("computed", "wrong"),
    [
        ({"UA": _UA}, []),
        ({"UA": evolve(_UA, flights=4)}, ["UA"]),
        ({"UA": evolve(_UA, delay_minutes=3)}, ["UA"]),
        ({}, ["UA"]),
        ({"UA": _UA, "DL": _UA}, ["DL"]),
    ],
)
def test_wrong_figures_name_the_carrier(
    computed: dict[str, CarrierDelays], wrong: list[str]
) -> None:
    assert [line[:2] for line in compare_delays({"UA": _UA}, computed)] == wrong
