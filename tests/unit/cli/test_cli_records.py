"""A record as one line of output."""

from __future__ import annotations

import json
from typing import Any

import pybase64
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers import Record
from kinesis_publishers.cli.shared.formats import (
    DATA_ENCODINGS,
    json_line,
    payload_text,
    plain_line,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
)


def record(data: bytes, key: str | None = "k") -> Record:
    return Record(
        data=data,
        partition_key=key,
        sequence_number="4968",
        arrival_epoch_seconds=1_700_000_000.25,
        encryption_type=None,
        shard_id="shardId-000000000000",
        stream_name="orders",
    )


def parsed(data: bytes, encoding: str) -> dict[str, Any]:
    line = json_line(record(data), encoding)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    return dict(json.loads(line))


def test_a_record_has_its_place_key_and_arrival() -> None:
    assert parsed(b"a", "base64") == {
        "stream_name": "orders",
        "shard_id": "shardId-000000000000",
        "sequence_number": "4968",
        "partition_key": "k",
        "sub_sequence_number": None,
        "approximate_arrival_timestamp": "2023-11-14T22:13:20.250000Z",
        "encryption_type": None,
        "data_encoding": "base64",
        "data": "YQ==",
    }


@pytest.mark.parametrize(
    ("data", "asked", "used", "shown"),
    [
        (b"", "text", "text", ""),
        ("grüße".encode(), "text", "text", "grüße"),
        (b"\xff", "text", "base64", "/w=="),
        (b'{"a": [1]}', "json", "json", {"a": [1]}),
        (b"{", "json", "text", "{"),
        (b"", "json", "text", ""),
        (b"\xff", "json", "base64", "/w=="),
        (b"NaN", "json", "text", "NaN"),
    ],
)
def test_a_payload_that_does_not_fit_is_encoded_otherwise_and_says_so(
    data: bytes, asked: str, used: str, shown: object
) -> None:
    found = parsed(data, asked)
    assert (found["data_encoding"], found["data"]) == (used, shown)


def test_numbers_of_a_json_payload_are_not_rounded() -> None:
    data = b'{\n "id": 123456789012345678901234567890, "price": 1.10\r\n}'
    line = json_line(record(data), "json")
    assert b'"id": 123456789012345678901234567890, "price": 1.10' in line
    assert b"\n" not in line[:-1]


@given(st.binary(), st.sampled_from(DATA_ENCODINGS))
def test_no_payload_is_lost(data: bytes, encoding: str) -> None:
    found = parsed(data, encoding)
    match found["data_encoding"]:
        case "base64":
            assert pybase64.b64decode(found["data"]) == data
        case "text":
            assert found["data"].encode() == data
        case _:
            assert found["data"] == json.loads(data)


@pytest.mark.parametrize(("key", "shown"), [("k\t", r"k\t"), (None, "-")])
def test_a_line_for_people_shows_what_is_not_text_as_escapes(key: str | None, shown: str) -> None:
    assert plain_line(record(b"a\n\xff\\", key=key)) == (
        f"2023-11-14T22:13:20.250000Z  orders/shardId-000000000000  {shown}  a\\n\\xff\\"
    )


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b'{"path": "C:\\\\new", "line": "a\\nb"}', r'{"path": "C:\\new", "line": "a\nb"}'),
        ("C:\\new, grüße 🎉, a\u00a0b".encode(), "C:\\new, grüße 🎉, a\u00a0b"),
        (b"two\nlines\t", r"two\nlines\t"),
        (
            b'{\n\t"id": 12345678901234567890,\r\n "a": 1.10\n}',
            '{  "id": 12345678901234567890,   "a": 1.10 }',
        ),
        (b"\x1b[31mred\x7f", r"\u001b[31mred\u007f"),
        ("\x9b31m \u202e \U000e0001".encode(), r"\u009b31m \u202e \udb40\udc01"),
        (b"", ""),
    ],
)
def test_a_payload_in_utf_8_is_shown_as_it_is_but_for_control_characters(
    data: bytes, shown: str
) -> None:
    assert payload_text(data) == shown


@given(json_values)
def test_json_that_is_shown_is_the_same_json(value: object) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent="\t")):
        shown = payload_text(text.encode())
        assert json.loads(shown) == value
        assert len(shown.splitlines()) <= 1


@given(st.binary())
def test_no_payload_has_anything_that_a_terminal_would_obey(data: bytes) -> None:
    assert all(one.isprintable() or one.isspace() for one in payload_text(data))
    assert len(payload_text(data).splitlines()) <= 1


def test_of_a_long_payload_a_line_can_show_the_beginning_only() -> None:
    line = plain_line(record(b"a\n" * 500_000), longest=10)
    assert line.endswith("  " + r"a\n" * 5)
    assert payload_text("grüße".encode() * 9, longest=3) == "gr"
