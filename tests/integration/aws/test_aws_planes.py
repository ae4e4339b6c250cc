"""The data plane and the control plane against a real server."""

from __future__ import annotations

import asyncio
import copy
import platform
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from aiohttp import web
from botocore.loaders import Loader

from kinesis_publishers import Properties, StartingPosition
from kinesis_publishers.aws import clients
from kinesis_publishers.aws.control_plane import Boto3ControlPlane
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.config import AwsConfig
from kinesis_publishers.errors import (
    ClosedError,
    ConnectionFailedError,
    MalformedResponseError,
)
from kinesis_publishers.testing.local_kinesis import Fault, LocalKinesis
from tests.integration.aws.aws_harness import ARN, SHARD, TRIM_HORIZON, answering

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_publishers.testing.manual_clock import ManualClock


@pytest.fixture
def aws(local_kinesis: LocalKinesis) -> AwsConfig:
    local_kinesis.create_stream("orders", 1)
    return AwsConfig.from_properties(Properties.parse(local_kinesis.properties("orders")))


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


async def test_a_botocore_that_does_not_know_the_strategy_of_streams_does_not_hide_it(
    aws: AwsConfig, local_kinesis: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Loader.load_service_model

    def load_older(self: Loader, service: str, kind: str, **more: Any) -> Any:
        model = load(self, service, kind, **more)
        if (service, kind) == ("kinesis", "service-2"):
            # The loader keeps the model for every later client of the process.
            model = copy.deepcopy(model)
            model["shapes"]["StreamDescriptionSummary"]["members"].pop("RecordDistributionStrategy")
        return model

    monkeypatch.setattr(Loader, "load_service_model", load_older)
    local_kinesis.distribute("orders")
    async with Boto3ControlPlane(aws) as control:
        assert (await control.describe_stream("orders")).is_auto_distributed


_ANSWERS = """
import asyncio, resource, sys
from kinesis_publishers import Properties
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.config import AwsConfig
from tests.integration.aws.aws_harness import SHARD, TRIM_HORIZON

def faults_of_an_answer():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    pieces = [bytes(200_000) for _ in range(60)]
    whole = b"".join(pieces)
    del pieces, whole
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

async def main():
    properties = Properties.parse(dict(line.split("=", 1) for line in sys.argv[1:]))
    async with AioDataPlane(AwsConfig.from_properties(properties)) as plane:
        await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
        print(*[faults_of_an_answer() for _ in range(6)])

asyncio.run(main())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is a rule of glibc")
def test_the_memory_of_an_answer_serves_later_ones(local_kinesis: LocalKinesis) -> None:
    local_kinesis.create_stream("orders", 1)
    properties = [f"{key}={value}" for key, value in local_kinesis.properties("orders").items()]
    command = [sys.executable, "-c", _ANSWERS, *properties]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, *_, last = map(int, done.stdout.split())
    # Two copies of 12 MB are 5,900 pages.
    assert first > 3000 > 300 > last


async def test_a_closed_plane_says_so(aws: AwsConfig) -> None:
    async with AioDataPlane(aws) as plane:
        pass
    with pytest.raises(ClosedError):
        await plane.get_shard_iterator(SHARD, TRIM_HORIZON)
    with pytest.raises(ClosedError):
        async with plane.subscribe_to_shard(SHARD, f"{ARN}/consumer/reader:1", TRIM_HORIZON):
            pytest.fail("it is closed")
    async with Boto3ControlPlane(aws) as control:
        pass
    with pytest.raises(ClosedError):
        await control.describe_stream("orders")


async def test_a_listing_that_is_cut_off_is_not_taken_for_an_empty_one(
    local_kinesis: LocalKinesis, aws: AwsConfig
) -> None:
    async with Boto3ControlPlane(aws) as control:
        local_kinesis.add_fault(Fault("ListShards", "truncate"))
        with pytest.raises((MalformedResponseError, ConnectionFailedError)) as raised:
            await control.list_shards(ARN)
        assert raised.value.retryable
        assert len(await control.list_shards(ARN)) == 1


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
    assert " app/ledger--x--y " in first
    assert first.endswith(" kinesis-publishers")
    assert second == first.replace(" app/ledger--x--y", "")


async def test_no_server_or_proxy_is_asked_to_compress_answers() -> None:
    async def answer(_: web.Request) -> web.Response:
        response = web.json_response({"Records": [], "NextShardIterator": "b"})
        response.enable_compression()
        return response

    async with answering(answer) as config, AioDataPlane(config) as plane:
        page = await plane.get_records(SHARD, "a", 10)
    assert page.next_shard_iterator == "b"


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
