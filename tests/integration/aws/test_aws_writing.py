"""PutRecords over HTTP: what is written, in which encoding, and what is made of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from kinesis_publishers import Properties
from kinesis_publishers.abc import PutAnswer, PutColumns
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.config import AwsConfig, Encoding
from kinesis_publishers.errors import (
    InvalidArgumentError,
    MalformedResponseError,
    StreamNotFoundError,
    ThroughputExceededError,
)
from kinesis_publishers.model.native import native
from kinesis_publishers.testing.local_kinesis import Fault
from tests.integration.aws.test_aws_encoding import ARN, JSON, Emulator
from tests.integration.aws.test_aws_encoding import emulator as emulator

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis


def columns(*payloads: bytes, hash_keys: list[str | None] | None = None) -> PutColumns:
    return PutColumns(
        payloads=payloads,
        partition_keys=[f"ключ-{number}" for number in range(len(payloads))],
        explicit_hash_keys=hash_keys,
    )


async def put(server: LocalKinesis, records: PutColumns, encoding: Encoding) -> PutAnswer:
    aws = AwsConfig.from_properties(Properties.parse(server.properties("orders")))
    async with AioDataPlane(aws, encoding=encoding) as plane:
        return await plane.put_records(ARN, records)


@pytest.mark.parametrize("encoding", Encoding)
async def test_records_arrive_as_they_are_in_every_encoding(
    local_kinesis: LocalKinesis, encoding: Encoding
) -> None:
    local_kinesis.create_stream("orders", 2)
    payloads = [b"", b"\x00\xff", b"x" * 100_000]
    hash_keys = [None, "0", str(2**128 - 1)]
    records = columns(*payloads, hash_keys=hash_keys)
    answer = await put(local_kinesis, records, encoding)
    stored = {
        (shard_id, one.sequence_number): (one.partition_key, one.data)
        for shard_id, shard in local_kinesis.records("orders").items()
        for one in shard
    }
    places = zip(answer.shard_ids, answer.sequence_numbers, strict=True)
    assert [stored[place] for place in places] == list(  # type: ignore[index]
        zip(records.partition_keys, payloads, strict=True)
    )
    assert list(answer.shard_ids)[1:] == ["shardId-000000000000", "shardId-000000000001"]
    assert answer.errors == {}


@pytest.mark.parametrize("encoding", Encoding)
async def test_an_answer_says_of_each_record_what_became_of_it(
    local_kinesis: LocalKinesis, encoding: Encoding
) -> None:
    local_kinesis.create_stream("orders", 2)
    local_kinesis.add_fault(Fault("PutRecords", "throttle", shard_id="shardId-000000000001"))
    top = str(2**128 - 1)
    records = columns(b"1", b"2" * 1000, b"3", hash_keys=["0", top, "0"])
    answer = await put(local_kinesis, records, encoding)
    assert answer.shard_ids == ["shardId-000000000000", None, "shardId-000000000000"]
    assert [one is None for one in answer.sequence_numbers] == [False, True, False]
    assert list(answer.errors) == [1]
    assert isinstance(answer.errors[1], ThroughputExceededError)
    assert "PutRecords of orders" in str(answer.errors[1])


async def test_small_records_are_written_in_json_and_large_ones_in_cbor(
    emulator: Emulator,
) -> None:
    async with AioDataPlane(emulator.config) as plane:
        for size in (10, 1_000, 10, 1_000):
            await plane.put_records(ARN, columns(b"x" * size))
    expected = ["cbor"] * 4 if native() else ["json", "cbor", "json", "cbor"]
    assert [encoding for _, encoding in emulator.calls] == expected


async def test_what_small_records_are_written_in_decides_nothing(emulator: Emulator) -> None:
    async with AioDataPlane(emulator.config) as plane:
        with pytest.raises(StreamNotFoundError):
            await plane.put_records(f"{ARN}-other", columns(b"x"))
        await plane.put_records(ARN, columns(b"x"))
        await plane.put_records(ARN, columns(b"x" * 1_000))
    # The refusal was made once.
    small = "cbor" if native() else "json"
    assert [encoding for _, encoding in emulator.calls] == [small, small, "cbor"]


async def test_a_service_that_refuses_cbor_is_written_to_in_json(emulator: Emulator) -> None:
    emulator.refusal = (400, orjson.dumps({"__type": "SerializationException"}), JSON)
    async with AioDataPlane(emulator.config) as plane:
        for _ in range(2):
            await plane.put_records(ARN, columns(b"x" * 1_000))
    assert [encoding for _, encoding in emulator.calls] == ["cbor", "json", "json"]


async def test_a_refused_call_is_an_error(local_kinesis: LocalKinesis) -> None:
    local_kinesis.create_stream("orders", 1)
    with pytest.raises(InvalidArgumentError, match="PutRecords of orders"):
        await put(local_kinesis, columns(bytes(2 * 1024 * 1024)), Encoding.AUTO)


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        '{"Records": []}',
        '{"Records": [{"ShardId": "s"}]}',
        '{"Records": [{"ShardId": "s", "SequenceNumber": "1"}, {}]}',
        '{"FailedRecordCount": 1, "Records": [{}]}',
        '{"FailedRecordCount": 1, "Records": null}',
        "[1",
    ],
)
async def test_an_answer_to_another_call_is_malformed(
    local_kinesis: LocalKinesis, body: str
) -> None:
    local_kinesis.create_stream("orders", 1)
    local_kinesis.add_fault(Fault("PutRecords", "body", message=body))
    with pytest.raises(MalformedResponseError):
        await put(local_kinesis, columns(b"x"), Encoding.AUTO)
