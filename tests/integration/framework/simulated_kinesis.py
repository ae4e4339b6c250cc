"""The local service without sockets, in simulated time: calls go straight into it.

What is real: the fetcher, the publishers, registration, framing and decoding, and the service with
its limits and faults. What is not: HTTP, signatures and the passing of time.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson
from attrs import frozen

from kinesis_publishers.abc import ControlPlane, DataPlane
from kinesis_publishers.aws.decoding import decode_get_records
from kinesis_publishers.aws.errors import service_error
from kinesis_publishers.aws.subscription import EventStreamSubscription
from kinesis_publishers.errors import ConnectionFailedError, ServiceError
from kinesis_publishers.model import (
    RecordPage,
    Shard,
    StartingPosition,
    StreamConsumer,
    StreamIdentity,
    StreamSummary,
)
from kinesis_publishers.testing.local_kinesis.answers import (
    Answer,
    ConnectionBroken,
    StreamingAnswer,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from kinesis_publishers import Clock
    from kinesis_publishers.testing.local_kinesis.service import KinesisService

__all__ = ["SimulatedPlanes"]


@frozen
class _Body:
    """Brings the pieces of a body as a connection would."""

    pieces: AsyncGenerator[bytes, None]

    async def read(self) -> bytes:
        try:
            # An empty piece is not the end: nothing would be sent for it.
            async for piece in self.pieces:
                if piece:
                    return piece
        except ConnectionBroken as error:
            raise ConnectionFailedError("the connection was reset") from error
        return b""


class SimulatedPlanes(DataPlane, ControlPlane):
    """Both planes over one service."""

    def __init__(self, service: KinesisService, clock: Clock) -> None:
        self._service = service
        self._clock = clock

    async def describe_stream(self, stream: str) -> StreamSummary:
        member = "StreamARN" if stream.startswith("arn:") else "StreamName"
        answer = await self._call("DescribeStreamSummary", {member: stream})
        summary = answer["StreamDescriptionSummary"]
        return StreamSummary(
            identity=StreamIdentity(
                name=summary["StreamName"],
                arn=summary["StreamARN"],
                created_at=_instant(summary["StreamCreationTimestamp"]),
            ),
            status=summary["StreamStatus"],
            retention_seconds=summary["RetentionPeriodHours"] * 3600.0,
        )

    async def list_shards(
        self, stream_arn: str, *, since: datetime | None = None
    ) -> tuple[Shard, ...]:
        answer = await self._call("ListShards", {"StreamARN": stream_arn})
        return tuple(
            Shard(
                stream_arn=stream_arn,
                shard_id=one["ShardId"],
                parent_shard_id=one.get("ParentShardId"),
                adjacent_parent_shard_id=one.get("AdjacentParentShardId"),
                starting_sequence_number=one["SequenceNumberRange"]["StartingSequenceNumber"],
                ending_sequence_number=one["SequenceNumberRange"].get("EndingSequenceNumber"),
            )
            for one in answer["Shards"]
        )

    async def describe_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        request = {"StreamARN": stream_arn, "ConsumerName": consumer_name}
        answer = await self._call("DescribeStreamConsumer", request)
        return _consumer(answer["ConsumerDescription"])

    async def list_stream_consumers(self, stream_arn: str) -> tuple[StreamConsumer, ...]:
        answer = await self._call("ListStreamConsumers", {"StreamARN": stream_arn})
        return tuple(map(_consumer, answer["Consumers"]))

    async def register_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        request = {"StreamARN": stream_arn, "ConsumerName": consumer_name}
        return _consumer((await self._call("RegisterStreamConsumer", request))["Consumer"])

    async def deregister_stream_consumer(self, consumer_arn: str) -> None:
        await self._call("DeregisterStreamConsumer", {"ConsumerARN": consumer_arn})

    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        members = _position(position, "StartingSequenceNumber")
        request = {
            "StreamARN": shard.stream_arn,
            "ShardId": shard.shard_id,
            "ShardIteratorType": members.pop("Type"),
            **members,
        }
        return str((await self._call("GetShardIterator", request))["ShardIterator"])

    async def get_records(self, shard: Shard, shard_iterator: str, limit: int) -> RecordPage:
        answer = await self._handle("GetRecords", {"ShardIterator": shard_iterator, "Limit": limit})
        assert isinstance(answer, Answer)
        return decode_get_records(answer.body)

    @asynccontextmanager
    async def subscribe_to_shard(
        self, shard: Shard, consumer_arn: str, position: StartingPosition
    ) -> AsyncIterator[EventStreamSubscription]:
        request = {
            "ConsumerARN": consumer_arn,
            "ShardId": shard.shard_id,
            "StartingPosition": _position(position, "SequenceNumber"),
        }
        answer = await self._handle("SubscribeToShard", request)
        assert isinstance(answer, StreamingAnswer)
        try:
            yield EventStreamSubscription(_Body(answer.body), where=str(shard), clock=self._clock)
        finally:
            await answer.body.aclose()

    async def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        answer = await self._handle(operation, request)
        assert isinstance(answer, Answer)
        members: dict[str, Any] = orjson.loads(answer.body or b"{}")
        return members

    async def _handle(self, operation: str, request: dict[str, Any]) -> Answer | StreamingAnswer:
        answer = await self._service.handle(f"Kinesis_20131202.{operation}", orjson.dumps(request))
        if isinstance(answer, Answer) and answer.delivery != "whole":
            raise ConnectionFailedError(f"{operation}: the connection was reset")
        if isinstance(answer, Answer) and answer.status != 200:
            error = orjson.loads(answer.body)
            raise service_error(
                error["__type"],
                error["message"],
                operation=operation,
                where="the simulation",
                request_id=None,
                fallback=ServiceError,
            )
        return answer


def _instant(epoch_seconds: float) -> datetime:
    return datetime.fromtimestamp(epoch_seconds, UTC)


def _consumer(members: dict[str, Any]) -> StreamConsumer:
    return StreamConsumer(
        name=members["ConsumerName"],
        arn=members["ConsumerARN"],
        status=members["ConsumerStatus"],
        created_at=_instant(members["ConsumerCreationTimestamp"]),
    )


def _position(position: StartingPosition, number_member: str) -> dict[str, Any]:
    members: dict[str, Any] = {"Type": position.type.value}
    if position.sequence_number is not None:
        members[number_member] = position.sequence_number.sequence_number
    if position.timestamp is not None:
        members["Timestamp"] = position.timestamp.timestamp()
    return members
