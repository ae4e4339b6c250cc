"""``decode``: records with the values of their payloads, and what becomes of those without."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
import zlib
from base64 import b64decode
from copy import copy
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

import boto3
import fastavro
import msgpack
import pandas as pd
import pytest
from botocore.stub import Stubber
from google.protobuf.wrappers_pb2 import StringValue
from moto import mock_aws

from kinesis_publishers import (
    DeadLetter,
    Record,
    RecordBatch,
    RetryOnError,
    ScanResult,
    formats,
    read,
    records,
    scan,
)
from kinesis_publishers.errors import SchemaError
from tests.integration.processing.processing_support import STREAM, Orders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}
_ORDER = {"id": 7, "item": "a lamp"}


def avro_of(value: dict[str, Any]) -> bytes:
    written = BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(_SCHEMA), value)
    return written.getvalue()


def put(orders: Orders, *payloads: bytes) -> None:
    orders.server.put_many(STREAM, [("one shard", data) for data in payloads])


def values(orders: Orders, count: int, **how: Any) -> list[Any]:
    with records(orders.properties(), **how) as stream:
        return [record.value for _, record in zip(range(count), stream, strict=False)]


@pytest.mark.parametrize(
    ("decode", "payload", "value"),
    [
        ("json", b'{"id": 7, "item": "a lamp"}', _ORDER),
        ("text", "für".encode(), "für"),
        ("msgpack", msgpack.packb(_ORDER), _ORDER),
        (formats.avro(_SCHEMA), avro_of(_ORDER), _ORDER),
        (formats.avro(json.dumps(_SCHEMA)), avro_of(_ORDER), _ORDER),
        (
            formats.protobuf(StringValue),
            StringValue(value="a lamp").SerializeToString(),
            StringValue(value="a lamp"),
        ),
        (formats.gzip("json"), zlib.compress(b'{"id": 7, "item": "a lamp"}', wbits=31), _ORDER),
        (
            "cloudwatch-logs",
            zlib.compress(b'{"messageType": "CONTROL_MESSAGE", "logEvents": []}', wbits=31),
            {"messageType": "CONTROL_MESSAGE", "logEvents": []},
        ),
        (
            "cloudevents",
            b'{"specversion": "1.0", "type": "a", "source": "/s", "id": "7", "data": [1]}',
            formats.CloudEvent({"type": "a", "source": "/s", "id": "7"}, [1]),
        ),
        (len, b"12345", 5),
    ],
    ids=[
        *("json", "text", "msgpack", "avro", "avro as text", "protobuf"),
        *("gzip", "cloudwatch-logs", "cloudevents", "a function"),
    ],
)
def test_a_record_has_the_value_of_its_payload(
    orders: Orders, decode: Any, payload: bytes, value: object
) -> None:
    put(orders, payload)
    with records(orders.properties(), decode=decode) as stream:
        record = next(stream)
    assert record.value == value
    assert (record.data, record.partition_key) == (payload, "one shard")
    assert isinstance(record, Record)


def test_a_record_with_a_value_is_a_record_in_every_other_way(orders: Orders) -> None:
    put(orders, b'{"id": 7}', b'{"id": 8}')
    with records(orders.properties(), decode="json") as stream:
        record, other = islice(stream, 2)
    masked = record._replace(partition_key="***")
    assert (masked.value, masked.partition_key, masked.id) == ({"id": 7}, "***", record.id)
    for copied in (copy(record), pickle.loads(pickle.dumps(record)), type(record)._make(record)):
        assert (copied, type(copied), copied.value) == (record, type(record), {"id": 7})
    assert {record, masked, other} == {other, masked, record}
    assert repr(record).endswith("marker=None, value={'id': 7})")
    frame = pd.DataFrame([record, other])
    assert frame["value"].to_list() == [{"id": 7}, {"id": 8}]
    assert frame["sequence_number"].to_list() == [record.sequence_number, other.sequence_number]


@pytest.fixture
def glue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        yield boto3.client("glue", region_name="us-east-1")


def registered(glue: Any, form: str, definition: str) -> bytes:
    """Register a schema and return the id of its version, as it stands in a header."""
    made = glue.create_schema(
        SchemaName=f"orders-{form}",
        DataFormat=form,
        Compatibility="NONE",
        SchemaDefinition=definition,
    )
    return UUID(made["SchemaVersionId"]).bytes


def test_glues_header_names_the_schema(orders: Orders, glue: Any) -> None:
    avro = registered(glue, "AVRO", json.dumps(_SCHEMA))
    as_json = registered(
        glue, "JSON", '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'
    )
    protobuf = registered(
        glue, "PROTOBUF", 'syntax = "proto3"; message StringValue { string value = 1; }'
    )
    put(
        orders,
        b"\x03\x00" + avro + avro_of(_ORDER),
        b"\x03\x05" + avro + zlib.compress(avro_of(_ORDER)),
        b"\x03\x00" + as_json + json.dumps(_ORDER).encode(),
        b"\x03\x00" + protobuf + b"\x00" + StringValue(value="a lamp").SerializeToString(),
    )
    decode = formats.glue(glue, {"PROTOBUF": formats.protobuf(StringValue)})
    assert values(orders, 4, decode=decode) == [_ORDER] * 3 + [StringValue(value="a lamp")]


def test_a_schema_that_is_not_there_is_the_records_fault(orders: Orders, glue: Any) -> None:
    as_json = registered(glue, "JSON", '{"$schema": "http://json-schema.org/draft-07/schema#"}')
    put(orders, b"\x03\x00" + bytes(16) + b"data", b"\x03\x00" + as_json + b"18446744073709551616")
    letters: list[tuple[int, str]] = []
    aside = DeadLetter(lambda record, error: letters.append((len(record), str(error))))
    assert values(orders, 1, decode=formats.glue(glue), on_error=aside) == [2**64]
    ((_, why),) = letters
    assert why.startswith("the registry has no schema 00000000-0000-0000-0000-000000000000 (")


def test_a_registry_that_cannot_be_asked_puts_nothing_aside(orders: Orders, glue: Any) -> None:
    put(orders, b"\x03\x00" + bytes(16) + b"data")
    letters: list[object] = []
    aside = DeadLetter(lambda record, error: letters.append(record))
    decode = formats.glue(glue)
    with Stubber(glue) as stubber:
        stubber.add_client_error("get_schema_version", "AccessDeniedException")
        with pytest.raises(SchemaError, match="glue:GetSchemaVersion"):
            values(orders, 1, decode=decode, on_error=aside)
        stubber.add_client_error("get_schema_version", "ThrottlingException")
        with pytest.raises(SchemaError):
            scan(orders.properties(), print, decode=decode, on_error=aside)
    assert letters == []
    assert values(orders, 1, decode=len) == [22]


def test_without_a_policy_the_loop_ends_before_the_record(orders: Orders) -> None:
    put(orders, b"1", b"two", b"3")
    with pytest.raises(json.JSONDecodeError) as raised:
        values(orders, 3, decode="json")
    assert "It was raised by decode for record" in raised.value.__notes__[0]
    assert values(orders, 2, decode="text") == ["two", "3"]


def test_a_dead_letter_takes_what_cannot_be_decoded_and_the_loop_goes_on(orders: Orders) -> None:
    put(orders, b"one", b"1", b"two", b"three", b"2", b"four")
    letters: list[tuple[bytes, str]] = []
    aside = DeadLetter(lambda record, error: letters.append((record.data, type(error).__name__)))
    assert values(orders, 2, decode="json", on_error=aside) == [1, 2]
    assert letters == [(data, "JSONDecodeError") for data in (b"one", b"two", b"three")]
    # What was put aside has been processed; the last one was not asked for.
    assert values(orders, 1, decode="text") == ["four"]


def test_a_dead_letter_that_fails_ends_the_loop_before_the_record(orders: Orders) -> None:
    def fail(record: object, error: Exception) -> None:
        raise OSError("the queue is down")

    put(orders, b"1", b"two")
    with pytest.raises(OSError, match="the queue is down"):
        values(orders, 2, decode="json", on_error=DeadLetter(fail))
    assert values(orders, 1, decode="text") == ["two"]


async def test_leaving_while_a_record_is_put_aside_does_not_count_it(orders: Orders) -> None:
    may_fail = threading.Event()

    def fail(record: object, error: Exception) -> None:
        may_fail.wait(30)
        raise OSError("the queue is down")

    put(orders, b"one", b"2")
    async with read(orders.properties(), decode="json", on_error=DeadLetter(fail)) as stream:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 1)
        may_fail.set()
    async with read(orders.properties(), decode="text") as stream:
        assert (await anext(stream)).value == "one"


def test_nothing_is_handed_out_after_a_shard_was_taken_away_from_a_dead_letter(
    orders: Orders,
) -> None:
    def lose(record: Record | RecordBatch, error: Exception) -> None:
        handed = stream._reading._stream._handed  # noqa: SLF001 - as another worker's takeover does
        assert handed is not None
        handed.work.limit = 0
        threading.Timer(0.5, stream.stop).start()

    put(orders, b"one", b"2")
    with records(orders.properties(), decode="json", on_error=DeadLetter(lose)) as stream:
        assert list(stream) == []


def test_scan_gives_values_and_the_policy_what_has_none(orders: Orders, tmp_path: Path) -> None:
    put(orders, b"one", b"2")
    file = tmp_path / "letters.jsonl"
    seen: list[int] = []

    def process(record: Any) -> ScanResult:
        seen.append(record.value)
        return ScanResult.STOP

    scan(orders.properties(), process, decode="json", on_error=DeadLetter.to_file(file))
    (letter,) = map(json.loads, file.read_text().splitlines())
    assert seen == [2]
    assert b64decode(letter.pop("data")) == b"one"
    assert letter.pop("error").startswith("JSONDecodeError(")
    assert (letter["stream_name"], letter["partition_key"]) == (STREAM, "one shard")
    assert len(letter["sequence_number"]) == 56


async def async_decode(data: bytes) -> bytes:
    return data


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        (
            {"decode": "yaml"},
            ValueError,
            "expected one of 'json', 'text', .* a Format, or a function",
        ),
        ({"decode": 5}, TypeError, "must be a plain function, a Format or a name"),
        ({"decode": async_decode}, TypeError, "plain function.* not <function async_decode"),
        ({"on_error": DeadLetter(print)}, ValueError, "on_error is for decode"),
        ({"on_error": RetryOnError()}, TypeError, "has nothing to repeat"),
        ({"on_error": print}, TypeError, "on_error"),
    ],
    ids=["name", "type", "async", "no decode", "retries", "no policy"],
)
def test_what_makes_no_sense_is_refused(
    orders: Orders, how: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        records(orders.properties(), **how)


def test_without_decode_a_record_says_how_to_have_a_value(orders: Orders) -> None:
    put(orders, b"1")
    with pytest.raises(AttributeError, match="decode="):
        values(orders, 1)


def test_scan_decodes_single_records_only(orders: Orders) -> None:
    with pytest.raises(ValueError, match="decode the batch in process"):
        scan(orders.properties(), print, decode="json", per_batch=True)
