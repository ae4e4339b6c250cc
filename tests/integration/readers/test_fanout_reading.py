"""The whole way of a record by enhanced fan-out, over each protocol, against a local server."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.errors import AccessDeniedError
from kinesis_publishers.testing.local_kinesis import Fault, Limits, LocalKinesis
from tests.integration.readers.fanout_reader import (
    PROTOCOLS,
    STREAM,
    FanOutReader,
    numbered,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _pytest.mark import ParameterSet

FAULTS = [
    Fault(
        "SubscribeToShard",
        "error",
        code="ResourceInUseException",
        times=2,
        shard_id="shardId-000000000000",
    ),
    Fault("SubscribeToShard", "reset_mid_event", shard_id="shardId-000000000001"),
    Fault("SubscribeToShard", "truncated_frame", shard_id="shardId-000000000002"),
    Fault("SubscribeToShard", "bad_crc", shard_id="shardId-000000000003"),
    Fault(
        "SubscribeToShard",
        "exception",
        code="InternalFailureException",
        after_events=1,
        shard_id="shardId-000000000004",
    ),
    Fault("SubscribeToShard", "reset", after_events=1, shard_id="shardId-000000000005"),
    Fault("SubscribeToShard", "trickle", delay_seconds=0.02, shard_id="shardId-000000000006"),
    Fault("SubscribeToShard", "end", after_events=1, shard_id="shardId-000000000007"),
]


def _protocols() -> Iterator[ParameterSet]:
    for name in PROTOCOLS:
        # Each carrier has tests of its own; these are about the whole way.
        marks = () if name in ("HTTP/1.1", "HTTP/2") else pytest.mark.soak
        yield pytest.param(name, marks=marks, id=name.replace("/", " "))


@pytest.fixture(params=_protocols())
def protocol(request: pytest.FixtureRequest) -> tuple[bool, dict[str, str]]:
    return PROTOCOLS[request.param]


@pytest.fixture
def server(protocol: tuple[bool, dict[str, str]]) -> Iterator[LocalKinesis]:
    with LocalKinesis.in_thread(Limits.aws(), tls=protocol[0]) as server:
        yield server


@pytest.fixture
def options(protocol: tuple[bool, dict[str, str]]) -> dict[str, str]:
    return protocol[1]


async def test_what_is_there_and_what_comes_is_pushed_and_never_polled(
    server: LocalKinesis, options: dict[str, str]
):
    server.create_stream(STREAM, 4)
    server.put_many(STREAM, numbered(0, 500))
    reader = FanOutReader(server, options)
    async with reader.reading() as task:
        await until(lambda: reader.count == 500, task)
        server.put_many(STREAM, numbered(500, 700))
        await until(lambda: reader.count == 700, task)
        assert server.open_subscriptions(STREAM) == 4
    reader.assert_complete(700)
    assert server.calls("GetRecords") == []
    assert len(server.calls("SubscribeToShard")) == 4
    # Leaving closed the subscriptions and removed the consumer that was registered for them.
    await until(lambda: server.open_subscriptions(STREAM) == 0)
    assert server.consumers(STREAM) == {}


async def test_a_connection_is_given_back_while_the_application_works_on_one_delivery(
    server: LocalKinesis, options: dict[str, str]
):
    server.limits = Limits(event_max_records=10)
    server.create_stream(STREAM, 2)
    server.put_many(STREAM, numbered(0, 500, size=5000))
    reader = FanOutReader(server, {**options, "kinesis.pending.waittimeoutmillis": "200"})
    reader.block()
    async with reader.reading() as task:
        await until(lambda: len(server.calls("SubscribeToShard")) == 2, task)
        await until(lambda: server.open_subscriptions(STREAM) == 0, task)
        assert reader.count == 0
        reader.unblock()
        await until(lambda: reader.count >= 20, task)


async def test_shards_whose_end_contradicts_itself_are_read_to_the_end_all_the_same(
    server: LocalKinesis, options: dict[str, str], caplog: pytest.LogCaptureFixture
):
    server.limits = Limits(event_max_records=10)
    server.create_stream(STREAM, 2)
    server.put_many(STREAM, numbered(0, 100))
    server.reshard(STREAM, 4)
    server.put_many(STREAM, numbered(100, 200))
    server.add_fault(Fault("SubscribeToShard", "continues_with_children", times=None))
    reader = FanOutReader(server, options)
    await reader.read(200)
    reader.assert_complete(200)
    warned = [one for one in caplog.messages if "shows the shard as closed" in one]
    assert {one.split(":")[0] for one in warned} == {
        f"{STREAM}/shardId-00000000000{number}" for number in range(2)
    }


async def test_every_fault_is_healed_and_each_record_comes_once(
    server: LocalKinesis, options: dict[str, str]
):
    server.limits = Limits(event_max_records=10)
    server.create_stream(STREAM, 8)
    server.put_many(STREAM, numbered(0, 2000))
    for fault in FAULTS:
        server.add_fault(fault)
    reader = FanOutReader(server, options)
    await reader.read(2000)
    reader.assert_complete(2000)
    hit = {call.shard_id for call in server.calls("SubscribeToShard") if call.code}
    assert "shardId-000000000000" in hit
    assert len(server.calls("SubscribeToShard")) >= 8 + 7


async def test_a_checkpoint_goes_from_polling_to_fan_out_and_back(
    server: LocalKinesis, options: dict[str, str]
):
    server.create_stream(STREAM, 3)
    reader = FanOutReader(server, options)
    polling = FanOutReader(server, {"kinesis.stream.recordpublisher": "POLLING"})
    polling.by_key = reader.by_key
    for turn, current in enumerate([polling, reader, polling, reader]):
        stop = 200 * (turn + 1)
        server.put_many(STREAM, numbered(200 * turn, stop))
        last = reader if current is polling else polling
        current.count = last.count
        await current.read(stop, last.progress)
        # The five seconds in which a shard cannot be subscribed to again are not what is tested.
        server.limits = Limits(resubscribe_seconds=None)
    reader.assert_complete(800)


async def test_a_consumer_that_was_removed_is_registered_again(
    server: LocalKinesis, options: dict[str, str]
):
    server.create_stream(STREAM, 2)
    reader = FanOutReader(server, options)
    async with reader.reading() as task:
        server.put_many(STREAM, numbered(0, 100))
        await until(lambda: reader.count == 100, task)
        server.deregister_consumer(STREAM, "reports")
        server.put_many(STREAM, numbered(100, 200))
        await until(lambda: reader.count == 200, task)
        assert server.consumers(STREAM) == {"reports": "ACTIVE"}
    reader.assert_complete(200)
    assert len([c for c in server.calls("RegisterStreamConsumer") if not c.code]) == 2


@pytest.mark.parametrize("operation", ["SubscribeToShard", "RegisterStreamConsumer"])
async def test_a_missing_permission_is_named(
    server: LocalKinesis, options: dict[str, str], operation: str
):
    server.create_stream(STREAM, 2)
    server.add_fault(Fault(operation, "error", code="AccessDeniedException", times=None))
    reader = FanOutReader(server, options)
    with pytest.raises(AccessDeniedError, match=f"kinesis:{operation}"):
        await reader.read(1)


_FEW_DESCRIPTORS = """
import os, resource
from kinesis_publishers import records
from kinesis_publishers.testing.local_kinesis import LocalKinesis

with LocalKinesis.in_thread() as server:
    server.create_stream("orders", 3)
    server.put_many("orders", [("key", b"read")])
    for more in (1000, 0):
        soft = os.open(os.devnull, os.O_RDONLY) + 60
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft + more))
        how = {"publisher": "EFO", "consumer_name": "c", "start": "TRIM_HORIZON"}
        print(next(iter(records(server.properties("orders"), **how))).data, flush=True)
"""


def test_more_shards_than_descriptors_raise_the_limit_or_are_an_error() -> None:
    program = [sys.executable, "-c", _FEW_DESCRIPTORS]
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ended.stdout == "b'read'\n"
    assert re.search("ConfigError: .* has 3 open shards, .* raise ulimit -n", ended.stderr)
