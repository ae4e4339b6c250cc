"""The DynamoDB store over moto, with a server between them that fails calls."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from attrs import evolve

from kinesis_publishers import Event, ShardKey
from kinesis_publishers.checkpoints.dynamodb import DynamoDbCheckpointStore
from kinesis_publishers.checkpoints.dynamodb_table import MAX_IN_FLIGHT
from kinesis_publishers.config import DynamoDbCheckpointConfig
from kinesis_publishers.errors import (
    AccessDeniedError,
    CheckpointError,
    RetriesExhaustedError,
    ServiceError,
)
from kinesis_publishers.events import CallRetried
from kinesis_publishers.testing.contracts.checkpoint_store import store_context
from tests.unit.checkpoints.checkpoint_support import KEY, WRITE
from tests.unit.checkpoints.kcl_support import AWS

if TYPE_CHECKING:
    from tests.unit.checkpoints.dynamodb_proxy import DynamoDbProxy
    from tests.unit.checkpoints.kcl_support import KclTable

THROTTLE = "ProvisionedThroughputExceededException"
DENIED = "AccessDeniedException"


@pytest.fixture
def config(proxy: DynamoDbProxy) -> DynamoDbCheckpointConfig:
    return DynamoDbCheckpointConfig(
        table=f"table-{uuid4()}", endpoint_url=proxy.url, create_table=True
    )


def store_of(config: DynamoDbCheckpointConfig) -> DynamoDbCheckpointStore:
    return DynamoDbCheckpointStore(store_context("billing"), AWS, config)


async def test_a_table_is_created_once_however_many_need_it(
    proxy: DynamoDbProxy, config: DynamoDbCheckpointConfig
) -> None:
    stores = [store_of(config) for _ in range(3)]
    async with AsyncExitStack() as opened:
        await asyncio.gather(*map(opened.enter_async_context, stores))
        assert set(await stores[0].save([WRITE])) == {KEY}
        assert set(await stores[1].load()) == {KEY}


async def test_a_table_is_not_created_if_that_is_not_wanted(
    proxy: DynamoDbProxy, config: DynamoDbCheckpointConfig
) -> None:
    async with store_of(evolve(config, create_table=False)) as store:
        with pytest.raises(CheckpointError, match=r"eu-west-1: check both names.*The first reader"):
            await store.load()
        with pytest.raises(CheckpointError, match=r"eu-west-1: check both names.*The first reader"):
            await store.save([WRITE])
    assert set(proxy.calls) == {"Query", "PutItem"}


async def test_a_table_of_something_else_is_refused(table: KclTable) -> None:
    with pytest.raises(CheckpointError, match="its keys are leaseKey, not application and shard"):
        await store_of(table.config).__aenter__()


@pytest.mark.parametrize(
    "fault",
    [
        *(THROTTLE, "ThrottlingException", "RequestLimitExceeded", "InternalServerError"),
        *("TransactionConflictException", "ReplicatedWriteConflictException", "cut"),
    ],
)
async def test_what_may_be_repeated_is_repeated(
    proxy: DynamoDbProxy, config: DynamoDbCheckpointConfig, fault: str
) -> None:
    operations = ("DescribeTable", "CreateTable", "Query", "PutItem", "DeleteItem")
    proxy.faults = {operation: [fault] * 2 for operation in operations}
    async with store_of(config) as store:
        assert await store.load() == {}
        versions = await store.save([WRITE])
        again = await store.save([evolve(WRITE, expected=versions[KEY])])
        assert (await store.load())[KEY].version == again[KEY]
        await store.remove(again)
        assert await store.load() == {}
    assert not any(proxy.faults.values())


async def test_a_throttle_without_end_names_the_table(
    proxy: DynamoDbProxy, config: DynamoDbCheckpointConfig
) -> None:
    context = store_context("billing")
    events: list[Event] = []
    retry = evolve(context.retry, max_retries=1)
    context = evolve(context, retry=retry, events=events.append)
    async with DynamoDbCheckpointStore(context, AWS, config) as store:
        events.clear()
        proxy.faults = {"PutItem": [THROTTLE] * 2}
        with pytest.raises(RetriesExhaustedError, match=rf"{config.table}.*capacity of the table"):
            await store.save([WRITE])
    retried = [one for one in events if isinstance(one, CallRetried)]
    assert [(one.operation, one.code) for one in retried] == [("PutItem", THROTTLE)]


@pytest.mark.parametrize("operation", ["DescribeTable", "CreateTable", "Query", "PutItem"])
async def test_a_permission_that_is_missing_is_named(
    proxy: DynamoDbProxy, config: DynamoDbCheckpointConfig, operation: str
) -> None:
    proxy.faults = {operation: [DENIED]}

    async def use() -> None:
        async with store_of(config) as store:
            await store.load()
            await store.save([WRITE])

    with pytest.raises(AccessDeniedError, match=f"allow dynamodb:{operation} in the IAM policy"):
        await use()


async def test_a_refusal_without_a_code_is_an_error_of_the_service(
    proxy: DynamoDbProxy, config: DynamoDbCheckpointConfig
) -> None:
    async with store_of(config) as store:
        proxy.faults = {"Query": [""]}
        with pytest.raises(ServiceError, match="as the test says"):
            await store.load()


async def test_a_large_batch_is_written_with_a_bounded_number_of_calls_at_once(
    proxy: DynamoDbProxy, config: DynamoDbCheckpointConfig
) -> None:
    writes = [
        evolve(WRITE, checkpoint=evolve(WRITE.checkpoint, shard=ShardKey(KEY.stream_arn, f"s-{n}")))
        for n in range(60)
    ]
    async with store_of(config) as store:
        assert len(await store.save(writes)) == 60
    assert 2 <= proxy.most_at_once <= MAX_IN_FLIGHT


async def test_all_pages_are_loaded(proxy: DynamoDbProxy, config: DynamoDbCheckpointConfig) -> None:
    # A page has 1 MB, which no test need write.
    proxy.page_items = 1
    keys = [ShardKey(KEY.stream_arn, f"shardId-{n}") for n in range(3)]
    async with store_of(config) as store:
        await store.save(
            [evolve(WRITE, checkpoint=evolve(WRITE.checkpoint, shard=key)) for key in keys]
        )
        assert set(await store.load()) == set(keys)
    assert proxy.calls.count("Query") >= 3


async def test_an_endpoint_that_never_answers_is_given_up_soon(
    config: DynamoDbCheckpointConfig,
) -> None:
    context = store_context("billing")
    retry = evolve(context.retry, outage_seconds=300.0, start_seconds=0.05)
    unreachable = evolve(config, endpoint_url="http://127.0.0.1:9")
    store = DynamoDbCheckpointStore(evolve(context, retry=retry), AWS, unreachable)
    with pytest.raises(RetriesExhaustedError, match=r"nothing listens.*127\.0\.0\.1:9"):
        await store.__aenter__()
