"""The control plane over boto3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_publishers.abc.control_plane import ControlPlane
from kinesis_publishers.aws.boto3_client import Boto3Client
from kinesis_publishers.aws.errors import complete_answer, text_in
from kinesis_publishers.errors import InvalidArgumentError
from kinesis_publishers.model import Shard, StreamConsumer, StreamIdentity, StreamSummary

if TYPE_CHECKING:
    from datetime import datetime

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.config import AwsConfig

__all__ = ["Boto3ControlPlane"]


class Boto3ControlPlane(Boto3Client, ControlPlane):
    """Calls Kinesis through boto3, on a client that the data plane's connections cannot block.

    Use it as ``async with Boto3ControlPlane(config) as control_plane``.
    """

    def __init__(self, config: AwsConfig, clock: Clock | None = None) -> None:
        super().__init__(config, "control plane", clock)

    async def describe_stream(self, stream: str) -> StreamSummary:
        request = {"StreamARN" if stream.startswith("arn:") else "StreamName": stream}
        answer = await self.call(
            "DescribeStreamSummary",
            stream,
            lambda client: client.describe_stream_summary(**request),
        )
        with complete_answer("DescribeStreamSummary", stream):
            return _summary(answer)

    async def list_shards(
        self, stream_arn: str, *, since: datetime | None = None
    ) -> tuple[Shard, ...]:
        if since is None:
            return await self._list_shards(stream_arn, {})
        try:
            return await self._list_shards(
                stream_arn, {"ShardFilter": {"Type": "FROM_TIMESTAMP", "Timestamp": since}}
            )
        except InvalidArgumentError:
            # The service refuses an instant beyond the retention: everything is newer than that.
            return await self._list_shards(stream_arn, {})

    async def _list_shards(self, stream_arn: str, extra: dict[str, Any]) -> tuple[Shard, ...]:
        def all_pages(client: Any) -> tuple[Shard, ...]:
            answers = [client.list_shards(StreamARN=stream_arn, **extra)]
            while token := answers[-1].get("NextToken"):
                # A token excludes the stream's name and ARN, and every other parameter.
                answers.append(client.list_shards(NextToken=token))
            with complete_answer("ListShards", stream_arn):
                return tuple(_shard(stream_arn, one) for page in answers for one in page["Shards"])

        return await self.call("ListShards", stream_arn, all_pages)

    async def describe_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        operation, where = "DescribeStreamConsumer", f"{consumer_name} on {stream_arn}"
        answer = await self.call(
            operation,
            where,
            lambda client: client.describe_stream_consumer(
                StreamARN=stream_arn, ConsumerName=consumer_name
            ),
        )
        with complete_answer(operation, where):
            return _consumer(answer["ConsumerDescription"])

    async def list_stream_consumers(self, stream_arn: str) -> tuple[StreamConsumer, ...]:
        def all_pages(client: Any) -> tuple[StreamConsumer, ...]:
            answers = [client.list_stream_consumers(StreamARN=stream_arn)]
            while token := answers[-1].get("NextToken"):
                answers.append(client.list_stream_consumers(StreamARN=stream_arn, NextToken=token))
            with complete_answer("ListStreamConsumers", stream_arn):
                return tuple(_consumer(one) for page in answers for one in page["Consumers"])

        return await self.call("ListStreamConsumers", stream_arn, all_pages)

    async def register_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        operation, where = "RegisterStreamConsumer", f"{consumer_name} on {stream_arn}"
        answer = await self.call(
            operation,
            where,
            lambda client: client.register_stream_consumer(
                StreamARN=stream_arn, ConsumerName=consumer_name
            ),
        )
        with complete_answer(operation, where):
            return _consumer(answer["Consumer"])

    async def deregister_stream_consumer(self, consumer_arn: str) -> None:
        await self.call(
            "DeregisterStreamConsumer",
            consumer_arn,
            lambda client: client.deregister_stream_consumer(ConsumerARN=consumer_arn),
        )


def _optional(answer: dict[str, Any], name: str) -> str | None:
    return text_in(answer, name) if answer.get(name) else None


def _summary(answer: dict[str, Any]) -> StreamSummary:
    summary = answer["StreamDescriptionSummary"]
    return StreamSummary(
        identity=StreamIdentity(
            name=text_in(summary, "StreamName"),
            arn=text_in(summary, "StreamARN"),
            created_at=summary["StreamCreationTimestamp"],
        ),
        status=text_in(summary, "StreamStatus"),
        retention_seconds=summary["RetentionPeriodHours"] * 3600.0,
    )


def _shard(stream_arn: str, description: dict[str, Any]) -> Shard:
    hash_range = description["HashKeyRange"]
    numbers = description["SequenceNumberRange"]
    return Shard(
        stream_arn=stream_arn,
        shard_id=text_in(description, "ShardId"),
        parent_shard_id=_optional(description, "ParentShardId"),
        adjacent_parent_shard_id=_optional(description, "AdjacentParentShardId"),
        starting_hash_key=text_in(hash_range, "StartingHashKey"),
        ending_hash_key=text_in(hash_range, "EndingHashKey"),
        starting_sequence_number=text_in(numbers, "StartingSequenceNumber"),
        ending_sequence_number=_optional(numbers, "EndingSequenceNumber"),
    )


def _consumer(description: dict[str, Any]) -> StreamConsumer:
    return StreamConsumer(
        name=text_in(description, "ConsumerName"),
        arn=text_in(description, "ConsumerARN"),
        status=text_in(description, "ConsumerStatus"),
        created_at=description["ConsumerCreationTimestamp"],
    )
