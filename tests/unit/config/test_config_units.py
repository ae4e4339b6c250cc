"""Numbers: what each kind of value accepts and refuses."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.config import Properties
from kinesis_publishers.config.catalogue import find_option
from kinesis_publishers.errors import ConfigErrors


def _read(key: str, value: object) -> object:
    option = find_option(key)
    assert option is not None
    return Properties.parse({key: value}, complete=False).get(option)  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500", 500),
        ("500ms", 500),
        ("500 MS", 500),
        ("1.5s", 1500),
        ("0.3s", 300),
        ("2m", 120_000),
        ("2 minutes", 120_000),
        ("1h", 3_600_000),
        ("1e3", 1000),
        (250, 250),
        (0.5, 0.5),
    ],
)
def test_a_duration_is_converted_to_the_unit_of_its_option(text: object, milliseconds: int) -> None:
    assert _read("kinesis.watermark.lookahead.millis", text) == milliseconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64MiB", 67_108_864),
        ("10MB", 10_000_000),
        ("1 GiB", 1_073_741_824),
        ("1.5KiB", 1536),
        ("123", 123),
        (123, 123),
        ("7b", 7),
    ],
)
def test_a_size_is_converted_to_bytes(text: object, size: int) -> None:
    assert _read("kinesis.pending.maxbytes", text) == size


@pytest.mark.parametrize(
    "value", ["1.5", 1.5, "-1", -1, "", "ten", "9" * 19, True, "1_000", "٣", 10001, "0"]
)
def test_a_bounded_count_refuses_everything_else(value: object) -> None:
    key = "flink.shard.getrecords.maxrecordcount"
    with pytest.raises(ConfigErrors) as caught:
        _read(key, value)
    expected = "expected a whole number of at least 1 and of at most 10000"
    assert f"{key}: got {value!r}, {expected}" in str(caught.value)


@pytest.mark.parametrize("value", ["0.3b", "1.5", "5s", "12m", 0, -1, False])
def test_a_size_refuses_what_is_no_number_of_bytes(value: object) -> None:
    with pytest.raises(ConfigErrors, match="a whole number of bytes"):
        _read("kinesis.pending.maxbytes", value)


@pytest.mark.parametrize("value", ["yes", "1", 1, 0, "", "t"])
def test_a_flag_refuses_everything_but_true_and_false(value: object) -> None:
    with pytest.raises(ConfigErrors, match="expected true or false"):
        _read("kinesis.failondataloss", value)


@pytest.mark.parametrize("value", [300_000, "300s", "5m", "300000"])
def test_the_polling_interval_stays_below_the_life_of_an_iterator(value: object) -> None:
    with pytest.raises(ConfigErrors, match="below 300000"):
        _read("kinesis.shard.getrecords.intervalmillis", value)


def test_a_typed_whole_number_may_be_a_float_without_a_fraction() -> None:
    assert _read("kinesis.pending.maxrecords", 5.0) == 5


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, None, [1], b"1"])
def test_a_value_that_is_no_number_at_all_is_an_error_of_the_option(value: object) -> None:
    for key in ("kinesis.pending.maxrecords", "kinesis.pending.waittimeoutmillis"):
        with pytest.raises(ConfigErrors, match=key):
            _read(key, value)


@given(st.integers(min_value=0, max_value=10**9))
def test_a_duration_means_the_same_in_every_unit(milliseconds: int) -> None:
    key = "kinesis.watermark.sync.interval"
    assert _read(key, f"{milliseconds}ms") == _read(key, milliseconds)
    assert _read(key, f"{milliseconds}s") == _read(key, milliseconds * 1000)


@given(st.text())
def test_any_text_is_parsed_or_refused_as_a_configuration_error(text: str) -> None:
    for key in (
        "kinesis.pending.maxbytes",
        "kinesis.pending.maxrecords",
        "kinesis.shard.discovery.intervalmillis",
        "kinesis.list.shards.backoff.expconst",
        "kinesis.stream.initpos.shards",
        "kinesis.stream.initpos.timestamp",
        "kinesis.stream.initpos.timestamp.format",
        "kinesis.streams",
        "aws.endpoint",
    ):
        with contextlib.suppress(ConfigErrors):
            _read(key, text)
