"""The data plane over aiobotocore: one client, and so one connection pool, per fetcher."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import orjson
from aiobotocore.session import AioSession

from kinesis_publishers.abc import DataPlane
from kinesis_publishers.aws.carriers.carrier import Endpoint
from kinesis_publishers.aws.carriers.choice import check_carrier, create_carrier
from kinesis_publishers.aws.clients import (
    ServiceAddress,
    method_of,
    name_streams_if_asked,
    open_aio_client,
    watch_clock,
)
from kinesis_publishers.aws.credentials import build_session
from kinesis_publishers.aws.decoding import decode_get_records
from kinesis_publishers.aws.errors import complete_answer, mapped_errors, text_in
from kinesis_publishers.aws.subscribing import ShardSubscriber
from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import SubscriptionHttpConfig
from kinesis_publishers.errors import ClosedError
from kinesis_publishers.model import PositionType, RecordPage, Shard, StartingPosition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers.abc import ShardSubscription
    from kinesis_publishers.config import AwsConfig

__all__ = ["AioDataPlane"]

# A GetRecords answer of 10 MB over a slow line; an idle GetRecords answers at once.
_READ_TIMEOUT_SECONDS = 60.0
# What a token of HTTP cannot have (RFC 9110, section 5.6.2).
_NOT_IN_USER_AGENT = re.compile(r"[^A-Za-z0-9!#$%&'*+.^_`|~-]")
_RAW_BODY = "RawBody"
_TIMESTAMP = "kinesis_publishers.timestamp"


class AioDataPlane(DataPlane):
    """Calls Kinesis through aiobotocore, which signs, resolves endpoints and pools connections.

    Records do not go through botocore's parsers but through
    :mod:`kinesis_publishers.aws.decoding`, and subscriptions have connections of their own
    (:mod:`kinesis_publishers.aws.carriers`), so that they never hold up another call.

    Use it as ``async with AioDataPlane(config) as data_plane``; leaving closes every connection.

    Args:
        config: limits the connections, of which a shard needs one at a time.
        clock: measures how long a subscription is silent, and learns the service's time.

    Raises:
        ConfigError: the endpoint or this machine cannot do what ``http`` asks for.
    """

    def __init__(
        self,
        config: AwsConfig,
        *,
        http: SubscriptionHttpConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._config = config
        self._http = http or SubscriptionHttpConfig()
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._subscriber: ShardSubscriber | None = None
        # AWS's own endpoints are https.
        check_carrier(self._http, config.endpoint_url or "https://kinesis")

    async def __aenter__(self) -> Self:
        session = build_session(AioSession(), self._config)
        with mapped_errors("CreateClient", "Kinesis"):
            self._client = await self._stack.enter_async_context(self._create_client(session))
        try:
            self._subscriber = await self._create_subscriber(session)
        except BaseException:
            await self._stack.aclose()
            raise
        watch_clock(self._client, self._clock)
        hooks = self._client.meta.events
        name_streams_if_asked(hooks)
        # botocore offers this hook to customise parsing. The body is taken away before its own
        # parser sees it, and comes back as an extra key of the answer.
        hooks.register("before-parse.kinesis.GetRecords", _divert_body)
        for operation in ("GetShardIterator", "SubscribeToShard"):
            hooks.register(f"before-parameter-build.kinesis.{operation}", _note_timestamp)
            hooks.register(f"before-call.kinesis.{operation}", _restore_timestamp)
        return self

    async def _create_subscriber(self, session: AioSession) -> ShardSubscriber:
        url = str(self._client.meta.endpoint_url)
        # Again: the environment may have named another endpoint than AWS's own.
        check_carrier(self._http, url)
        endpoint = Endpoint.of_session(session, url, self._config.ca_bundle)
        if endpoint.ca_bundle is not None:
            # Now, not at the first call, where it would look like a connection that may recover.
            await asyncio.to_thread(endpoint.tls_context)
        carrier = create_carrier(endpoint, self._http, self._config.max_connections)
        self._stack.push_async_callback(carrier.close)
        return ShardSubscriber(self._client, carrier, self._clock)

    def _create_client(self, session: AioSession) -> Any:
        address = ServiceAddress(
            endpoint_url=self._config.endpoint_url,
            read_timeout_seconds=_READ_TIMEOUT_SECONDS,
            max_connections=self._config.max_connections,
        )
        return open_aio_client(
            self._config,
            address,
            session,
            parameter_validation=False,
            # Given as a whole: botocore would build its own twice for each call, a seventh of the
            # cost of a small call.
            user_agent=_user_agent(session),
        )

    async def __aexit__(self, *_: object) -> None:
        self._client = self._subscriber = None
        await self._stack.aclose()

    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        request: dict[str, Any] = {
            "StreamARN": shard.stream_arn,
            "ShardId": shard.shard_id,
            "ShardIteratorType": position.type.value,
        }
        if position.sequence_number is not None:
            request["StartingSequenceNumber"] = position.sequence_number.sequence_number
        if position.type is PositionType.AT_TIMESTAMP:
            request["Timestamp"] = position.timestamp
        answer = await self._call("GetShardIterator", shard, request)
        with complete_answer("GetShardIterator", str(shard)):
            return text_in(answer, "ShardIterator")

    async def get_records(self, shard: Shard, shard_iterator: str, limit: int) -> RecordPage:
        arn = shard.stream_arn
        request = {"StreamARN": arn, "ShardIterator": shard_iterator, "Limit": limit}
        answer = await self._call("GetRecords", shard, request)
        return decode_get_records(answer.pop(_RAW_BODY))

    @asynccontextmanager
    async def subscribe_to_shard(
        self, shard: Shard, consumer_arn: str, position: StartingPosition
    ) -> AsyncIterator[ShardSubscription]:
        if self._subscriber is None:
            raise ClosedError(f"SubscribeToShard of {shard}: the data plane is closed")
        async with self._subscriber.subscribe(shard, consumer_arn, position) as subscription:
            yield subscription

    async def _call(self, operation: str, shard: Shard, request: dict[str, Any]) -> dict[str, Any]:
        if self._client is None:
            raise ClosedError(f"{operation} of {shard}: the data plane is closed")
        with mapped_errors(operation, str(shard), client=self._client):
            answer: dict[str, Any] = await method_of(self._client, operation)(**request)
        return answer


def _user_agent(session: AioSession) -> str:
    """Return the user agent of botocore and of the application, and our name."""
    # The extra is added again when the header is written.
    base = session.user_agent().removesuffix(f" {session.user_agent_extra}")
    names = [base, "kinesis-publishers"]
    application = session.get_config_variable("user_agent_appid")
    if application:
        names.insert(1, f"app/{_NOT_IN_USER_AGENT.sub('-', application)}")
    return " ".join(names)


def _note_timestamp(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    context[_TIMESTAMP] = _position_of(params).get("Timestamp")


def _restore_timestamp(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    # Whole milliseconds, rounded down, like the service's own arrival times. botocore writes whole
    # seconds in some versions, which would begin too early, with records from before a pinned
    # LATEST, and microseconds in others, which would skip a record of the same millisecond.
    timestamp = context.get(_TIMESTAMP)
    if timestamp is not None:
        request = orjson.loads(params["body"])
        _position_of(request)["Timestamp"] = int(timestamp.timestamp() * 1000) / 1000
        params["body"] = orjson.dumps(request)


def _position_of(request: dict[str, Any]) -> dict[str, Any]:
    """Return the part that holds the position: SubscribeToShard has it one level down."""
    position: dict[str, Any] = request.get("StartingPosition", request)
    return position


def _divert_body(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    if response_dict["status_code"] == 200:
        customized_response_dict[_RAW_BODY] = response_dict["body"]
        response_dict["body"] = b"{}"
