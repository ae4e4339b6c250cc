"""The planes of the framework, answered by the service in this process.

No socket, no thread and no HTTP: a call is a function call that waits on the service's own clock
alone. What the service answers is decoded and refused as if it had come over a wire.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import orjson
from attrs import frozen
from botocore.exceptions import ClientError

from kinesis_publishers.abc import DataPlane, PutAnswer, PutColumns, RecordWriter, ShardSubscription
from kinesis_publishers.aws import calls, writing
from kinesis_publishers.aws.control_plane import CallingControlPlane
from kinesis_publishers.aws.decoding import decode_get_records
from kinesis_publishers.aws.errors import complete_answer, map_error, text_in
from kinesis_publishers.aws.subscription import EventStreamSubscription
from kinesis_publishers.errors import ConnectionFailedError, MalformedResponseError
from kinesis_publishers.model import RecordPage, Shard, StartingPosition
from kinesis_publishers.model.sources import stream_name_of
from kinesis_publishers.testing.local_kinesis.answers import (
    Answer,
    ConnectionBroken,
    StreamingAnswer,
)
from kinesis_publishers.testing.local_kinesis.service import KinesisService

_T = TypeVar("_T")


class _Plane:
    def __init__(self, service: KinesisService) -> None:
        super().__init__()
        self._service = service

    async def _call(
        self, operation: str, where: str, **members: object
    ) -> bytes | AsyncGenerator[bytes, None]:
        """Make a call; return the body of its answer."""
        answer = await self._service.handle(
            operation,
            orjson.dumps(members, datetime.timestamp, orjson.OPT_PASSTHROUGH_DATETIME),
        )
        if isinstance(answer, StreamingAnswer):
            return answer.body
        if answer.delivery != "whole":
            raise _broken(operation, where)
        if answer.status != 200:
            raise _refusal(answer, operation, where)
        return answer.body

    async def _json(self, operation: str, where: str, **members: object) -> dict[str, Any]:
        body = await self._call(operation, where, **members)
        assert isinstance(body, bytes)
        with complete_answer(operation, where):
            answer: dict[str, Any] = orjson.loads(body or b"{}")
            return answer


def _refusal(answer: Answer, operation: str, where: str) -> Exception:
    parsed: Any = calls.error_in(calls.Answer(answer.status, answer.headers, answer.body))
    return map_error(ClientError(parsed, operation), operation=operation, where=where)


def _broken(operation: str, where: str) -> ConnectionFailedError:
    return ConnectionFailedError(
        f"{operation} of {where}: no complete answer from the service (the connection broke).",
        operation=operation,
        code="ConnectionClosed",
    )


class InProcessDataPlane(_Plane, DataPlane, RecordWriter):
    """Reads and writes the shards of a local service; it is open as long as the service exists."""

    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        answer = await self._json(
            "GetShardIterator",
            str(shard),
            StreamARN=shard.stream_arn,
            ShardId=shard.shard_id,
            **calls.position_members(position, "ShardIteratorType", "StartingSequenceNumber"),
        )
        with complete_answer("GetShardIterator", str(shard)):
            return text_in(answer, "ShardIterator")

    async def get_records(self, shard: Shard, shard_iterator: str, limit: int) -> RecordPage:
        body = await self._call(
            "GetRecords",
            str(shard),
            StreamARN=shard.stream_arn,
            ShardIterator=shard_iterator,
            Limit=limit,
        )
        assert isinstance(body, bytes)
        return decode_get_records(body)

    async def put_records(self, stream_arn: str, records: PutColumns) -> PutAnswer:
        stream, members = stream_name_of(stream_arn), writing.members_of(records, is_cbor=False)
        answer = await self._json(writing.OPERATION, stream, StreamARN=stream_arn, **members)
        with complete_answer(writing.OPERATION, stream):
            return writing.answer_in(answer, len(records), stream)

    @asynccontextmanager
    async def subscribe_to_shard(
        self, shard: Shard, consumer_arn: str, position: StartingPosition
    ) -> AsyncIterator[ShardSubscription]:
        body = await self._call(
            "SubscribeToShard",
            str(shard),
            ConsumerARN=consumer_arn,
            ShardId=shard.shard_id,
            StartingPosition=calls.position_members(position, "Type", "SequenceNumber"),
        )
        if isinstance(body, bytes):
            raise MalformedResponseError(
                f"SubscribeToShard of {shard}: the answer is no subscription.",
                operation="SubscribeToShard",
                code="MalformedResponse",
            )
        try:
            yield EventStreamSubscription(
                _Pieces(body, str(shard)).read, where=str(shard), clock=self._service.state.clock
            )
        finally:
            await body.aclose()


@frozen
class _Pieces:
    """The body of a subscription, made piece by piece as it is read."""

    _body: AsyncGenerator[bytes, None]
    _where: str

    async def read(self) -> bytes:
        try:
            return await anext(self._body, b"")
        except ConnectionBroken as error:
            raise _broken("SubscribeToShard", self._where) from error


class InProcessControlPlane(_Plane, CallingControlPlane):
    """Describes the streams of a local service and registers consumers with it."""

    async def ask(
        self, operation: str, where: str, read: Callable[[dict[str, Any]], _T], **request: Any
    ) -> _T:
        answer = await self._json(operation, where, **request)
        with complete_answer(operation, where):
            return read(_with_instants(answer))


def _with_instants(value: Any, name: str = "") -> Any:
    """Return an answer with the instants that botocore would make of its timestamps."""
    if isinstance(value, dict):
        return {key: _with_instants(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_instants(item) for item in value]
    return datetime.fromtimestamp(value, UTC) if name.endswith(("Timestamp", "At")) else value
