"""The server as tests and programs use it: in a loop, in a thread, alone."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp
import pytest

from kinesis_publishers.testing.local_kinesis import Fault, Limits, LocalKinesis
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

SERVE = """
from kinesis_publishers.testing.local_kinesis import run_server
run_server("127.0.0.1", 0, on_ready=lambda server: print(server.endpoint_url, flush=True))
print("ended", flush=True)
"""

PLUGIN_TEST = """
def test_fixtures(local_kinesis, manual_clock):
    local_kinesis.create_stream("orders")
    assert local_kinesis.limits.get_records_calls_per_second == 5
    assert local_kinesis.limits.write_records_per_second is None
    assert manual_clock.monotonic() == 0
"""


def connect(server: LocalKinesis) -> socket.socket:
    address = urlsplit(server.endpoint_url)
    return socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=10)


def test_a_client_that_is_throttled_does_not_retry() -> None:
    with LocalKinesis.in_thread() as server, closing(server.client()) as client:
        server.create_stream("orders")
        server.add_fault(Fault("ListShards", "throttle"))
        with pytest.raises(client.exceptions.LimitExceededException):
            client.list_shards(StreamName="orders")
        assert len(server.calls("ListShards")) == 1


def test_properties_lead_to_the_server() -> None:
    with LocalKinesis.in_thread() as server:
        assert server.ca_bundle is None
        assert server.properties("orders") == {
            "aws.region": "us-east-1",
            "aws.endpoint": server.endpoint_url,
            "aws.credentials.provider": "BASIC",
            "aws.credentials.provider.basic.accesskeyid": "local",
            "aws.credentials.provider.basic.secretkey": "local",
            "kinesis.streams": "orders",
        }


async def test_it_serves_in_the_running_loop_and_stops_with_open_connections() -> None:
    async with aiohttp.ClientSession() as session:
        async with LocalKinesis() as server:
            server.create_stream("orders")
            # Connections are accepted in their order: the idle one is when the other is answered.
            idle = connect(server)
            url = f"{server.endpoint_url}/_admin/state"
            async with session.get(url) as response:
                assert "orders" in (await response.json())["streams"]
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(url)
    with idle:
        assert idle.recv(1) == b""


async def test_it_stops_while_an_answer_is_held_back() -> None:
    async with aiohttp.ClientSession() as session:
        clock = ManualClock()
        async with LocalKinesis(clock=clock) as server:
            server.create_stream("orders")
            server.add_fault(Fault("*", "delay", delay_seconds=1e6))
            asked = asyncio.create_task(session.post(server.endpoint_url, data=b"{}"))
            await clock.wait_for_sleepers()
        with pytest.raises(aiohttp.ClientError):
            await asked


def server_threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("local-kinesis")}


def test_a_thread_stops_while_clients_are_connected() -> None:
    before = server_threads()
    with LocalKinesis.in_thread() as server:
        connected = [connect(server) for _ in range(3)]
        connected[0].sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
        assert server_threads() > before
    assert server_threads() == before
    for connection in connected:
        connection.close()


def test_a_thread_stops_while_a_client_does_not_read_its_answer() -> None:
    with LocalKinesis.in_thread() as server, closing(server.client()) as client:
        server.create_stream("orders")
        server.put_many("orders", [("k", b"x" * 1_000_000)] * 10)
        iterator = client.get_shard_iterator(
            StreamName="orders", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        body = b'{"ShardIterator":"%s"}' % iterator.encode()
        silent = connect(server)
        silent.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: Kinesis_20131202.GetRecords\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        assert silent.recv(1)
    silent.close()


def test_a_port_in_use_is_an_error_and_leaves_no_thread() -> None:
    before = server_threads()
    with LocalKinesis.in_thread() as server:
        port = int(server.endpoint_url.rsplit(":", 1)[1])
        with pytest.raises(OSError, match="in use"), LocalKinesis.in_thread(port=port):
            pass
    assert server_threads() == before


def test_an_ipv6_address_stands_in_brackets() -> None:
    server = LocalKinesis(host="::1", port=4567)
    assert server.endpoint_url == "http://[::1]:4567"


def test_helpers_may_be_called_from_any_thread() -> None:
    with LocalKinesis.in_thread(Limits.off()) as server, closing(server.client()) as client:
        server.create_stream("orders", 2)

        def put(worker: int) -> None:
            for number in range(20):
                if worker % 2:
                    server.put_many("orders", [(f"{worker}-{number}", b"x")])
                else:
                    client.put_record(
                        StreamName="orders", PartitionKey=f"{worker}-{number}", Data=b"x"
                    )

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(put, range(4)))
        kept = server.records("orders")
        keys = [record.partition_key for records in kept.values() for record in records]
        assert len(keys) == len(set(keys)) == 80
        assert server.trim("orders") == 80


async def test_only_a_threaded_server_runs_coroutines() -> None:
    async with LocalKinesis() as server:
        with pytest.raises(RuntimeError, match="in_thread"):
            server.run(asyncio.sleep(0))


def test_a_stream_of_either_mode_can_be_resharded_by_any_factor() -> None:
    with LocalKinesis.in_thread() as server, closing(server.client()) as client:
        client.create_stream(StreamName="orders", StreamModeDetails={"StreamMode": "ON_DEMAND"})
        server.reshard("orders", 20)
        shards = client.list_shards(StreamName="orders", ShardFilter={"Type": "AT_LATEST"})
        assert len(shards["Shards"]) == 20


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_a_server_of_its_own_ends_cleanly_when_interrupted(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SERVE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = urlsplit(process.stdout.readline().strip())
        try:
            with socket.create_connection((str(url.hostname), int(url.port or 0)), timeout=10):
                process.send_signal(number)
                output, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (output, errors, process.returncode) == ("ended\n", "", 0)


def test_the_pytest_plugin_offers_a_server_and_a_clock(tmp_path: Path) -> None:
    (tmp_path / "test_plugin.py").write_text(PLUGIN_TEST)
    # In a process of its own, where the plugin is loaded by name however the package is installed.
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-W", "error", "--rootdir", str(tmp_path)),
            *("-p", "kinesis_publishers.testing.pytest_plugin", str(tmp_path)),
        ],
        env=os.environ
        | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
