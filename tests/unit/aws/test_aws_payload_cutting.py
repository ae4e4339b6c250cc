"""Cutting payloads out before parsing: the same as parsing the whole, or not done at all."""

from __future__ import annotations

import base64
import json
from typing import Any

import orjson
import pybase64
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.aws.decoding import (
    decode_get_records,
    has_large_payloads,
    parse_without_payloads,
)
from kinesis_publishers.errors import MalformedResponseError

# What could be mistaken for the place of a payload.
TRAPS = ['"Data":"', '\\"Data":"', 'x"Data', "Data", '"', "\\", '{"Data":"QUJD"}', "Daten ✈"]
LARGE = st.binary(min_size=400, max_size=450)
PAYLOADS = LARGE | st.binary(max_size=30)
TEXTS = st.lists(st.sampled_from(TRAPS) | st.text(max_size=3), max_size=4).map("".join)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def record(data: str, key: str, **more: Any) -> dict[str, Any]:
    return {
        "Data": data,
        "PartitionKey": key,
        "SequenceNumber": "495",
        "ApproximateArrivalTimestamp": 1.5,
        **more,
    }


RECORDS = st.lists(
    st.builds(
        lambda data, key, more: record(encoded(data), key, **more),
        PAYLOADS,
        TEXTS,
        st.dictionaries(TEXTS, TEXTS | st.dictionaries(TEXTS, TEXTS, max_size=1), max_size=2),
    ),
    max_size=4,
)
BODIES = st.builds(
    lambda first, records, more, compact: json.dumps(
        {**more, "Records": [record(encoded(first), "k"), *records]},
        ensure_ascii=False,
        separators=(",", ":") if compact else None,
    ).encode("utf-8", "replace"),
    LARGE,
    RECORDS,
    st.dictionaries(TEXTS, TEXTS, max_size=2),
    st.booleans(),
)


def parse_whole(body: bytes) -> tuple[dict[str, Any], list[bytes]]:
    answer = orjson.loads(body)
    return answer, [pybase64.b64decode(one.pop("Data"), None, True) for one in answer["Records"]]


def assert_equal_or_left_alone(body: bytes) -> None:
    cut = parse_without_payloads(body)
    if cut is None:
        return
    answer, payloads = cut
    for one in answer["Records"]:
        del one["Data"]
    assert (answer, payloads) == parse_whole(body)


@given(BODIES)
def test_cutting_gives_what_parsing_the_whole_gives(body: bytes) -> None:
    assert_equal_or_left_alone(body)


@given(BODIES, st.data())
def test_a_damaged_body_is_left_alone_or_parsed_the_same(body: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(body) - 1))
    inserted = data.draw(st.sampled_from([b"", b'"', b"\\", b"}", b"]", b'"Data":"', b"A"]))
    removed = data.draw(st.integers(0, 3))
    damaged = body[:at] + inserted + body[at + removed :]
    assert_equal_or_left_alone(damaged)
    try:
        page = decode_get_records(damaged)
    except MalformedResponseError:
        return
    assert list(page.payloads) == parse_whole(damaged)[1]


def test_large_payloads_are_cut() -> None:
    records = [record(encoded(bytes([number]) * 1000), "key") for number in range(3)]
    body = orjson.dumps({"Records": records})
    assert has_large_payloads(body)
    assert parse_without_payloads(body) is not None
    assert decode_get_records(body).payloads == [bytes([number]) * 1000 for number in range(3)]


@pytest.mark.parametrize(
    "text",
    [
        '{"Records":[{"Data":"%s","Data":"%s"}]}',  # a name twice: the last one counts
        '{"Records":[{"Data":"%s","More":{"Data":"%s"}}]}',
        '{"Records":[{"Data":"%s"},{"Data": "%s"}]}',
        '{"Records":[{"Data":"%s"}],"Records":[{"Data":"%s"},{"Data":"QQ=="}]}',
    ],
)
def test_what_might_be_understood_differently_is_not_cut(text: str) -> None:
    body = (text % (encoded(bytes(600)), encoded(b"1" * 600))).encode()
    assert_equal_or_left_alone(body)


def test_base64_that_is_cut_off_is_refused() -> None:
    body = orjson.dumps({"Records": [record(encoded(bytes(1000))[:-1], "key")]})
    with pytest.raises(MalformedResponseError):
        decode_get_records(body)
