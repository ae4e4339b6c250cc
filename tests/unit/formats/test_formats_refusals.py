"""What formats refuse instead of losing a part of it, and what payloads may not do."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from backports.zstd import compress
from google.protobuf.struct_pb2 import Struct, Value

from kinesis_publishers.formats import (
    CloudEvent,
    avro,
    decoder_of,
    encoder_of,
    gzip,
    protobuf,
    zstd,
)

_MEGABYTE = 1024 * 1024
_PAIR = {
    "type": "record",
    "name": "Pair",
    "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 7}],
}


def encoded(name: str, value: object) -> bytes:
    encode = encoder_of(name)
    assert encode is not None
    return encode(value)


def decoded(name: str, payload: bytes) -> Any:
    decode = decoder_of(name)
    assert decode is not None
    return decode(payload)


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": {1}}, "\ud800"], ids=repr)
def test_json_refuses_what_json_does_not_have(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        encoded("json", value)


def test_avro_refuses_a_field_that_the_schema_lacks_and_takes_a_default() -> None:
    form = avro(_PAIR)
    assert form.decode(form.encode({"a": 1})) == {"a": 1, "b": 7}
    with pytest.raises(ValueError, match="c"):
        form.encode({"a": 1, "b": 2, "c": 3})
    with pytest.raises(ValueError, match="a"):
        form.encode({"b": 2})


def test_protobuf_refuses_a_message_of_another_class() -> None:
    with pytest.raises(TypeError, match="must be a Struct"):
        protobuf(Struct).encode(Value(string_value="a"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("form", "packed"),
    [
        (gzip(max_bytes=_MEGABYTE), lambda data: zlib.compress(data, wbits=31)),
        (zstd(max_bytes=_MEGABYTE), compress),
    ],
    ids=["gzip", "zstd"],
)
def test_an_unpacked_payload_has_a_bound_and_an_end(form: Any, packed: Any) -> None:
    whole = packed(bytes(_MEGABYTE))
    assert form.decode(whole) == bytes(_MEGABYTE)
    for payload, message in (
        (packed(bytes(_MEGABYTE + 1)), r"more than 1,048,576 bytes unpacked: a larger max_bytes"),
        (packed(bytes(2**28)), "more than 1,048,576 bytes"),
        (whole[:-1], "is cut"),
        (whole + b"more", "4 bytes follow"),
        (b"no such thing", "cannot be unpacked"),
        (b"", "is cut"),
    ):
        with pytest.raises(ValueError, match=message):
            form.decode(payload)


def test_equal_values_have_equal_payloads() -> None:
    """A repeated task of Spark writes the same records."""
    assert encoded("gzip", b"data")[4:8] == bytes(4)


def test_messages_of_cloudwatch_logs_say_whether_they_are_data() -> None:
    for kind in ("DATA_MESSAGE", "CONTROL_MESSAGE"):
        message = {
            "messageType": kind,
            "owner": "111111111111",
            "logGroup": "CloudTrail/logs",
            "logStream": "111111111111_CloudTrail/logs_us-east-1",
            "subscriptionFilters": ["Destination"],
            "logEvents": [{"id": "3195", "timestamp": 1432826855000, "message": "one"}],
        }
        payload = zlib.compress(json.dumps(message).encode(), wbits=31)
        assert decoded("cloudwatch-logs", payload) == message
        assert decoded("cloudwatch-logs", encoded("cloudwatch-logs", message)) == message


EVENT = {"specversion": "1.0", "type": "order", "source": "/shop", "id": "7"}


def event_of(**fields: object) -> CloudEvent:
    event: CloudEvent = decoded("cloudevents", json.dumps({**EVENT, **fields}).encode())
    return event


def test_an_event_is_read_as_the_specification_says() -> None:
    event = event_of(time="2018-04-05T17:31:00.123456789Z", subject=None, ext=5, data_base64="/w==")
    assert event.data == b"\xff"
    assert event.attributes == {
        "type": "order",
        "source": "/shop",
        "id": "7",
        "time": "2018-04-05T17:31:00.123456789Z",
        "ext": 5,
    }
    xml = event_of(datacontenttype="application/xml", data="<much wow='xml'/>")
    assert (xml.data, "time" in xml.attributes) == ("<much wow='xml'/>", False)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"specversion": "0.3"}, "no JSON of a CloudEvent 1.0"),
        ({"id": ""}, "attribute id"),
        ({"source": None}, "attribute source"),
        ({"type": 5}, "attribute type"),
        ({"Upper": "a"}, "'Upper' is no name"),
        ({"list": []}, "attribute list must be"),
        ({"data_base64": "="}, "base64|padding"),
        ({"data_base64": 5}, "base64|padding|characters"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_event_is_an_error_of_the_record(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        event_of(**fields)


@pytest.mark.parametrize("payload", [b"[]", b"7", b"{}", b"no JSON"])
def test_what_is_no_object_is_no_event(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"no JSON|invalid literal"):
        decoded("cloudevents", payload)


def test_only_an_event_is_encoded_as_one() -> None:
    with pytest.raises(TypeError, match="must be a CloudEvent, not dict"):
        encoded("cloudevents", EVENT)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("yaml", ValueError, "encode='yaml': expected one of 'json', .* or a function"),
        (5, TypeError, "encode must be a plain function, a Format or a name, not 5"),
    ],
)
def test_what_stands_for_no_encoder_is_refused(
    given: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        encoder_of(given)
