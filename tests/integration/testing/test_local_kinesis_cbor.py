"""CBOR over the wire, as the SDKs for Java speak it unless they are told not to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cbor2
import httpx
import pytest

from kinesis_publishers.testing.local_kinesis import Fault, Limits, LocalKinesis
from kinesis_publishers.testing.local_kinesis.operations import OPERATIONS
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CBOR = "application/x-amz-cbor-1.1"
SHARD = "shardId-000000000000"
STREAM = {"StreamName": "orders"}


class Client:
    """Sends and receives CBOR; what an instant is stays visible as a tag."""

    def __init__(self, server: LocalKinesis, http: httpx.AsyncClient) -> None:
        self.server = server
        self.now_ms = round(server.clock.now().timestamp() * 1000)
        self._http = http

    async def send(self, operation: str, body: bytes) -> httpx.Response:
        return await self._http.post(
            self.server.endpoint_url,
            content=body,
            headers={"X-Amz-Target": f"Kinesis_20131202.{operation}", "Content-Type": CBOR},
        )

    async def call(self, operation: str, **fields: Any) -> Any:
        answer = await self.send(operation, cbor2.dumps(fields, indefinite_containers=True))
        assert answer.headers["Content-Type"] == CBOR
        return loaded(answer.content) if answer.content else None

    async def read(self, kind: str = "TRIM_HORIZON", **fields: Any) -> Any:
        answer = await self.call(
            "GetShardIterator", **STREAM, ShardId=SHARD, ShardIteratorType=kind, **fields
        )
        return await self.call("GetRecords", ShardIterator=answer["ShardIterator"])


def loaded(body: bytes) -> Any:
    return cbor2.loads(body, semantic_decoders={1: lambda value, _: cbor2.CBORTag(1, value)})


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with LocalKinesis(Limits.off(), ManualClock()) as server, httpx.AsyncClient() as http:
        server.create_stream("orders")
        yield Client(server, http)


async def test_blobs_are_byte_strings_and_instants_milliseconds(client: Client) -> None:
    data = bytes(range(256))
    put = await client.call("PutRecord", **STREAM, PartitionKey="k", Data=data)
    assert put["ShardId"] == SHARD
    many = [{"PartitionKey": "k", "Data": b""}, {"PartitionKey": "k", "Data": b"two"}]
    assert (await client.call("PutRecords", **STREAM, Records=many))["FailedRecordCount"] == 0
    answer = await client.read()
    assert [record["Data"] for record in answer["Records"]] == [data, b"", b"two"]
    arrivals = {record["ApproximateArrivalTimestamp"] for record in answer["Records"]}
    assert arrivals == {cbor2.CBORTag(1, client.now_ms)}


async def test_a_timestamp_begins_at_its_very_millisecond(client: Client) -> None:
    clock = client.server.clock
    assert isinstance(clock, ManualClock)
    for data in (b"a", b"b", b"c"):
        client.server.put_many("orders", [("k", data)])
        await clock.advance(0.001)
    answer = await client.read("AT_TIMESTAMP", Timestamp=cbor2.CBORTag(1, client.now_ms + 1))
    assert [record["Data"] for record in answer["Records"]] == [b"b", b"c"]


async def test_streams_and_consumers_are_described(client: Client) -> None:
    arn = client.server.register_consumer("orders", "c")
    created = cbor2.CBORTag(1, client.now_ms)
    stream = await client.call("DescribeStreamSummary", **STREAM)
    consumer = await client.call("DescribeStreamConsumer", ConsumerARN=arn)
    assert stream["StreamDescriptionSummary"]["StreamCreationTimestamp"] == created
    assert consumer["ConsumerDescription"]["ConsumerCreationTimestamp"] == created
    wanted = {"MinimumThroughputBillingCommitment": {"Status": "ENABLED"}}
    (settings,) = (await client.call("UpdateAccountSettings", **wanted)).values()
    assert settings["StartedAt"] == cbor2.CBORTag(1, client.now_ms)


async def test_the_end_of_a_shard_is_null(client: Client) -> None:
    await client.call("SplitShard", **STREAM, ShardToSplit=SHARD, NewStartingHashKey=str(2**127))
    answer = await client.read()
    assert (answer["NextShardIterator"], len(answer["ChildShards"])) == (None, 2)


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
async def test_every_operation_answers_errors_in_kind(client: Client, operation: str) -> None:
    client.server.add_fault(Fault("*", "error", code="ExpiredTokenException", message="late"))
    answer = await client.call(operation, **STREAM)
    assert answer == {"__type": "ExpiredTokenException", "message": "late"}


async def test_an_empty_answer_stays_empty(client: Client) -> None:
    assert await client.call("DeleteStream", **STREAM) is None


@pytest.mark.parametrize(
    "body", [b"\xff", b"{}", cbor2.dumps([1]), cbor2.dumps({"StreamName": cbor2.undefined})]
)
async def test_a_request_that_is_no_object_in_cbor_is_refused(client: Client, body: bytes) -> None:
    answer = await client.send("ListShards", body)
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, CBOR)
    assert loaded(answer.content)["__type"] == "SerializationException"


async def test_a_scripted_body_is_translated_if_it_can_be(client: Client) -> None:
    odd = '{"Data": 5, "Timestamp": "x"}'
    for message, expected in (
        ("null", b"\xf6"),
        ("no json", b"no json"),
        (odd, odd.encode()),
    ):
        client.server.add_fault(Fault("ListShards", "body", message=message))
        assert (await client.send("ListShards", b"")).content == expected


async def test_a_subscription_may_be_asked_for_in_cbor(client: Client) -> None:
    arn = client.server.register_consumer("orders", "c")
    client.server.put_many("orders", [("k", b"a")])
    request = {"ConsumerARN": arn, "ShardId": SHARD, "StartingPosition": {"Type": "LATEST"}}
    async with (
        httpx.AsyncClient() as http,
        http.stream(
            "POST",
            client.server.endpoint_url,
            content=cbor2.dumps(request),
            headers={"X-Amz-Target": "Kinesis_20131202.SubscribeToShard", "Content-Type": CBOR},
        ) as answer,
    ):
        assert answer.headers["Content-Type"] == "application/vnd.amazon.eventstream"
        assert b"initial-response" in await anext(answer.aiter_raw())
