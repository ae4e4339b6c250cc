"""The data plane and the control plane against a real server."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kinesis_publishers import Properties, SequenceNumber, Shard, StartingPosition
from kinesis_publishers.aws import clients
from kinesis_publishers.aws.control_plane import Boto3ControlPlane
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.config import AwsConfig
from kinesis_publishers.errors import (
    AccessDeniedError,
    ClosedError,
    ConnectionFailedError,
    InternalServiceError,
    IteratorExpiredError,
    MalformedResponseError,
    ServiceError,
    StreamNotFoundError,
    ThroughputExceededError,
)
from kinesis_publishers.testing.local_kinesis import Fault, LocalKinesis

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from kinesis_publishers.testing.manual_clock import ManualClock

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SHARD = Shard(stream_arn=ARN, shard_id="shardId-000000000000")
TRIM_HORIZON = StartingPosition.trim_horizon()


@pytest.fixture
def aws(local_kinesis: LocalKinesis) -> AwsConfig:
    local_kinesis.create_stream("orders", 1)
    return AwsConfig.from_properties(Properties.parse(local_kinesis.properties("orders")))


async def test_records_come_as_they_were_put(local_kinesis: LocalKinesis, aws: AwsConfig) -> None:
    local_kinesis.put_many("orders", [("a", b""), ("ключ", b"\x00\xff"), ("c", b"x" * 100_000)])
    (stored,) = local_kinesis.records("orders").values()
    async with AioDataPlane(aws) as plane:
        iterator = await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
        page = await plane.get_records(SHARD, iterator, 10_000)
    assert list(page.payloads) == [record.data for record in stored]
    assert list(page.partition_keys) == ["a", "ключ", "c"]
    assert list(page.sequence_numbers) == [record.sequence_number for record in stored]
    assert page.millis_behind_latest == 0
    assert page.next_shard_iterator


async def test_the_end_of_a_shard_names_its_children(
    local_kinesis: LocalKinesis, aws: AwsConfig
) -> None:
    local_kinesis.put_many("orders", [("a", b"1")])
    local_kinesis.reshard("orders", 2)
    async with AioDataPlane(aws) as plane:
        iterator = await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
        page = await plane.get_records(SHARD, iterator, 10)
    assert page.next_shard_iterator is None
    assert {child.parent_shard_ids for child in page.child_shards} == {(SHARD.shard_id,)}
    assert len(page.child_shards) == 2


@pytest.mark.parametrize(
    ("fault", "expected", "is_retryable"),
    [
        (Fault("GetRecords", "throttle"), ThroughputExceededError, True),
        (Fault("GetRecords", "internal_failure"), InternalServiceError, True),
        (Fault("GetRecords", "reset"), ConnectionFailedError, True),
        (Fault("GetRecords", "truncate"), ConnectionFailedError, True),
        (
            Fault("GetRecords", "error", code="ExpiredIteratorException"),
            IteratorExpiredError,
            False,
        ),
        (Fault("GetRecords", "error", code="AccessDeniedException"), AccessDeniedError, False),
    ],
    ids=lambda value: str(getattr(value, "kind", "")) or None,
)
async def test_every_failure_is_an_error_of_our_tree(
    local_kinesis: LocalKinesis,
    aws: AwsConfig,
    fault: Fault,
    expected: type[ServiceError],
    is_retryable: bool,
) -> None:
    local_kinesis.put_many("orders", [("a", b"1")])
    async with AioDataPlane(aws) as plane:
        iterator = await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
        local_kinesis.add_fault(fault)
        with pytest.raises(expected) as raised:
            await plane.get_records(SHARD, iterator, 10)
        assert raised.value.retryable is is_retryable
        assert "orders/shardId-000000000000" in str(raised.value)
        assert raised.value.__cause__ is not None
        page = await plane.get_records(SHARD, iterator, 10)
    assert list(page.payloads) == [b"1"]


async def test_an_instant_keeps_its_milliseconds_and_no_more(
    local_kinesis_with_clock: tuple[LocalKinesis, ManualClock],
) -> None:
    server, clock = local_kinesis_with_clock
    server.create_stream("orders", 1)
    aws = AwsConfig.from_properties(Properties.parse(server.properties("orders")))
    server.put_many("orders", [("a", b"before")])
    # Not a whole number of milliseconds: the service keeps those of a record, rounded down.
    server.run(clock.advance(0.2005))
    pinned = clock.now()
    server.put_many("orders", [("a", b"at")])
    server.run(clock.advance(1))
    async with AioDataPlane(aws) as plane:
        position = StartingPosition.at_timestamp(pinned)
        iterator = await plane.get_shard_iterator(SHARD, position)
        page = await plane.get_records(SHARD, iterator, 10)
    assert list(page.payloads) == [b"at"]


@pytest.fixture
def local_kinesis_with_clock(
    manual_clock: ManualClock,
) -> Iterator[tuple[LocalKinesis, ManualClock]]:
    with LocalKinesis.in_thread(clock=manual_clock) as server:
        yield server, manual_clock


async def test_positions_mean_what_they_say(local_kinesis: LocalKinesis, aws: AwsConfig) -> None:
    local_kinesis.put_many("orders", [("a", b"%d" % number) for number in range(5)])
    (stored,) = local_kinesis.records("orders").values()
    third = SequenceNumber(stored[2].sequence_number)
    async with AioDataPlane(aws) as plane:
        for position, expected in (
            (StartingPosition.at(third), b"2"),
            (StartingPosition.after(third), b"3"),
            (StartingPosition.at_timestamp(stored[0].arrival_time), b"0"),
        ):
            iterator = await plane.get_shard_iterator(SHARD, position)
            page = await plane.get_records(SHARD, iterator, 1)
            assert list(page.payloads) == [expected], position


async def test_a_closed_plane_says_so(aws: AwsConfig) -> None:
    async with AioDataPlane(aws) as plane:
        pass
    with pytest.raises(ClosedError):
        await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
    async with Boto3ControlPlane(aws) as control:
        pass
    with pytest.raises(ClosedError):
        await control.describe_stream("orders")


async def test_a_stream_is_described_by_name_and_by_arn(aws: AwsConfig) -> None:
    async with Boto3ControlPlane(aws) as control:
        by_name = await control.describe_stream("orders")
        assert await control.describe_stream(ARN) == by_name
    assert by_name.identity.arn == ARN
    assert by_name.retention_seconds == 86_400
    assert by_name.identity.created_at.tzinfo is not None


async def test_a_missing_stream_is_named(aws: AwsConfig) -> None:
    async with Boto3ControlPlane(aws) as control:
        with pytest.raises(StreamNotFoundError, match="no-such-stream"):
            await control.describe_stream("no-such-stream")


async def test_all_pages_of_a_listing_come(local_kinesis: LocalKinesis, aws: AwsConfig) -> None:
    local_kinesis.reshard("orders", 1500)
    async with Boto3ControlPlane(aws) as control:
        shards = await control.list_shards(ARN)
    # A stream is scaled by splitting in two, over and over: the shards in between are listed too.
    assert len(shards) == 2999
    assert len({shard.key for shard in shards}) == 2999
    assert len(local_kinesis.calls("ListShards")) == 3
    children = [shard for shard in shards if shard.parent_keys == (SHARD.key,)]
    assert children
    assert next(shard for shard in shards if shard.key == SHARD.key).is_closed


async def test_a_listing_since_the_retention_is_a_listing_of_everything(
    local_kinesis: LocalKinesis, aws: AwsConfig
) -> None:
    local_kinesis.put_many("orders", [("a", b"1")])
    local_kinesis.reshard("orders", 2)
    now = datetime.now(UTC)
    async with Boto3ControlPlane(aws) as control:
        everything = await control.list_shards(ARN, since=now - timedelta(days=30))
    assert len(everything) == 3


async def test_a_listing_that_is_cut_off_is_not_taken_for_an_empty_one(
    local_kinesis: LocalKinesis, aws: AwsConfig
) -> None:
    async with Boto3ControlPlane(aws) as control:
        local_kinesis.add_fault(Fault("ListShards", "truncate"))
        with pytest.raises((MalformedResponseError, ConnectionFailedError)) as raised:
            await control.list_shards(ARN)
        assert raised.value.retryable
        assert len(await control.list_shards(ARN)) == 1


@asynccontextmanager
async def answering(
    answer: Callable[[web.Request], Awaitable[web.Response]],
) -> AsyncIterator[AwsConfig]:
    """Serve every call with ``answer``."""
    app = web.Application()
    app.router.add_post("/", answer)
    async with TestServer(app) as server:
        options = {
            "kinesis.streams": "orders",
            "aws.region": "us-east-1",
            "aws.endpoint": str(server.make_url("")),
            "aws.credentials.provider": "BASIC",
            "aws.credentials.provider.basic.accesskeyid": "key",
            "aws.credentials.provider.basic.secretkey": "secret",
        }
        yield AwsConfig.from_properties(Properties.parse(options))


@pytest.fixture
async def cut_off() -> AsyncIterator[AwsConfig]:
    """A service whose answers end in the middle although their length is right."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(
            body=b'{"ShardIterator":"AAAA', content_type="application/x-amz-json-1.1"
        )

    async with answering(answer) as config:
        yield config


async def test_the_user_agent_names_the_libraries_and_the_application(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agents: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        agents.append(request.headers["User-Agent"])
        return web.json_response({"Records": [], "NextShardIterator": "b"})

    monkeypatch.setenv("AWS_SDK_UA_APP_ID", "ledger\r\nx: y")
    async with answering(answer) as config:
        for _ in range(2):
            async with AioDataPlane(config) as plane:
                await plane.get_records(SHARD, "a", 10)
            monkeypatch.delenv("AWS_SDK_UA_APP_ID", raising=False)
    first, second = agents
    assert first.startswith("aiobotocore/")
    assert first.count(" botocore/") == 1
    assert " app/ledger--x--y kinesis-publishers" in first
    assert second == first.replace(" app/ledger--x--y", "")


async def test_no_server_or_proxy_is_asked_to_compress_answers() -> None:
    async def answer(_: web.Request) -> web.Response:
        response = web.json_response({"Records": [], "NextShardIterator": "b"})
        response.enable_compression()
        return response

    async with answering(answer) as config, AioDataPlane(config) as plane:
        page = await plane.get_records(SHARD, "a", 10)
    assert page.next_shard_iterator == "b"


async def test_an_answer_without_its_members_is_malformed_and_asked_for_again(
    cut_off: AwsConfig,
) -> None:
    async with AioDataPlane(cut_off) as data, Boto3ControlPlane(cut_off) as control:
        for call in (
            data.get_shard_iterator(SHARD, TRIM_HORIZON),
            control.describe_stream("orders"),
            control.list_shards(ARN),
        ):
            with pytest.raises(MalformedResponseError, match="cut off") as raised:
                await call
            assert raised.value.retryable


def _lookup_fails(*_: object) -> NoReturn:
    raise KeyError("MY_VAULT_TOKEN")


async def test_a_lookup_that_fails_elsewhere_is_not_taken_for_an_answer(
    aws: AwsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesis_publishers.aws.clients.build_session", _lookup_fails)
    async with Boto3ControlPlane(aws) as control:
        with pytest.raises(KeyError, match="MY_VAULT_TOKEN"):
            await control.describe_stream("orders")


async def test_a_client_that_is_closed_while_it_opens_calls_nothing(
    local_kinesis: LocalKinesis, aws: AwsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_opening, may_open = threading.Event(), threading.Event()
    build_session = clients.build_session

    def build_later(*args: Any) -> Any:
        is_opening.set()
        assert may_open.wait(60)
        return build_session(*args)

    monkeypatch.setattr(clients, "build_session", build_later)
    async with Boto3ControlPlane(aws) as control:
        call = asyncio.create_task(control.describe_stream("orders"))
        assert await asyncio.to_thread(is_opening.wait, 60)
    may_open.set()
    with pytest.raises(ClosedError):
        await call
    assert local_kinesis.calls("DescribeStreamSummary") == []
