"""What a format encodes it decodes to the same value."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers.formats import (
    CloudEvent,
    Format,
    avro,
    decoder_of,
    encoder_of,
    gzip,
    protobuf,
    zstd,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
JSONS = st.recursive(
    st.none() | st.booleans() | _NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
_NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8)
EVENTS = st.builds(
    lambda own, more, data: CloudEvent(more | own, data),
    st.fixed_dictionaries(dict.fromkeys(("type", "source", "id"), TEXTS.filter(bool))),
    st.dictionaries(
        _NAMES.map(lambda name: f"x{name}"), TEXTS | st.booleans() | st.integers(-9, 9), max_size=3
    ),
    JSONS | st.binary(max_size=20),
)


def there_and_back(form: str | Format[Any], value: Any) -> Any:
    encode, decode = encoder_of(form), decoder_of(form)
    assert encode is not None
    assert decode is not None
    payload = encode(value)
    assert type(payload) is bytes
    return decode(payload)


def check(form: str | Format[Any], value: Any) -> None:
    """Compare by text: to Python, True is 1 and 1 is 1.0."""
    assert repr(there_and_back(form, value)) == repr(value)


@given(JSONS)
def test_json(value: object) -> None:
    check("json", value)


@given(TEXTS)
def test_text(value: str) -> None:
    check("text", value)


@given(JSONS.filter(lambda value: "0000000000" not in repr(value)))
@settings(max_examples=50)
def test_msgpack(value: object) -> None:
    try:
        check("msgpack", value)
    except OverflowError:
        assert any(len(part) > 18 for part in repr(value).split())


@given(st.binary(max_size=200))
@pytest.mark.parametrize("name", ["gzip", "zstd", "bytes"])
def test_bytes_by_name(name: str, value: bytes) -> None:
    check(name, value)


@given(JSONS)
@pytest.mark.parametrize("packed", [gzip("json"), zstd("json"), gzip(zstd("json"))])
def test_a_compressed_format(packed: Format[Any], value: object) -> None:
    check(packed, value)


_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "prices", "type": {"type": "map", "values": "double"}},
        {
            "name": "total",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        },
    ],
}


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.none() | TEXTS,
    st.dictionaries(TEXTS, st.floats(allow_nan=False), max_size=3),
    st.decimals(-(10**9), 10**9, places=2),
)
def test_avro(number: int, note: str | None, prices: dict[str, float], total: object) -> None:
    value = {"id": number, "note": note, "prices": prices, "total": total}
    assert there_and_back(avro(_ORDER), value) == value


@given(st.dictionaries(TEXTS, st.floats(allow_nan=False) | TEXTS, max_size=4))
def test_protobuf(fields: dict[str, Any]) -> None:
    value = Struct()
    value.update(fields)
    assert there_and_back(protobuf(Struct), value) == value


@given(EVENTS)
def test_cloudevents(event: CloudEvent) -> None:
    assert there_and_back("cloudevents", event) == event
