"""What decoders take, what they refuse, and what a payload may not do to who reads it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import zlib
from decimal import Decimal
from io import BytesIO
from typing import TYPE_CHECKING, Any

import boto3
import fastavro
import msgpack
import pytest
from botocore.stub import Stubber
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark import cloudpickle

from kinesis_publishers.formats import avro, decoder_of, glue
from kinesis_publishers.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

_LEAVES = st.none() | st.integers(-(2**70), 2**70) | st.floats() | st.text('01,:[]-.e"\\ ü')
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(st.text("12:,"), inner),
    max_leaves=6,
)


def from_json(data: bytes) -> Any:
    decode = decoder_of("json")
    assert decode is not None
    return decode(data)


@given(_VALUES, st.booleans())
@example(2**64, True)
@example(-(2**63) - 1, True)
@example([147573952589676412927, "-98765432109876543210", 1.5], False)
@example({"at": "2026-11-27", "id": 10**307}, True)
def test_json_has_the_values_that_pythons_own_module_finds(value: object, is_short: bool) -> None:
    text = json.dumps(value, separators=(",", ":") if is_short else None)
    if "NaN" not in text and "Infinity" not in text:
        assert repr(from_json(text.encode())) == repr(json.loads(text))


@pytest.mark.parametrize(
    "payload",
    [
        *(b"NaN", b"-Infinity", b"\xef\xbb\xbf{}", "{}".encode("utf-16"), b'"\\ud800"', b'"\xff"'),
        *(b"1e400", b"1" * 310, b"1" * 5000, b"01", b'"a\nb"', b"", b"1 2"),
        b"[" * 1025 + b"]" * 1025,
        b"[" * 1024 + b"12345678901234567890" + b"]" * 1024,
    ],
    ids=lambda payload: repr(payload[:20]),
)
def test_what_json_does_not_take_is_an_error_of_the_record(payload: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        from_json(payload)


def test_json_takes_the_last_of_equal_keys_and_rounds_only_what_has_a_fraction() -> None:
    value = from_json(b'{"a": 1, "a": 18446744073709551616, "b": 0.12345678901234567890123}')
    assert repr(value) == "{'a': 18446744073709551616, 'b': 0.12345678901234568}"


_LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
_ENDLESS = {"type": "record", "name": "E", "fields": [{"name": "e", "type": "E"}]}
_EMPTY = {"type": "record", "name": "N", "fields": [{"name": "none", "type": "null"}]}
_LISTS = {
    "type": "record",
    "name": "M",
    "fields": [{"name": "a", "type": {"type": "array", "items": "int"}}],
}
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


def array_of(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def long(value: int) -> bytes:
    written = BytesIO()
    fastavro.schemaless_writer(written, "long", value)
    return written.getvalue()


_FIFTY_BILLION = long(50_000_000_000) + b"\0"
_HOSTILE: dict[str, tuple[Any, bytes]] = {
    "a list of lists without end": (_LIST, b"\2" * 5000 + b"\0"),
    "a number of a megabyte": (_LIST, b"\xff" * 2**20),
    "a record that has itself": (_ENDLESS, b""),
    "records that have themselves": (array_of(_ENDLESS), b"\2\0"),
    "nulls": (array_of("null"), _FIFTY_BILLION),
    "nulls by a negative count": (array_of("null"), long(-50_000_000_000) + b"\0\0"),
    "empty records": (array_of(_EMPTY), _FIFTY_BILLION),
    "fixed values without bytes": (
        array_of({"type": "fixed", "name": "F", "size": 0}),
        _FIFTY_BILLION,
    ),
    "maps that claim more than there is": ({"type": "map", "values": "null"}, _FIFTY_BILLION),
    "a decimal of a million digits": (_DECIMAL, long(2**20) + b"\1" * 2**20),
}


def test_no_payload_of_avro_exhausts_the_stack_or_the_memory() -> None:
    code = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
from kinesis_publishers.formats import avro
import msgpack
for name, (schema, payload) in msgpack.unpackb(sys.stdin.buffer.read(), max_array_len=9).items():
    try:
        print(name, "->", len(repr(avro(schema).decode(payload))))
    except (ValueError, RecursionError, EOFError):
        print(name, "-> refused")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=msgpack.packb(_HOSTILE), capture_output=True, timeout=60
    )
    outcomes = done.stdout.decode().splitlines()
    assert outcomes == [f"{name} -> refused" for name in _HOSTILE], done.stderr.decode()


_TREE = {
    "type": "record",
    "name": "T",
    "fields": [
        {"name": "leaf", "type": ["null", "string", "bytes", "double"]},
        {"name": "names", "type": {"type": "map", "values": ["boolean", "long", _DECIMAL]}},
        {"name": "branches", "type": array_of("T")},
    ],
}


def test_what_avro_holds_is_decoded_though_it_has_bounds() -> None:
    tree: dict[str, Any] = {"leaf": "\u00fc" * 99, "names": {}, "branches": []}
    for leaf in (None, b"\xff" * 99, 1.5):
        names = {"a": True, "b": -(2**63), "c": Decimal("-12345678.90")}
        tree = {"leaf": leaf, "names": names, "branches": [tree, tree]}
    written = BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(_TREE), tree)
    assert avro(_TREE).decode(written.getvalue()) == tree


_SHORT: dict[str, Any] = {
    "type": "record",
    "name": "S",
    "fields": [
        {"name": "byte", "type": "bytes"},
        {"name": "fixed", "type": array_of({"type": "fixed", "name": "B", "size": 1})},
        {"name": "number", "type": "long"},
        {"name": "next", "type": ["null", "S"]},
    ],
}


@pytest.mark.parametrize("number", [-(2**63), 2**62, 2**63 - 1])
def test_avro_takes_short_bytes_before_long_numbers(number: int) -> None:
    inner = {"byte": b"\xff", "fixed": [b"\xff"] * 12, "number": number, "next": None}
    value = {**inner, "fixed": [], "next": inner}
    written = BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(_SHORT), value)
    assert avro(_SHORT).decode(written.getvalue()) == value


def test_avro_refuses_a_decimal_that_is_longer_than_its_precision() -> None:
    assert avro(_DECIMAL).decode(b"\2\7") == Decimal("0.07")
    with pytest.raises(ValueError, match="more than its precision needs"):
        avro(_DECIMAL).decode(long(2000) + b"\1" * 2000)


def test_a_decoder_of_avro_works_in_the_process_that_it_is_sent_to() -> None:
    code = r"import pickle, sys; print(pickle.load(sys.stdin.buffer).decode(b'\2\7'))"
    sent = cloudpickle.dumps(avro(_DECIMAL))
    done = subprocess.run(
        [sys.executable, "-c", code], input=sent, capture_output=True, check=True, timeout=60
    )
    assert done.stdout == b"0.07\n"


def test_avro_refuses_a_record_of_another_schema() -> None:
    with pytest.raises(ValueError, match="1 bytes follow"):
        avro('"long"').decode(b"\6x")


_ID = bytes(range(16))
_BOMB = b"\3\5" + _ID + zlib.compress(bytes(2**25))


@pytest.fixture
def registry() -> Iterator[Stubber]:
    """A registry that gives the answers in their order, and none that is not there."""
    client = boto3.client(
        "glue", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    with Stubber(client) as stubber:
        yield stubber


def answer(form: str, definition: str = "{}") -> dict[str, str]:
    return {"DataFormat": form, "SchemaDefinition": definition}


@pytest.mark.parametrize(
    ("schema", "payload", "message"),
    [
        (None, b"{}", "does not begin with a header"),
        (None, b"\3\7" + _ID, "compressed in an unknown way"),
        (answer("JSON"), b"\3\5" + _ID + zlib.compress(b"{}")[:-1], "is cut, or has more than"),
        (answer("JSON"), _BOMB, "more than 16,777,216 bytes unpacked: a larger max_bytes"),
        (answer("AVRO", json.dumps(array_of(_LISTS))), _BOMB, "more than 1,766,"),
        (answer("AVRO", json.dumps(array_of("null"))), b"\3\0" + _ID, "take no bytes"),
        (answer("PROTOBUF"), b"\3\0" + _ID, "is PROTOBUF, cannot be used: give glue"),
        (answer("AVRO", '{"type": "no type"}'), b"\3\0" + _ID, "00010203-.* cannot be used"),
        (answer("AVRO", '{"type": [' * 2000), b"\3\0" + _ID, "00010203-.* cannot be used"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_a_writer_may_do_to_glues_decoder_is_an_error_of_the_record(
    registry: Stubber, schema: dict[str, str] | None, payload: bytes, message: str
) -> None:
    if schema is not None:
        registry.add_response("get_schema_version", schema)
    with pytest.raises(ValueError, match=message):
        glue(registry.client).decode(payload)


def test_glue_unpacks_at_most_a_byte_where_its_bound_is_less(registry: Stubber) -> None:
    registry.add_response("get_schema_version", answer("JSON"))
    with pytest.raises(ValueError, match="more than 1 bytes unpacked"):
        glue(registry.client, max_bytes=8).decode(_BOMB)


def test_glue_asks_again_after_a_while_for_what_was_of_no_use(registry: Stubber) -> None:
    clock = ManualClock()
    decode = glue(registry.client, clock=clock).decode
    registry.add_client_error("get_schema_version", "EntityNotFoundException")
    for _ in range(3):
        # One more call than there are answers would be another error.
        with pytest.raises(ValueError, match="has no schema"):
            decode(b"\3\0" + _ID + b"1")
    registry.add_response("get_schema_version", answer("JSON"))
    asyncio.run(clock.advance(60))
    assert [decode(b"\3\0" + _ID + b"1") for _ in range(3)] == [1, 1, 1]
