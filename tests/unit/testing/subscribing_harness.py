"""A service under a manual clock, without HTTP, and readers of its subscriptions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pybase64
from botocore.eventstream import ChecksumMismatch, EventStreamBuffer

from kinesis_publishers.testing.local_kinesis import Behaviour, Limits
from kinesis_publishers.testing.local_kinesis.answers import (
    Answer,
    ApiError,
    ConnectionBroken,
    StreamingAnswer,
)
from kinesis_publishers.testing.local_kinesis.service import KinesisService
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

STREAM = "orders"
SHARD = "shardId-{:012d}".format
HALF = str(2**127)


class Reader:
    """Reads a body as it comes: what its frames say, and how it ended."""

    def __init__(self, body: AsyncGenerator[bytes, None]) -> None:
        self.body = body
        self.pieces: list[bytes] = []
        self.events: list[dict[str, Any]] = []
        self.exceptions: list[tuple[str, str]] = []
        self.initial_responses = 0
        self.checksum_errors = 0
        #: None as long as it is open, then "clean" or "broken".
        self.ending: str | None = None
        self._buffer = EventStreamBuffer()
        self._has_read = asyncio.Event()
        self._task = asyncio.create_task(self._read())

    @property
    def texts(self) -> list[str]:
        """The data of all records so far."""
        return [
            pybase64.b64decode(record["Data"]).decode()
            for event in self.events
            for record in event["Records"]
        ]

    @property
    def continuation(self) -> str | None:
        """The newest continuation; None at the end of the shard."""
        number = self.events[-1]["ContinuationSequenceNumber"]
        return None if number is None else str(number)

    async def wait_for_texts(self, count: int) -> None:
        """Wait in real time until so many records have come."""
        while len(self.texts) < count:
            self._has_read.clear()
            await self._has_read.wait()

    async def close(self) -> None:
        """Leave, as a client does."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.body.aclose()

    async def _read(self) -> None:
        try:
            async for piece in self.body:
                self.pieces.append(piece)
                self._decode(piece)
                self._has_read.set()
        except ConnectionBroken:
            self.ending = "broken"
        else:
            self.ending = "clean"

    def _decode(self, piece: bytes) -> None:
        self._buffer.add_data(piece)
        try:
            for message in self._buffer:
                self._take(message.headers, orjson.loads(message.payload))
        except ChecksumMismatch:
            self.checksum_errors += 1

    def _take(self, headers: dict[str, Any], payload: dict[str, Any]) -> None:
        assert headers[":content-type"] == "application/x-amz-json-1.1"
        if headers[":message-type"] == "exception":
            self.exceptions.append((headers[":exception-type"], payload["message"]))
        elif headers[":event-type"] == "initial-response":
            self.initial_responses += 1
        else:
            self.events.append(payload)


class FanOut:
    """An account whose stream ``orders`` has one shard and the consumer ``c``."""

    def __init__(self, limits: Limits | None = None, behaviour: Behaviour | None = None) -> None:
        self.clock = ManualClock()
        self.service = KinesisService(limits or Limits.aws(), self.clock, behaviour or Behaviour())
        self.state = self.service.state
        self.state.create(STREAM, "PROVISIONED", 1)
        self.consumer_arn = self.register("c")
        self.readers: list[Reader] = []

    def register(self, name: str) -> str:
        return self.state.register(self.state.find(STREAM), name, {}).arn

    def put(self, *texts: str) -> list[str]:
        """Store records and return their sequence numbers."""
        records = [("key", text.encode()) for text in texts]
        return [number for _, number in self.state.write(STREAM, records)]

    async def call(self, operation: str, **fields: Any) -> Any:
        """Call an operation.

        Raises:
            ApiError: what it answered.
        """
        answer = await self._answer(operation, **fields)
        assert isinstance(answer, Answer)
        return orjson.loads(answer.body or b"{}")

    async def subscribe(
        self, kind: str = "TRIM_HORIZON", *, shard: int = 0, arn: str = "", **position: Any
    ) -> Reader:
        body = await self.open_body(kind, shard=shard, arn=arn, **position)
        reader = Reader(body)
        self.readers.append(reader)
        await self.clock.settle()
        return reader

    async def open_body(
        self, kind: str = "TRIM_HORIZON", *, shard: int = 0, arn: str = "", **position: Any
    ) -> AsyncGenerator[bytes, None]:
        answer = await self._answer(
            "SubscribeToShard",
            ConsumerARN=arn or self.consumer_arn,
            ShardId=SHARD(shard),
            StartingPosition={"Type": kind} | position,
        )
        assert isinstance(answer, StreamingAnswer)
        return answer.body

    async def after(self, number: str | None, **fields: Any) -> Reader:
        """Subscribe again where another subscription has ended."""
        return await self.subscribe("AFTER_SEQUENCE_NUMBER", SequenceNumber=number, **fields)

    def open_count(self) -> int:
        return len(self.service.state.subscriptions.find(stream=STREAM))

    async def close(self) -> None:
        for reader in self.readers:
            await reader.close()

    async def _answer(self, operation: str, **fields: Any) -> Answer | StreamingAnswer:
        answer = await self.service.handle(f"Kinesis_20131202.{operation}", orjson.dumps(fields))
        if isinstance(answer, Answer) and answer.error_code:
            raise ApiError(answer.error_code, orjson.loads(answer.body)["message"], answer.status)
        return answer
