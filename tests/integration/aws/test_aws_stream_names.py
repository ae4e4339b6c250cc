"""Emulators that know streams by name only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest
from aiohttp import web

from kinesis_publishers import Properties
from kinesis_publishers.abc import PutColumns
from kinesis_publishers.aws.control_plane import Boto3ControlPlane
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.config import AwsConfig
from kinesis_publishers.errors import InvalidArgumentError, StreamNotFoundError
from kinesis_publishers.testing.local_kinesis import Behaviour, Fault, Limits, LocalKinesis
from kinesis_publishers.testing.local_kinesis.answers import Answer
from kinesis_publishers.testing.local_kinesis.service import KinesisService
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.integration.aws.aws_harness import ARN, SHARD, TRIM_HORIZON, answering

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NAMED = {"DescribeStreamSummary", "GetShardIterator", "ListShards", "PutRecords"}


class Emulator:
    """Looks at the name of a stream and at nothing else, as kinesalite and Ferrokinesis do."""

    def __init__(self, message: str) -> None:
        self.config: AwsConfig
        #: Each operation, and whether it came by name.
        self.calls: list[tuple[str, bool]] = []
        self._message = message
        self._service = KinesisService(Limits.off(), ManualClock(), Behaviour())
        self._service.state.create("orders", "PROVISIONED", 1)

    async def answer(self, request: web.Request) -> web.Response:
        target, fields = request.headers["X-Amz-Target"], orjson.loads(await request.read())
        operation = target.partition(".")[2]
        is_named = "StreamName" in fields
        self.calls.append((operation, is_named))
        if operation in NAMED and not is_named:
            error = {"__type": "InvalidArgumentException", "message": self._message}
            return web.json_response(error, status=400)
        answer = await self._service.handle(target, orjson.dumps(fields))
        assert isinstance(answer, Answer)
        return web.Response(status=answer.status, body=answer.body)


@pytest.fixture
async def emulator(request: pytest.FixtureRequest) -> AsyncIterator[Emulator]:
    message = getattr(request, "param", "Either NextToken or StreamName should be provided.")
    emulator = Emulator(message)
    async with answering(emulator.answer) as emulator.config:
        yield emulator


async def test_the_control_plane_goes_on_by_name(emulator: Emulator) -> None:
    async with Boto3ControlPlane(emulator.config) as plane:
        for _ in range(2):
            assert [shard.shard_id for shard in await plane.list_shards(ARN)] == [SHARD.shard_id]
        assert (await plane.describe_stream(ARN)).identity.arn == ARN
        assert await plane.list_stream_consumers(ARN) == ()
    # Asked once, remembered, and left alone where the service has no other way.
    assert emulator.calls == [
        ("ListShards", False),
        ("ListShards", True),
        ("ListShards", True),
        ("DescribeStreamSummary", True),
        ("ListStreamConsumers", False),
    ]


async def test_the_data_plane_goes_on_by_name(emulator: Emulator) -> None:
    async with AioDataPlane(emulator.config) as plane:
        for _ in range(2):
            iterator = await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
            assert (await plane.get_records(SHARD, iterator, 10)).payloads == []
    refused, *later = emulator.calls
    assert refused == ("GetShardIterator", False)
    assert later == [("GetShardIterator", True), ("GetRecords", False)] * 2


async def test_records_are_written_by_name(emulator: Emulator) -> None:
    async with AioDataPlane(emulator.config) as plane:
        await plane.put_records(ARN, PutColumns(payloads=[b"a"], partition_keys=["k"]))
    assert emulator.calls == [("PutRecords", False), ("PutRecords", True)]


@pytest.mark.parametrize(
    "emulator",
    ["1 validation error detected: Value null at 'streamName' failed to satisfy constraint"],
    indirect=True,
)
async def test_a_validation_of_the_member_asks_for_a_name_too(emulator: Emulator) -> None:
    async with Boto3ControlPlane(emulator.config) as plane:
        assert len(await plane.list_shards(ARN)) == 1


@pytest.mark.parametrize("emulator", ["The timestamp is in the future."], indirect=True)
async def test_another_refusal_is_no_question_for_the_name(emulator: Emulator) -> None:
    async with Boto3ControlPlane(emulator.config) as plane:
        with pytest.raises(InvalidArgumentError, match="future"):
            await plane.list_shards(ARN)
    assert emulator.calls == [("ListShards", False)]


async def test_a_service_that_refuses_the_name_as_well_is_not_asked_again(
    local_kinesis: LocalKinesis,
) -> None:
    local_kinesis.create_stream("orders")
    local_kinesis.add_fault(
        Fault("*", "error", code="ValidationException", message="No StreamName.", times=None)
    )
    config = AwsConfig.from_properties(Properties.parse(local_kinesis.properties("orders")))
    async with Boto3ControlPlane(config) as plane:
        with pytest.raises(InvalidArgumentError, match="No StreamName"):
            await plane.list_shards(ARN)
    assert len(local_kinesis.calls("ListShards")) == 2


async def test_a_stream_that_is_not_found_asks_for_no_name(emulator: Emulator) -> None:
    async with Boto3ControlPlane(emulator.config) as plane:
        with pytest.raises(StreamNotFoundError, match="a-streamname"):
            await plane.describe_stream("a-streamname")
        await plane.list_shards(ARN)
    # A name would be looked for in another account than that of the ARN.
    assert emulator.calls[1:] == [("ListShards", False), ("ListShards", True)]
