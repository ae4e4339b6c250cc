"""Memory stays bounded while the application blocks for minutes, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fanout_reader import EFO, PROTOCOLS, STREAM

from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis

SHARDS = 16
MEBIBYTE = 1024 * 1024
RECORDS_PER_SHARD = 160
RECORD_BYTES = 64 * 1024
BLOCKED_SECONDS = 120
POOL_BYTES = 16 * MEBIBYTE
# 160 MiB wait in the stream. The pool is paid for, and per shard a buffer and what Python and the
# TLS library keep of it.
MOST_GROWTH = POOL_BYTES + SHARDS * 2 * MEBIBYTE


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["HTTP/1.1", "HTTP/2"], ids=["HTTP 1.1", "HTTP 2"])
def test_the_application_blocks_for_two_minutes_with_sixteen_shards_at_full_rate(name: str):
    tls, options = PROTOCOLS[name]
    total = SHARDS * RECORDS_PER_SHARD
    with LocalKinesis.in_thread(Limits.aws(), tls=tls) as server:
        server.create_stream(STREAM, SHARDS)
        server.put_many(
            STREAM, ((f"key-{n}", n.to_bytes(8, "big") * (RECORD_BYTES // 8)) for n in range(total))
        )
        properties = {
            **server.properties(STREAM),
            **EFO,
            **options,
            "kinesis.pending.maxbytes": str(POOL_BYTES),
        }
        with subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("blocked_reader.py")), str(total)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as reader:
            assert reader.stdin is not None
            assert reader.stdout is not None
            reader.stdin.write(json.dumps(properties) + "\n")
            reader.stdin.flush()
            sizes = [int(reader.stdout.readline()) for _ in range(BLOCKED_SECONDS)]
            # Nobody holds on to a subscription that is not read.
            assert server.open_subscriptions(STREAM) == 0
            reader.stdin.write("go on\n")
            reader.stdin.flush()
            output, _ = reader.communicate(timeout=200)
    assert output.splitlines()[-1] == "repeated 0"
    assert reader.returncode == 0
    assert max(sizes) - sizes[0] < MOST_GROWTH, sizes
    # What is held is held from the beginning: it does not creep up.
    assert max(sizes) - max(sizes[: BLOCKED_SECONDS // 2]) < 4 * MEBIBYTE, sizes
