"""A daemon in the test's own process, and processors that the test plays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from base64 import b64decode
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field

from kinesis_publishers.cli.multilang import run_daemon
from kinesis_publishers.cli.shared.kcl_properties import daemon_config
from kinesis_publishers.testing.local_kinesis import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["STREAM", "Daemon", "Played", "payloads"]

STREAM = "orders"
_RELAY = Path(__file__).with_name("relay.py")


def payloads(message: dict[str, Any]) -> list[int]:
    """Return the numbers in the records of a message."""
    return [int(b64decode(one["data"])) for one in message["records"]]


@define(eq=False)
class Played:
    """A processor, as the test plays it: it reads what the daemon says, and answers."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    shard: str = field(default="", init=False)

    async def read(self) -> dict[str, Any] | None:
        """Return the next message; ``None`` at the end of the input."""
        line = await self._reader.readline()
        return json.loads(line) if line else None

    async def expect(self, action: str) -> dict[str, Any]:
        """Return the next message, which has this action."""
        message = await self.read()
        assert message is not None, f"the end of the input, in place of {action}"
        assert message["action"] == action, message
        return message

    def say(self, **fields: Any) -> None:
        self.print(json.dumps(fields).encode())

    def print(self, line: bytes) -> None:
        self._writer.write(line + b"\n")

    def done(self, action: str) -> None:
        """Say that an action is done."""
        self.say(action="status", responseFor=action)

    async def checkpoint(self, number: Any = None, sub: Any = None) -> str | None:
        """Ask for a checkpoint; return the name of the error."""
        self.say(action="checkpoint", sequenceNumber=number, subSequenceNumber=sub)
        answer = await self.expect("checkpoint")
        assert (answer["sequenceNumber"], answer["subSequenceNumber"]) == (number, sub)
        error: str | None = answer["error"]
        return error

    async def take(self, action: str) -> dict[str, Any]:
        """Expect an action, and say that it is done."""
        message = await self.expect(action)
        self.done(action)
        return message

    async def take_records(self, count: int) -> list[int]:
        """Take so many records, in any number of messages."""
        taken: list[int] = []
        while len(taken) < count:
            taken += payloads(await self.take("processRecords"))
        return taken

    def exit(self, code: int) -> None:
        self.print(b"exit %d" % code)

    async def close(self) -> None:
        """End the process, whose input has ended."""
        assert await self.read() is None
        self._writer.close()


@define(eq=False)
class Daemon:
    """Runs daemons of one application, one after the other."""

    server: LocalKinesis
    folder: Path
    more: dict[str, str] = field(factory=dict)
    _count: int = field(default=0, init=False)
    _processors: asyncio.Queue[Played] = field(factory=asyncio.Queue, init=False)
    _writers: list[asyncio.StreamWriter] = field(factory=list, init=False)

    def put(self, count: int, key: str = "one shard") -> list[int]:
        numbers = list(range(self._count, self._count + count))
        self._count += count
        self.server.put_many(STREAM, [(key, b"%d" % one) for one in numbers])
        return numbers

    def pairs(self, **more: str) -> list[tuple[str, str]]:
        """Return a file of the daemon; ``_`` in a name stands for a dot."""
        ours = self.server.properties(STREAM)
        values = {
            "executableName": f"{sys.executable} -SE {_RELAY} {self.folder}/relay",
            "streamName": STREAM,
            "applicationName": "tests",
            "initialPositionInStream": "TRIM_HORIZON",
            "regionName": ours.pop("aws.region"),
            "kinesisEndpoint": ours.pop("aws.endpoint"),
            "idleTimeBetweenReadsInMillis": "20",
            "shardSyncIntervalMillis": "100",
            "kinesis.checkpoint.store": "sqlite",
            "kinesis.checkpoint.sqlite.path": f"{self.folder}/leases.sqlite3",
            **{key: value for key, value in ours.items() if key.startswith("aws.")},
            **self.more,
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        if values["kinesis.checkpoint.store"] != "sqlite":
            del values["kinesis.checkpoint.sqlite.path"]
        return list(values.items())

    @asynccontextmanager
    async def running(self, **more: str) -> AsyncIterator[asyncio.Task[None]]:
        """Run a daemon; it is stopped by SIGTERM at the end, unless it has ended."""
        served = await asyncio.start_unix_server(self._connect, f"{self.folder}/relay", limit=2**24)
        async with served:
            task = asyncio.create_task(run_daemon(daemon_config(self.pairs(**more))))
            try:
                yield task
            finally:
                if not task.done():
                    task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task
                for writer in self._writers:
                    writer.close()
                    with suppress(ConnectionError):
                        await writer.wait_closed()
                self._writers.clear()

    def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self._processors.put_nowait(Played(reader, writer))

    @property
    def has_started(self) -> bool:
        """Whether a processor has started that the test does not play yet."""
        return not self._processors.empty()

    async def started(self) -> Played:
        """Return the next processor that starts."""
        return await self._processors.get()

    async def begun(self) -> Played:
        """Return the next processor that starts, after its first message."""
        played = await self.started()
        played.shard = (await played.take("initialize"))["shardId"]
        return played
