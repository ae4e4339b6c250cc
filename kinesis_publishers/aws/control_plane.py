"""The control plane over boto3."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Any, Self, TypeAlias, TypeVar

from kinesis_publishers.abc import ControlPlane
from kinesis_publishers.aws.clients import (
    is_of_aws,
    method_of,
    name_streams_if_asked,
    open_client,
    watch_clock,
)
from kinesis_publishers.aws.errors import complete_answer, mapped_errors, text_in
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import AwsConfig
from kinesis_publishers.errors import ClosedError, InvalidArgumentError, ServiceError
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
_THREADS = 4
# After this time the first pages are outdated: a shard may have been split meanwhile.
_LISTING_SECONDS = 60.0


class CallingControlPlane(ControlPlane):
    """Composes the calls of the control plane and reads their answers; a subclass sends them."""

    # Whether the calls so far went to AWS's own hosts, not to an emulator.
    calls_aws = False

    def __init__(self) -> None:
        # By listing: its first request, the items read so far, the refused request, and its start.
        self._unfinished: dict[str, tuple[Any, list[Any], dict[str, Any], float]] = {}

    @abstractmethod
    async def ask(
        self, operation: str, where: str, read: Callable[[dict[str, Any]], _T], **request: Any
    ) -> _T:
        """Make one call and return ``read(answer)``; error messages name ``where``."""

    async def _list(
        self, operation: str, where: str, read: Callable[[dict[str, Any]], _Page[_T]], **first: Any
    ) -> tuple[_T, ...]:
        """Return the items of all pages.

        A repeated listing continues with the refused page. Otherwise a long one would never end
        while some calls are refused.
        """
        key, now = f"{operation} {where}", asyncio.get_running_loop().time()
        known, items, request, since = self._unfinished.pop(key, (None, [], first, now))
        if known != first or now - since > _LISTING_SECONDS:
            items, request, since = [], first, now
        following: dict[str, Any] | None = request
        while following is not None:
            request = following
            try:
                page, following = await self.ask(operation, where, read, **request)
            except ServiceError as error:
                if items and error.retryable and error.code != "ExpiredNextTokenException":
                    self._unfinished[key] = first, items, request, since
                raise
            items += page
        return tuple(items)

    async def describe_stream(self, stream: str) -> StreamSummary:
        named = {"StreamARN" if stream.startswith("arn:") else "StreamName": stream}
        return await self.ask("DescribeStreamSummary", stream, _summary, **named)

    async def list_streams(self) -> tuple[StreamListing, ...]:
        """Return the streams of the region, by name."""

        def read(answer: dict[str, Any]) -> _Page[StreamListing]:
            # Old emulators list only the names.
            known = {one["StreamName"]: one for one in answer.get("StreamSummaries", ())}
            listed = [_listing(name, known.get(name, {})) for name in answer["StreamNames"]]
            if not answer.get("HasMoreStreams"):
                return listed, None
            return listed, {"ExclusiveStartStreamName": listed[-1].name}

        return await self._list("ListStreams", "the region", read)

    async def create_stream(self, name: str, shards: int | None) -> None:
        """Create a stream, on demand if ``shards`` is ``None``, which is CREATING for a while."""
        size = {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}}
        chosen = size if shards is None else {"ShardCount": shards}
        await self.ask("CreateStream", name, lambda _: None, StreamName=name, **chosen)

    async def list_shards(
        self, stream_arn: str, *, since: datetime | None = None
    ) -> tuple[Shard, ...]:
        def read(answer: dict[str, Any]) -> _Page[Shard]:
            token = answer.get("NextToken")
            # A token excludes all other parameters, even the stream. MaxResults would change
            # nothing: a page has at most 1,000 shards anyway.
            following = {"NextToken": token} if token else None
            return [_shard(stream_arn, one) for one in answer["Shards"]], following

        list_all = partial(self._list, "ListShards", stream_arn, read, StreamARN=stream_arn)
        if since is None:
            return await list_all()
        try:
            return await list_all(ShardFilter={"Type": "FROM_TIMESTAMP", "Timestamp": since})
        except InvalidArgumentError:
            # The service refuses an instant beyond the retention, when everything is newer.
            return await list_all()

    async def describe_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        return await self.ask(
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
        return await self.ask(
            "RegisterStreamConsumer",
            f"{consumer_name} on {stream_arn}",
            lambda answer: _consumer(answer["Consumer"]),
            StreamARN=stream_arn,
            ConsumerName=consumer_name,
        )

    async def deregister_stream_consumer(self, consumer_arn: str) -> None:
        await self.ask(
            "DeregisterStreamConsumer", consumer_arn, lambda _: None, ConsumerARN=consumer_arn
        )


class Boto3ControlPlane(CallingControlPlane):
    """Calls Kinesis in threads, with a client of boto3 that no call of the data plane can delay.

    Use it as ``async with Boto3ControlPlane(config) as control_plane``. The first call loads boto3,
    unless :meth:`load` has done so. ``clock`` learns the service's time.
    """

    def __init__(self, config: AwsConfig, clock: Clock | None = None) -> None:
        super().__init__()
        self._config = config
        self._clock = clock
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="kinesis-control-plane")
        self._opening = Lock()
        self._client: Any = None
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        # Do not wait: a call in flight ends with its read timeout.
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            self._client.close()

    async def load(self) -> None:
        """Load now what calls need, in a process whose files may disappear later."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._opened)

    async def ask(
        self, operation: str, where: str, read: Callable[[dict[str, Any]], _T], **request: Any
    ) -> _T:
        self._check_open(operation, where)

        def attempt() -> _T:
            client = self._opened()
            # Opening takes long enough for this to be closed meanwhile.
            self._check_open(operation, where)
            with mapped_errors(operation, where, client=client):
                answer = method_of(client, operation)(**request)
                with complete_answer(operation, where):
                    return read(answer)

        return await asyncio.get_running_loop().run_in_executor(self._executor, attempt)

    def _check_open(self, operation: str, where: str) -> None:
        if not self._is_open:
            raise ClosedError(f"{operation} of {where}: the control plane is closed")

    def _opened(self) -> Any:
        # Building a client reads files and parses the service model: not on the event loop.
        with self._opening, mapped_errors("CreateClient", "Kinesis"):
            if self._client is None:
                client = open_client(
                    self._config,
                    "kinesis",
                    self._config.endpoint_url,
                    # A wrong endpoint shows at the first call, and should show soon.
                    connect_timeout=3.0,
                    max_pool_connections=_THREADS,
                )
                name_streams_if_asked(client.meta.events)
                watch_clock(client, self._clock)
                self.calls_aws = is_of_aws(client)
                self._client = client
            return self._client


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
