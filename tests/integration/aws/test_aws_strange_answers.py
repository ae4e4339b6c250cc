"""What answers in the place of AWS, with JSON that is not AWS's, is asked again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest
import pytest_asyncio
from aiohttp import web
from attrs import define, evolve

from kinesis_publishers import ShardKey
from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.aws.carriers import aiohttp_carrier
from kinesis_publishers.aws.control_plane import Boto3ControlPlane
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.checkpoints.dynamodb import DynamoDbCheckpointStore
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.config import DynamoDbCheckpointConfig
from kinesis_publishers.errors import MalformedResponseError, RetriesExhaustedError
from kinesis_publishers.model import CheckpointVersion
from kinesis_publishers.retry import RetryPolicy
from tests.integration.aws.aws_harness import ARN, CONSUMER_ARN, SHARD, TRIM_HORIZON, answering

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONCE = RetryPolicy(max_retries=0, base_seconds=0, max_seconds=0, exponent=1)
CONSUMER = {
    "ConsumerName": "reader",
    "ConsumerARN": CONSUMER_ARN,
    "ConsumerStatus": "ACTIVE",
    "ConsumerCreationTimestamp": 1.5,
}
SUMMARY = {
    "StreamName": "orders",
    "StreamARN": ARN,
    "StreamStatus": "ACTIVE",
    "StreamCreationTimestamp": 1.5,
    "RetentionPeriodHours": 24,
}
LISTED = {
    "ShardId": SHARD.shard_id,
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
    "SequenceNumberRange": {"StartingSequenceNumber": "1"},
}
TABLE = {"KeySchema": [{"AttributeName": "shard", "KeyType": "HASH"}], "TableStatus": "ACTIVE"}
# Of every operation: what is JSON for any request.
FOREIGN: tuple[Any, ...] = (None, [], ["a"], "text", 5, True)


@define
class ForeignService:
    """Answers every call with the same body.

    Attributes:
        body: the body.
        status: the HTTP status.
    """

    body: bytes = b""
    status: int = 200
    is_endless: bool = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        if self.is_endless:
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b" " * 65536)
        return web.Response(
            body=self.body, status=self.status, content_type="application/x-amz-json-1.1"
        )


@define
class Clients:
    """Everything that calls AWS to read."""

    service: ForeignService
    control: Boto3ControlPlane
    data: AioDataPlane
    store: DynamoDbCheckpointStore
    creating: DynamoDbCheckpointStore

    async def subscribe(self) -> None:
        async with self.data.subscribe_to_shard(SHARD, CONSUMER_ARN, TRIM_HORIZON):
            pass

    async def remove(self) -> None:
        await self.store.remove({ShardKey(ARN, "s"): CheckpointVersion(number=1, writer="w")})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def clients() -> AsyncIterator[Clients]:
    service = ForeignService()
    async with answering(service.answer) as aws:
        context = CheckpointStoreContext(application="a", retry=ONCE, clock=SystemClock())
        config = DynamoDbCheckpointConfig(
            table="tab", endpoint_url=aws.endpoint_url, create_table=False
        )
        creating = DynamoDbCheckpointStore(context, aws, evolve(config, create_table=True))
        async with (
            Boto3ControlPlane(aws) as control,
            AioDataPlane(aws) as data,
            DynamoDbCheckpointStore(context, aws, config) as store,
        ):
            yield Clients(service, control, data, store, creating)
        await creating.close()


CALLS: dict[str, Any] = {
    "DescribeStreamSummary": lambda c: c.control.describe_stream("orders"),
    "ListShards": lambda c: c.control.list_shards(ARN),
    "DescribeStreamConsumer": lambda c: c.control.describe_stream_consumer(ARN, "reader"),
    "ListStreamConsumers": lambda c: c.control.list_stream_consumers(ARN),
    "RegisterStreamConsumer": lambda c: c.control.register_stream_consumer(ARN, "reader"),
    "DeregisterStreamConsumer": lambda c: c.control.deregister_stream_consumer(CONSUMER_ARN),
    "GetShardIterator": lambda c: c.data.get_shard_iterator(SHARD, TRIM_HORIZON),
    "GetRecords": lambda c: c.data.get_records(SHARD, "iterator", 10),
    "SubscribeToShard": lambda c: c.subscribe(),
    "DescribeTable": lambda c: c.creating.open(),
    "Query": lambda c: c.store.load(),
    "DeleteItem": lambda c: c.remove(),
}
# Of single operations: members that are missing or of another type.
WRONG: dict[str, tuple[Any, ...]] = {
    "DescribeStreamSummary": (
        {},
        {"StreamDescriptionSummary": None},
        {"StreamDescriptionSummary": []},
        *(
            {"StreamDescriptionSummary": SUMMARY | {name: value}}
            for name, value in (
                ("StreamName", 5),
                ("StreamARN", ""),
                ("StreamStatus", None),
                ("StreamCreationTimestamp", "never"),
                ("RetentionPeriodHours", {}),
            )
        ),
    ),
    "ListShards": (
        {},
        {"Shards": None},
        {"Shards": 5},
        {"Shards": [None]},
        {"Shards": [{}]},
        {"Shards": {"ShardId": "x"}},
        {"Shards": [LISTED | {"ShardId": 5}]},
        {"Shards": [LISTED | {"ParentShardId": 5}]},
        {"Shards": [LISTED | {"HashKeyRange": []}]},
        {"Shards": [LISTED | {"SequenceNumberRange": "x"}]},
    ),
    "DescribeStreamConsumer": (
        {},
        {"ConsumerDescription": []},
        {"ConsumerDescription": CONSUMER | {"ConsumerARN": 5}},
        {"ConsumerDescription": CONSUMER | {"ConsumerCreationTimestamp": {}}},
    ),
    "ListStreamConsumers": (
        {},
        {"Consumers": [5]},
        {"Consumers": [CONSUMER | {"ConsumerName": 1}]},
    ),
    "RegisterStreamConsumer": (
        {},
        {"Consumer": "x"},
        {"Consumer": CONSUMER | {"ConsumerStatus": 0}},
    ),
    "GetShardIterator": ({}, {"ShardIterator": None}, {"ShardIterator": 5}, {"ShardIterator": ""}),
    "GetRecords": ({}, {"Records": 5}, {"Records": [None]}),
    "DescribeTable": (
        {},
        {"Table": []},
        {"Table": {"TableStatus": "ACTIVE"}},
        {"Table": TABLE | {"KeySchema": 5}},
        {"Table": TABLE | {"KeySchema": [5]}},
        {"Table": TABLE | {"TableStatus": 5}},
    ),
    "Query": ({}, {"Items": None}, {"Items": 5}, {"Items": [5]}),
}


@pytest.mark.parametrize("operation", CALLS)
async def test_what_is_not_of_aws_is_malformed_and_asked_for_again(
    clients: Clients, operation: str
) -> None:
    strange = [orjson.dumps(body) for body in FOREIGN]
    wrong = [orjson.dumps(body) for body in WRONG.get(operation, ())]
    if wrong:
        # The end is missing, although the length is right.
        wrong.append(b'{"ShardIterator":"AAAA')
    bodies = [(200, body) for body in (*strange, *wrong)]
    if operation in ("DeregisterStreamConsumer", "SubscribeToShard"):
        # The one says nothing, and the other frames.
        bodies = []
    for status, body in (*bodies, *((400, body) for body in strange)):
        clients.service.status, clients.service.body = status, body
        with pytest.raises((MalformedResponseError, RetriesExhaustedError)) as raised:
            await CALLS[operation](clients)
        error: Any = raised.value
        if isinstance(error, RetriesExhaustedError):
            error = error.__cause__
        assert isinstance(error, MalformedResponseError), (status, body)
        assert error.operation == operation


async def test_an_answer_without_end_does_not_fill_the_memory(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiohttp_carrier, "_MAX_ANSWER_BYTES", 1_000_000)
    monkeypatch.setattr(clients.service, "is_endless", True)
    with pytest.raises(MalformedResponseError, match="it has more than 1,000,000 bytes"):
        await clients.data.get_records(SHARD, "iterator", 10)
