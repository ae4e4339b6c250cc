"""Values with the header of Glue's Schema Registry: registered, written and read."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any
from uuid import UUID

import boto3
import pytest
from botocore.stub import ANY, Stubber
from google.protobuf.struct_pb2 import ListValue, Struct
from google.protobuf.wrappers_pb2 import StringValue
from hypothesis import given
from moto import mock_aws

from kinesis_publishers.errors import SchemaError
from kinesis_publishers.formats import GlueSchema, glue, glue_schema, protobuf
from tests.unit.formats.test_formats_round_trips import JSONS

if TYPE_CHECKING:
    from collections.abc import Iterator

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
    }
)
JSON_SCHEMA = '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'
PROTO = 'syntax = "proto3"; message StringValue { string value = 1; }'
ORDER = {"id": 7, "item": "a lamp"}
_ID = UUID(int=7)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        yield boto3.client("glue", region_name="us-east-1")


@pytest.mark.parametrize("compresses", [False, True])
@pytest.mark.parametrize(
    ("data_format", "definition", "formats", "value"),
    [
        ("AVRO", AVRO, None, ORDER),
        ("JSON", JSON_SCHEMA, None, ORDER),
        ("PROTOBUF", PROTO, {"PROTOBUF": protobuf(StringValue)}, StringValue(value="a lamp")),
    ],
    ids=["AVRO", "JSON", "PROTOBUF"],
)
def test_a_value_has_the_header_of_its_schema(
    client: Any,
    data_format: str,
    definition: str,
    formats: Any,
    value: object,
    compresses: bool,
) -> None:
    schema = glue_schema(client, "orders", definition, data_format=data_format)
    form = glue(client, formats, schema=schema, compresses=compresses)
    payload = form.encode(value)
    assert payload[:18] == bytes([3, 5 if compresses else 0]) + schema.version_id.bytes
    assert form.decode(payload) == value
    known = client.get_schema_version(SchemaVersionId=str(schema.version_id))
    assert (known["DataFormat"], known["SchemaDefinition"]) == (data_format, definition)


@pytest.mark.parametrize("compresses", [False, True])
def test_any_value_comes_back(client: Any, compresses: bool) -> None:
    schema = glue_schema(client, "anything", JSON_SCHEMA, data_format="JSON")
    form = glue(client, schema=schema, compresses=compresses)

    @given(JSONS)
    def check(value: object) -> None:
        assert repr(form.decode(form.encode(value))) == repr(value)

    check()


def test_a_schema_is_registered_once_and_a_new_version_is_added(client: Any) -> None:
    client.create_registry(RegistryName="shop")
    first = glue_schema(client, "orders", AVRO, registry="shop")
    assert glue_schema(client, "orders", AVRO, registry="shop") == first
    wider = json.loads(AVRO)
    wider["fields"].append({"name": "note", "type": "string", "default": ""})
    second = glue_schema(client, "orders", json.dumps(wider), registry="shop")
    where = {"SchemaName": "orders", "RegistryName": "shop"}
    for number, schema in enumerate([first, second], start=1):
        version = client.get_schema_version(
            SchemaId=where, SchemaVersionNumber={"VersionNumber": number}
        )
        assert version["SchemaVersionId"] == str(schema.version_id)
    assert client.get_schema(SchemaId=where)["LatestSchemaVersion"] == 2


def test_what_cannot_be_registered_is_an_error_before_anything_is_put(client: Any) -> None:
    with pytest.raises(SchemaError, match="schema orders is not in the registry none"):
        glue_schema(client, "orders", AVRO, registry="none")
    glue_schema(client, "orders", AVRO)
    with pytest.raises(SchemaError, match=r"AVAILABLE, AVRO: it must be AVAILABLE .*JSON"):
        glue_schema(client, "orders", AVRO, data_format="JSON")


def test_the_check_of_a_new_version_is_waited_for_and_its_failure_reported() -> None:
    client = boto3.client(
        "glue", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    found = {"SchemaVersionId": str(_ID), "DataFormat": "AVRO"}
    for status in ("AVAILABLE", "FAILURE"):
        with Stubber(client) as stubber:
            stubber.add_client_error("get_schema_by_definition", "EntityNotFoundException")
            stubber.add_response("register_schema_version", {"SchemaVersionId": str(_ID)})
            for one in ("PENDING", status):
                stubber.add_response("get_schema_by_definition", found | {"Status": one})
            if status == "AVAILABLE":
                assert glue_schema(client, "orders", AVRO) == GlueSchema(_ID, "AVRO", AVRO)
            else:
                with pytest.raises(SchemaError, match="is FAILURE"):
                    glue_schema(client, "orders", AVRO)


def test_two_producers_may_create_a_schema_at_once() -> None:
    client = boto3.client(
        "glue", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    found = {"SchemaVersionId": str(_ID), "DataFormat": "AVRO", "Status": "AVAILABLE"}
    with Stubber(client) as stubber:
        for operation in ("get_schema_by_definition", "register_schema_version"):
            stubber.add_client_error(operation, "EntityNotFoundException")
        new = {"SchemaDefinition": AVRO, "Compatibility": "BACKWARD", "DataFormat": "AVRO"}
        new |= {"SchemaName": "orders", "RegistryId": ANY}
        stubber.add_client_error("create_schema", "AlreadyExistsException", expected_params=new)
        stubber.add_response("register_schema_version", {"SchemaVersionId": str(_ID)})
        stubber.add_response("get_schema_by_definition", found)
        assert glue_schema(client, "orders", AVRO).version_id == _ID


@pytest.mark.parametrize(
    ("message", "index"), [(StringValue, 6), (ListValue, 0), (Struct.FieldsEntry, 2)]
)
def test_a_protobuf_message_follows_its_index_among_the_names_of_its_file(
    message: Any, index: int
) -> None:
    schema = GlueSchema(_ID, "PROTOBUF", PROTO)
    form = glue(None, {"PROTOBUF": protobuf(message)}, schema=schema)
    assert form.encode(message()) == b"\3\0" + _ID.bytes + bytes([index])


def test_the_index_of_a_message_is_a_varint() -> None:
    with mock_aws():
        client = boto3.client("glue", region_name="us-east-1")
        with Stubber(client) as stubber:
            answer = {"DataFormat": "PROTOBUF", "SchemaDefinition": PROTO}
            stubber.add_response("get_schema_version", answer)
            decode = glue(client, {"PROTOBUF": protobuf(StringValue)}).decode
            body = StringValue(value="a").SerializeToString()
            assert decode(b"\3\0" + _ID.bytes + b"\x80\x01" + body) == StringValue(value="a")
            with pytest.raises(ValueError, match="index of a Protobuf message"):
                decode(b"\3\0" + _ID.bytes + b"\x80")


def test_what_cannot_encode_says_what_is_missing(client: Any) -> None:
    with pytest.raises(SchemaError, match=r"schema=glue_schema\(...\)"):
        glue(client).encode(ORDER)
    schema = glue_schema(client, "orders", PROTO, data_format="PROTOBUF")
    with pytest.raises(ValueError, match=r"give glue\(client, \{'PROTOBUF'"):
        glue(client, schema=schema)


def test_a_compressed_payload_is_that_of_zlib(client: Any) -> None:
    schema = glue_schema(client, "orders", JSON_SCHEMA, data_format="JSON")
    payload = glue(client, schema=schema, compresses=True).encode(ORDER)
    assert json.loads(zlib.decompress(payload[18:])) == ORDER
