"""Subscriptions of the tasks in a worker process of Spark, over each protocol."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import Properties
from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis
from kinesis_publishers_spark.workers import WorkerCache, WorkerReader
from tests.integration.readers.fanout_reader import PROTOCOLS, until
from tests.integration.readers.range_reading import STREAM, StoredStream, fan_out_properties

if TYPE_CHECKING:
    from kinesis_publishers import ShardRange

MIB = 1024 * 1024
COUNT = 60


def put(server: LocalKinesis) -> StoredStream:
    records = [(f"key-{n}", str(n).encode().ljust(50_000)) for n in range(COUNT)]
    server.put_many(STREAM, records)
    return StoredStream.of(server)


def pieces(stream: StoredStream, size: int) -> list[list[ShardRange]]:
    """Cut the only shard into ranges of so many records."""
    ((shard_id, held),) = stream.rows().items()
    firsts = range(0, len(held), size)
    return [[stream.range_of(shard_id, one, min(one + size, len(held)) - 1)] for one in firsts]


@pytest.mark.parametrize(
    "protocol",
    [
        "HTTP/1.1",
        "HTTP/2",
        pytest.param("HTTP/1.1 over TLS", marks=pytest.mark.long),
    ],
)
def test_tasks_of_a_process_subscribe_for_each_range_and_leave_nothing_open(
    protocol: str,
):
    has_tls, options = PROTOCOLS[protocol]
    with LocalKinesis.in_thread(Limits.off(), tls=has_tls) as server:
        server.create_stream(STREAM, 1)
        stream = put(server)
        arn = server.register_consumer(STREAM, "reports")
        properties = Properties.parse({**fan_out_properties(server, arn), **options})
        cache = WorkerCache(WorkerReader)
        rows: list[tuple[str, bytes]] = []
        cut = pieces(stream, 17)
        for ranges in cut:
            with cache.lend(properties) as reader:
                for deliveries in reader.read(ranges, 8 * MIB):
                    for one in deliveries:
                        rows += zip(one.batch.sequence_numbers, one.batch.payloads, strict=True)
            asyncio.run(until(lambda: server.open_subscriptions(STREAM) == 0))
        assert [rows] == list(stream.rows().values())
        assert len(server.calls("SubscribeToShard")) == len(cut)
        assert server.calls("GetRecords") == []
        cache.close()


PROGRAM = """
import os, pickle, sys
from kinesis_publishers_spark import workers
properties, first, second = pickle.loads(bytes.fromhex(sys.argv[1]))
def count(ranges):
    with workers.lend_reader(properties) as reader:
        return sum(len(one.batch) for taken in reader.read(ranges) for one in taken)
assert count(first) == 30
child = os.fork()
if child == 0:
    assert count(second) == 30
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert count(second) == 30
assert count(first) == 30
"""


def test_a_process_whose_tasks_have_subscribed_forks_and_ends_as_any_other():
    with LocalKinesis.in_thread(Limits.off()) as server:
        server.create_stream(STREAM, 1)
        stream = put(server)
        arn = server.register_consumer(STREAM, "reports")
        properties = Properties.parse(fan_out_properties(server, arn))
        given = pickle.dumps((properties, *pieces(stream, 30)))
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAM, given.hex()],
            capture_output=True,
            text=True,
            timeout=100,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        asyncio.run(until(lambda: server.open_subscriptions(STREAM) == 0))
