"""CBOR where the service understands it, JSON where it does not: found out by asking."""

from __future__ import annotations

import logging
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import boto3
import cbor2
import orjson
import pytest
from aiohttp import web

from kinesis_publishers import Properties, Shard, StartingPosition
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.clock import ServiceClock
from kinesis_publishers.config import AwsConfig, Encoding
from kinesis_publishers.errors import (
    InternalServiceError,
    InvalidArgumentError,
    IteratorExpiredError,
    MalformedResponseError,
    ServiceError,
    StreamNotFoundError,
)
from kinesis_publishers.model.native import native
from kinesis_publishers.testing.local_kinesis import Behaviour, Fault, Limits, LocalKinesis
from kinesis_publishers.testing.local_kinesis.answers import Answer
from kinesis_publishers.testing.local_kinesis.dispatch import CBOR, cbor_of_json, json_of_cbor
from kinesis_publishers.testing.local_kinesis.service import KinesisService
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.integration.aws.aws_harness import ARN, SHARD, TRIM_HORIZON, answering

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

JSON = "application/x-amz-json-1.1"


def refusing(status: int, body: bytes, content_type: str = JSON) -> web.Response:
    return web.Response(status=status, body=body, content_type=content_type)


def error(code: str) -> dict[str, str]:
    return {"__type": code, "message": "No."}


class Emulator:
    """Answers a call in JSON, and one in CBOR as a test wants it."""

    def __init__(self) -> None:
        self.config: AwsConfig
        #: Each operation, and its encoding.
        self.calls: list[tuple[str, str]] = []
        #: What CBOR is answered; None for the answer, in CBOR.
        self.refusal: tuple[int, bytes, str] | None = None
        self.service = KinesisService(Limits.off(), ManualClock(), Behaviour())
        self.service.state.create("orders", "PROVISIONED", 1)

    async def put(self, data: bytes) -> None:
        """Put a record."""
        record = {"StreamName": "orders", "PartitionKey": "k", "Data": b64encode(data).decode()}
        await self.service.handle("Kinesis_20131202.PutRecord", orjson.dumps(record))

    async def answer(self, request: web.Request) -> web.Response:
        target, body = request.headers["X-Amz-Target"], await request.read()
        is_cbor = request.content_type == CBOR
        self.calls.append((target.partition(".")[2], "cbor" if is_cbor else "json"))
        if is_cbor and self.refusal is not None:
            return refusing(*self.refusal)
        answer = await self.service.handle(target, json_of_cbor(body) if is_cbor else body)
        assert isinstance(answer, Answer)
        if is_cbor:
            return refusing(answer.status, cbor_of_json(answer.body), CBOR)
        return refusing(answer.status, answer.body)


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    emulator = Emulator()
    async with answering(emulator.answer) as emulator.config:
        yield emulator


async def read(plane: AioDataPlane) -> None:
    iterator = await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
    page = await plane.get_records(SHARD, iterator, 10)
    assert page.next_shard_iterator


@pytest.mark.parametrize("encoding", Encoding)
async def test_records_are_the_same_in_every_encoding(
    local_kinesis: LocalKinesis, encoding: Encoding
) -> None:
    local_kinesis.create_stream("orders", 1)
    local_kinesis.put_many("orders", [("a", b""), ("ключ", b"\x00\xff"), ("c", b"x" * 100_000)])
    (stored,) = local_kinesis.records("orders").values()
    aws = AwsConfig.from_properties(Properties.parse(local_kinesis.properties("orders")))
    async with AioDataPlane(aws, encoding=encoding) as plane:
        iterator = await plane.get_shard_iterator(
            SHARD, StartingPosition.at_timestamp(stored[0].arrival_time)
        )
        page = await plane.get_records(SHARD, iterator, 10)
    assert list(page.payloads) == [record.data for record in stored]
    assert list(page.partition_keys) == [record.partition_key for record in stored]
    assert list(page.arrival_epoch_seconds) == [
        record.arrival_time.timestamp() for record in stored
    ]


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [(Encoding.AUTO, "cbor"), (Encoding.CBOR, "cbor"), (Encoding.JSON, "json")],
)
async def test_a_service_that_understands_both_is_asked_once(
    emulator: Emulator, encoding: Encoding, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kinesis_publishers")
    async with AioDataPlane(emulator.config, encoding=encoding) as plane:
        await read(plane)
    assert emulator.calls == [("GetShardIterator", expected), ("GetRecords", expected)]
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        # Native code takes them in CBOR.
        (Encoding.AUTO, ["cbor"] * 4 if native() else ["cbor", "json", "json", "cbor"]),
        (Encoding.CBOR, ["cbor"] * 4),
        (Encoding.JSON, ["json"] * 4),
    ],
)
async def test_small_records_are_asked_for_in_json_if_the_encoding_is_free(
    emulator: Emulator, encoding: Encoding, expected: list[str]
) -> None:
    sizes = (1, 1, 5000, 5000)
    async with AioDataPlane(emulator.config, encoding=encoding) as plane:
        iterator = await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
        for size in sizes:
            await emulator.put(b"x" * size)
            page = await plane.get_records(SHARD, iterator, 10)
            assert [len(payload) for payload in page.payloads] == [size]
            iterator = page.next_shard_iterator or ""
    assert [encoding for name, encoding in emulator.calls if name == "GetRecords"] == expected


@pytest.mark.parametrize(
    "refusal",
    [
        (400, orjson.dumps(error("SerializationException")), JSON),
        (400, cbor2.dumps(error("SerializationException")), CBOR),
        (404, cbor2.dumps(error("UnknownOperationException")), CBOR),
        (404, b"", "application/octet-stream"),
        (415, b"Unsupported", "text/plain"),
        (500, b"<!doctype html>", "text/html"),
        (400, b"null", JSON),
    ],
    ids=lambda value: f"{value[0]} {value[2]} {value[1][:20]!r}",
)
async def test_a_service_that_refuses_cbor_costs_one_call_and_a_line(
    emulator: Emulator, refusal: tuple[int, bytes, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kinesis_publishers")
    emulator.refusal = refusal
    async with AioDataPlane(emulator.config) as plane:
        for _ in range(2):
            await read(plane)
    assert emulator.calls == [
        ("GetShardIterator", "cbor"),
        *([("GetShardIterator", "json"), ("GetRecords", "json")] * 2),
    ]
    assert [record.message for record in caplog.records if record.name.startswith("kin")] == [
        "The service does not support CBOR. Calls use JSON from now on."
    ]


async def test_a_service_that_answers_cbor_in_json_is_believed(emulator: Emulator) -> None:
    emulator.refusal = (200, orjson.dumps({"ShardIterator": "given"}), "application/json")
    async with AioDataPlane(emulator.config) as plane:
        assert await plane.get_shard_iterator(SHARD, TRIM_HORIZON) == "given"
        emulator.refusal = None
        await read(plane)
    assert [encoding for _, encoding in emulator.calls] == ["cbor", "json", "json"]


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_an_error_of_a_gateway_decides_nothing(emulator: Emulator, status: int) -> None:
    emulator.refusal = (status, b"<html>busy</html>", "text/html")
    async with AioDataPlane(emulator.config) as plane:
        with pytest.raises(InternalServiceError):
            await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
        emulator.refusal = None
        await read(plane)
    assert {encoding for _, encoding in emulator.calls} == {"cbor"}


async def test_a_call_that_fails_in_both_encodings_decides_nothing(emulator: Emulator) -> None:
    other = Shard(stream_arn=ARN + "-other", shard_id=SHARD.shard_id)
    emulator.refusal = (400, b"", "text/plain")
    async with AioDataPlane(emulator.config) as plane:
        with pytest.raises(StreamNotFoundError):
            await plane.get_shard_iterator(other, TRIM_HORIZON)
        emulator.refusal = None
        await read(plane)
    assert [encoding for _, encoding in emulator.calls] == ["cbor", "json", "cbor", "cbor"]


async def test_what_is_asked_for_is_kept_whatever_the_service_says(emulator: Emulator) -> None:
    emulator.refusal = (400, cbor2.dumps(error("SerializationException")), CBOR)
    async with AioDataPlane(emulator.config, encoding=Encoding.CBOR) as plane:
        with pytest.raises(InvalidArgumentError, match="SerializationException: No"):
            await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
    assert emulator.calls == [("GetShardIterator", "cbor")]


async def test_what_was_understood_once_is_not_doubted_later(emulator: Emulator) -> None:
    async with AioDataPlane(emulator.config) as plane:
        await read(plane)
        emulator.refusal = (400, b"<html>", "text/html")
        with pytest.raises(MalformedResponseError):
            await plane.get_records(SHARD, "iterator", 10)
    assert [encoding for _, encoding in emulator.calls] == ["cbor", "cbor", "cbor"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ExpiredIteratorException", IteratorExpiredError),
        ("com.amazonaws.kinesis.v20131202#ResourceNotFoundException", StreamNotFoundError),
        ("SomethingNewException", ServiceError),
    ],
)
async def test_a_refusal_in_cbor_is_the_error_of_the_same_in_json(
    emulator: Emulator, code: str, kind: type[ServiceError]
) -> None:
    emulator.refusal = (400, cbor2.dumps({"__type": code, "Message": "No."}), CBOR)
    async with AioDataPlane(emulator.config) as plane:
        with pytest.raises(kind, match=r"GetRecords of orders/shardId-0+: .*No") as raised:
            await plane.get_records(SHARD, "iterator", 10)
    assert raised.value.code == code.rpartition("#")[2]


async def test_an_answer_in_cbor_that_is_cut_off_is_malformed(emulator: Emulator) -> None:
    async with AioDataPlane(emulator.config) as plane:
        await read(plane)
        emulator.refusal = (200, cbor2.dumps({"ShardIterator": "AAAA"})[:-1], CBOR)
        with pytest.raises(MalformedResponseError, match="cut off"):
            await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
        with pytest.raises(MalformedResponseError, match="Nothing of it was used"):
            await plane.get_records(SHARD, "iterator", 10)


async def test_moto_is_read_in_json(moto_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kinesis_publishers")
    keys: dict[str, Any] = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    client = boto3.client("kinesis", "us-east-1", endpoint_url=moto_url, **keys)
    client.create_stream(StreamName="orders", ShardCount=1)
    client.put_record(StreamName="orders", Data=b"\x00paid", PartitionKey="k")
    (listed,) = client.list_shards(StreamName="orders")["Shards"]
    arn = client.describe_stream(StreamName="orders")["StreamDescription"]["StreamARN"]
    shard = Shard(stream_arn=arn, shard_id=listed["ShardId"])
    properties = LocalKinesis().properties("orders") | {"aws.endpoint": moto_url}
    aws = AwsConfig.from_properties(Properties.parse(properties))
    async with AioDataPlane(aws) as plane:
        iterator = await plane.get_shard_iterator(shard, TRIM_HORIZON)
        page = await plane.get_records(shard, iterator, 10)
    assert page.payloads == [b"\x00paid"]
    assert sum("Calls use JSON" in message for message in caplog.messages) == 1


async def test_the_clock_learns_from_answers_in_cbor(local_kinesis: LocalKinesis) -> None:
    local_kinesis.create_stream("orders", 1)
    aws = AwsConfig.from_properties(Properties.parse(local_kinesis.properties("orders")))
    clock = ServiceClock(ManualClock())  # years behind the server, which has the machine's
    async with AioDataPlane(aws, clock=clock) as plane:
        assert not clock.skew
        await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
    assert clock.skew


async def test_a_fault_on_the_first_call_is_not_taken_for_a_refusal_of_cbor(
    local_kinesis: LocalKinesis,
) -> None:
    local_kinesis.create_stream("orders", 1)
    aws = AwsConfig.from_properties(Properties.parse(local_kinesis.properties("orders")))
    async with AioDataPlane(aws) as plane:
        for kind in ("throttle", "internal_failure"):
            local_kinesis.add_fault(Fault("GetShardIterator", kind))
            with pytest.raises(ServiceError):
                await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
        await read(plane)
    assert len(local_kinesis.calls("GetShardIterator")) == 3
