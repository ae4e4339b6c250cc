"""Memory stays bounded while the application blocks for minutes, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import frozen

from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis
from tests.integration.readers.fanout_reader import EFO, PROTOCOLS, STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

MEBIBYTE = 1024 * 1024
# 10 MiB wait in each shard.
RECORDS_PER_SHARD = 160
RECORD_BYTES = 64 * 1024
POOL_BYTES = 16 * MEBIBYTE


@frozen
class BlockedReader:
    """A process that reads from a server of its own, and whose application is blocked."""

    server: LocalKinesis
    process: subprocess.Popen[str]
    sizes: list[int]

    @classmethod
    def start(cls, stack: ExitStack, name: str, shards: int) -> BlockedReader:
        tls, options = PROTOCOLS[name]
        server = stack.enter_context(LocalKinesis.in_thread(Limits.aws(), tls=tls))
        server.create_stream(STREAM, shards)
        payload, records = b"x" * RECORD_BYTES, shards * RECORDS_PER_SHARD
        server.put_many(STREAM, ((f"key-{n}", payload) for n in range(records)))
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("blocked_reader.py")), str(records)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(process.kill)
        reader = cls(server, process, [])
        pool = {"kinesis.pending.maxbytes": str(POOL_BYTES)}
        reader.say(json.dumps({**server.properties(STREAM), **EFO, **options, **pool}))
        return reader

    def say(self, line: str) -> None:
        pipe: IO[str] | None = self.process.stdin
        assert pipe is not None
        pipe.write(line + "\n")
        pipe.flush()

    def watch(self) -> None:
        """Wait for the next second and note the memory."""
        assert self.process.stdout is not None
        self.sizes.append(int(self.process.stdout.readline()))

    def go_on(self) -> str:
        """Let the application continue; return what the process says at its end."""
        self.say("continue")
        output, _ = self.process.communicate(timeout=200)
        return output.splitlines()[-1]


@contextmanager
def blocked(seconds: int, shards: int) -> Iterator[list[BlockedReader]]:
    """Watch readers whose application is blocked; let it continue after the context."""
    # The pool is paid for, and per shard a buffer and what Python and the TLS library keep of it.
    most_growth = POOL_BYTES + shards * 2 * MEBIBYTE
    with ExitStack() as stack:
        readers = [BlockedReader.start(stack, name, shards) for name in ("HTTP/1.1", "HTTP/2")]
        for _ in range(seconds):
            for reader in readers:
                reader.watch()
        yield readers
        for reader in readers:
            assert reader.go_on() == "repeated 0"
            assert reader.process.returncode == 0
            assert max(reader.sizes) - reader.sizes[0] < most_growth, reader.sizes


def test_the_application_blocks_for_a_moment():
    with blocked(8, shards=8) as readers:
        assert all(reader.server.open_subscriptions(STREAM) <= 8 for reader in readers)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_application_blocks_for_long_with_sixteen_shards_at_full_rate():
    # Longer than the 30 s after which a subscription that waits for room is closed.
    seconds = 240
    with blocked(seconds, shards=16) as readers:
        for reader in readers:
            # A subscription that is not read is closed.
            assert reader.server.open_subscriptions(STREAM) == 0
            # What is held is held from the beginning: it does not creep up.
            sizes = reader.sizes
            assert max(sizes) - max(sizes[: seconds // 2]) < 4 * MEBIBYTE, sizes
