"""The control plane over boto3."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Any, Self, TypeAlias, TypeVar

from kinesis_publishers.abc import ControlPlane
from kinesis_publishers.aws.clients import Boto3Client, method_of
from kinesis_publishers.aws.errors import complete_answer, text_in
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import AwsConfig
from kinesis_publishers.errors import InvalidArgumentError, ServiceError
from kinesis_publishers.model import (
    HashRange,
    Shard,
    StreamConsumer,
    StreamIdentity,
    StreamListing,
    StreamSummary,
)
from kinesis_publishers.model.shards import MAX_RECORD_BYTES

_T = TypeVar("_T")
# The items of a page, and the parameters of the next request.
_Page: TypeAlias = tuple[list[_T], dict[str, Any] | None]
# After this time the first pages are outdated: a shard may have been split meanwhile.
_LISTING_SECONDS = 60.0


class CallingControlPlane(ControlPlane):
    """Composes the calls of the control plane and reads their answers; a subclass sends them."""

    def __init__(self) -> None:
        # By listing: its first request, the items read so far, the refused request, and its start.
        self._unfinished: dict[str, tuple[Any, list[Any], dict[str, Any], float]] = {}

    @property
    def calls_aws(self) -> bool:
        """Whether the calls so far went to AWS's own hosts, not to an emulator."""
        return False

    @abstractmethod
    async def _ask(
        self, operation: str, where: str, read: Callable[[dict[str, Any]], _T], **request: Any
    ) -> _T:
        """Make one call and return ``read(answer)``."""

    async def ask(self, operation: str, where: str, **request: Any) -> dict[str, Any]:
        """Make one call and return its answer; error messages name ``where``."""
        return await self._ask(operation, where, lambda answer: answer, **request)

    async def _list(
        self,
        operation: str,
        where: str,
        read: Callable[[dict[str, Any]], _Page[_T]],
        **first: Any,
    ) -> tuple[_T, ...]:
        """Return the items of all pages.

        A repeated listing continues with the refused page: otherwise a long listing would never
        end while some of its calls are refused.
        """
        key, now = f"{operation} {where}", asyncio.get_running_loop().time()
        known, items, request, since = self._unfinished.pop(key, (None, [], first, now))
        if known != first or now - since > _LISTING_SECONDS:
            items, request, since = [], first, now
        following: dict[str, Any] | None = request
        while following is not None:
            request = following
            try:
                page, following = await self._ask(operation, where, read, **request)
            except ServiceError as error:
                if items and error.retryable and error.code != "ExpiredNextTokenException":
                    self._unfinished[key] = first, items, request, since
                raise
            items += page
        return tuple(items)

    async def describe_stream(self, stream: str) -> StreamSummary:
        named = {"StreamARN" if stream.startswith("arn:") else "StreamName": stream}
        return await self._ask("DescribeStreamSummary", stream, _summary, **named)

    async def list_streams(self) -> tuple[StreamListing, ...]:
        """Return the streams of the region, by name: all pages of the listing or none."""

        def read(answer: dict[str, Any]) -> _Page[StreamListing]:
            # Old emulators list only the names.
            known = {one["StreamName"]: one for one in answer.get("StreamSummaries", ())}
            listed = [_listing(name, known.get(name, {})) for name in answer["StreamNames"]]
            if not answer.get("HasMoreStreams"):
                return listed, None
            return listed, {"ExclusiveStartStreamName": listed[-1].name}

        return await self._list("ListStreams", "the region", read)

    async def create_stream(self, name: str, shards: int | None) -> None:
        """Create a stream with ``shards`` (on demand if ``None``), which is CREATING for a while.

        Raises:
            ResourceInUseError: a stream of this name exists.
        """
        size = {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}}
        chosen = size if shards is None else {"ShardCount": shards}
        await self._ask("CreateStream", name, lambda _: None, StreamName=name, **chosen)

    async def list_shards(
        self, stream_arn: str, *, since: datetime | None = None
    ) -> tuple[Shard, ...]:
        if since is None:
            return await self._list_shards(stream_arn)
        newer = {"Type": "FROM_TIMESTAMP", "Timestamp": since}
        try:
            return await self._list_shards(stream_arn, ShardFilter=newer)
        except InvalidArgumentError:
            # The service refuses an instant beyond the retention, when everything is newer.
            return await self._list_shards(stream_arn)

    async def _list_shards(self, stream_arn: str, **extra: Any) -> tuple[Shard, ...]:
        def read(answer: dict[str, Any]) -> _Page[Shard]:
            token = answer.get("NextToken")
            # A token excludes all other parameters, even the stream. MaxResults would change
            # nothing: a page has 1,000 shards without it, and never more.
            following = {"NextToken": token} if token else None
            return [_shard(stream_arn, one) for one in answer["Shards"]], following

        return await self._list("ListShards", stream_arn, read, StreamARN=stream_arn, **extra)

    async def describe_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        return await self._ask(
            "DescribeStreamConsumer",
            f"{consumer_name} on {stream_arn}",
            lambda answer: _consumer(answer["ConsumerDescription"]),
            StreamARN=stream_arn,
            ConsumerName=consumer_name,
        )

    async def list_stream_consumers(self, stream_arn: str) -> tuple[StreamConsumer, ...]:
        def read(answer: dict[str, Any]) -> _Page[StreamConsumer]:
            token = answer.get("NextToken")
            following = {"StreamARN": stream_arn, "NextToken": token} if token else None
            return [_consumer(one) for one in answer["Consumers"]], following

        return await self._list("ListStreamConsumers", stream_arn, read, StreamARN=stream_arn)

    async def register_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        return await self._ask(
            "RegisterStreamConsumer",
            f"{consumer_name} on {stream_arn}",
            lambda answer: _consumer(answer["Consumer"]),
            StreamARN=stream_arn,
            ConsumerName=consumer_name,
        )

    async def deregister_stream_consumer(self, consumer_arn: str) -> None:
        await self._ask(
            "DeregisterStreamConsumer", consumer_arn, lambda _: None, ConsumerARN=consumer_arn
        )


class Boto3ControlPlane(CallingControlPlane):
    """Calls Kinesis through boto3, on a client that the data plane's connections cannot block.

    Use it as ``async with Boto3ControlPlane(config) as control_plane``.

    Attributes:
        client: makes the calls.
    """

    def __init__(self, config: AwsConfig, clock: Clock | None = None) -> None:
        super().__init__()
        self.client = Boto3Client(config, "control plane", clock)

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.client.__aexit__(*raised)

    @property
    def calls_aws(self) -> bool:
        return self.client.calls_aws

    async def _ask(
        self, operation: str, where: str, read: Callable[[dict[str, Any]], _T], **request: Any
    ) -> _T:
        def ask(client: Any) -> _T:
            answer = method_of(client, operation)(**request)
            with complete_answer(operation, where):
                return read(answer)

        return await self.client.call(operation, where, ask)


def _optional(answer: dict[str, Any], name: str) -> str | None:
    return text_in(answer, name) if answer.get(name) else None


def _listing(name: str, summary: dict[str, Any]) -> StreamListing:
    return StreamListing(
        name=name,
        arn=_optional(summary, "StreamARN"),
        status=_optional(summary, "StreamStatus"),
        mode=summary.get("StreamModeDetails", {}).get("StreamMode"),
        created_at=summary.get("StreamCreationTimestamp"),
    )


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
        max_record_bytes=summary.get("MaxRecordSizeInKiB", MAX_RECORD_BYTES // 1024) * 1024,
        is_auto_distributed=summary.get("RecordDistributionStrategy") == "AUTO",
    )


def _shard(stream_arn: str, description: dict[str, Any]) -> Shard:
    hash_range = description["HashKeyRange"]
    numbers = description["SequenceNumberRange"]
    shard = Shard(
        stream_arn=stream_arn,
        shard_id=text_in(description, "ShardId"),
        parent_shard_id=_optional(description, "ParentShardId"),
        adjacent_parent_shard_id=_optional(description, "AdjacentParentShardId"),
        starting_hash_key=text_in(hash_range, "StartingHashKey"),
        ending_hash_key=text_in(hash_range, "EndingHashKey"),
        starting_sequence_number=text_in(numbers, "StartingSequenceNumber"),
        ending_sequence_number=_optional(numbers, "EndingSequenceNumber"),
    )
    # This raises for a value that is not a number, here where the call is repeated.
    HashRange.of(shard)
    return shard


def _consumer(description: dict[str, Any]) -> StreamConsumer:
    return StreamConsumer(
        name=text_in(description, "ConsumerName"),
        arn=text_in(description, "ConsumerARN"),
        status=text_in(description, "ConsumerStatus"),
        created_at=description["ConsumerCreationTimestamp"],
    )
