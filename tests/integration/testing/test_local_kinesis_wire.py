"""What goes over the wire: headers, errors and malformed requests."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson
import pytest

from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Iterator


class Wire:
    """A client that parses nothing but JSON."""

    def __init__(self, server: LocalKinesis) -> None:
        self.server = server
        self._address = urlsplit(server.endpoint_url).netloc

    def send(
        self, body: bytes, headers: dict[str, str], path: str = "/", method: str = "POST"
    ) -> tuple[HTTPResponse, Any]:
        with closing(HTTPConnection(self._address, timeout=10)) as connection:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read()
        return response, orjson.loads(content) if content else None

    def call(self, operation: str, fields: dict[str, Any]) -> tuple[HTTPResponse, Any]:
        return self.send(orjson.dumps(fields), {"X-Amz-Target": f"Kinesis_20131202.{operation}"})

    def admin(self, path: str, value: Any = None) -> tuple[int, Any]:
        method = "GET" if value is None else "POST"
        body = b"" if value is None else orjson.dumps(value)
        response, answer = self.send(body, {}, f"/_admin/{path}", method)
        return response.status, answer


@pytest.fixture
def wire() -> Iterator[Wire]:
    with LocalKinesis.in_thread(Limits.off()) as server:
        server.create_stream("orders", 2)
        yield Wire(server)


def test_an_answer_names_its_request_and_its_type(wire: Wire) -> None:
    responses = [wire.call("ListShards", {"StreamName": "orders"})[0] for _ in range(2)]
    assert [response.status for response in responses] == [200, 200]
    assert {r.getheader("Content-Type") for r in responses} == {"application/x-amz-json-1.1"}
    assert len({response.getheader("x-amzn-RequestId") for response in responses}) == 2


def test_an_operation_without_result_answers_an_empty_body(wire: Wire) -> None:
    response, content = wire.call("DeleteStream", {"StreamName": "orders"})
    assert (response.status, content) == (200, None)


def test_an_error_is_a_400_with_type_and_message(wire: Wire) -> None:
    response, content = wire.call("ListShards", {"StreamName": "nothing"})
    assert response.status == 400
    assert response.getheader("x-amzn-RequestId")
    assert content == {
        "__type": "ResourceNotFoundException",
        "message": "Stream nothing under account 123456789012 not found.",
    }


@pytest.mark.parametrize(
    ("body", "target", "code"),
    [
        (b"{", "ListShards", "SerializationException"),
        (b"[]", "ListShards", "SerializationException"),
        (b'{"StreamName":5}', "ListShards", "SerializationException"),
        (b'{"ShardIterator":5}', "GetRecords", "SerializationException"),
        (b"{}", "GetRecords", "ValidationException"),
        (b"{}", "Dance", "UnknownOperationException"),
        (b"", "", "UnknownOperationException"),
    ],
)
def test_a_malformed_request_is_refused(wire: Wire, body: bytes, target: str, code: str) -> None:
    response, content = wire.send(body, {"X-Amz-Target": f"Kinesis_20131202.{target}"})
    assert (response.status, content["__type"]) == (400, code)


def test_a_call_may_carry_10_mib(wire: Wire) -> None:
    data = "eHh4" * (1024 * 1024 // 4)
    entries = [{"Data": data, "PartitionKey": "k"}] * 13
    response, content = wire.call("PutRecords", {"StreamName": "orders", "Records": entries})
    assert (response.status, content["FailedRecordCount"]) == (200, 0)


def test_faults_can_be_scripted_over_http(wire: Wire) -> None:
    added = wire.admin(
        "faults", [{"operation": "ListShards", "kind": "error", "code": "AccessDeniedException"}]
    )
    assert added == (200, {"added": 1})
    codes = [wire.call("ListShards", {"StreamName": "orders"})[1].get("__type") for _ in range(2)]
    assert codes == ["AccessDeniedException", None]


def test_the_state_shows_streams_calls_and_faults(wire: Wire) -> None:
    wire.server.put_many("orders", [("b", b"x")])
    wire.admin("faults", {"operation": "*", "kind": "delay", "stream": "others"})
    wire.call(
        "GetShardIterator",
        {
            "StreamName": "orders",
            "ShardId": "shardId-000000000001",
            "ShardIteratorType": "LATEST",
        },
    )
    status, state = wire.admin("state")
    assert status == 200
    assert state["streams"]["orders"] == {
        "status": "ACTIVE",
        "shards": {
            "shardId-000000000000": {"open": True, "records": 0},
            "shardId-000000000001": {"open": True, "records": 1},
        },
        "consumers": {},
    }
    assert state["calls"]["counts"] == {"GetShardIterator": 1}
    assert len(state["calls"]["times"]["GetShardIterator"]["orders/shardId-000000000001"]) == 1
    assert state["faults"][0]["stream"] == "others"


def test_records_can_be_trimmed_over_http(wire: Wire) -> None:
    wire.server.put_many("orders", [(str(number), b"x") for number in range(10)])
    assert wire.admin("trim", {"stream": "orders"}) == (200, {"trimmed": 10})


def test_a_reset_forgets_everything_or_all_but_the_streams(wire: Wire) -> None:
    wire.admin("faults", {"operation": "*", "kind": "reset", "times": None})
    wire.admin("reset", {"keep_streams": True})
    assert wire.call("ListShards", {"StreamName": "orders"})[0].status == 200
    wire.admin("reset", {})
    _, state = wire.admin("state")
    assert (state["streams"], state["calls"]["counts"], state["faults"]) == ({}, {}, [])


@pytest.mark.parametrize(
    ("path", "value", "status"),
    [
        ("faults", {"operation": "*", "kind": "unheard_of"}, 400),
        ("faults", {"operation": "*", "kind": "reset", "colour": "red"}, 400),
        ("faults", ["reset"], 400),
        ("trim", {"stream": "nothing"}, 400),
        ("trim", [], 400),
        ("dance", {}, 404),
        ("faults", None, 404),
    ],
)
def test_a_malformed_admin_call_is_refused(wire: Wire, path: str, value: Any, status: int) -> None:
    answered, content = wire.admin(path, value)
    assert (answered, list(content)) == (status, ["error"])
