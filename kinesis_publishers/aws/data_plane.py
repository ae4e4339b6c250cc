"""The data plane over aiobotocore: one client, and so one connection pool, per fetcher."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any, Self

import orjson
from aiobotocore.session import AioSession

from kinesis_publishers.abc import DataPlane, PutAnswer, PutColumns, RecordWriter, ShardSubscription
from kinesis_publishers.aws import cbor, subscription, writing
from kinesis_publishers.aws.calls import (
    JSON,
    Answer,
    ServiceCalls,
    encoded,
    error_in,
    position_members,
)
from kinesis_publishers.aws.carriers.aiohttp_carrier import AiohttpCarrier
from kinesis_publishers.aws.carriers.carrier import (
    Endpoint,
    SubscriptionCarrier,
    http_2_not_offered,
)
from kinesis_publishers.aws.clients import asks_for_name, open_aio_client
from kinesis_publishers.aws.credentials import build_aio_session
from kinesis_publishers.aws.decoding import decode_get_records
from kinesis_publishers.aws.errors import complete_answer, mapped_errors, text_in
from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import (
    AwsConfig,
    Encoding,
    HttpVersion,
    PollingConfig,
    Properties,
    SubscriptionHttpConfig,
)
from kinesis_publishers.errors import ClosedError, ConfigError
from kinesis_publishers.model import RecordPage, Shard, StartingPosition
from kinesis_publishers.model.native import native
from kinesis_publishers.model.sources import stream_name_of

# Enough for a GetRecords answer of 10 MB over a slow line; an empty answer comes at once.
_READ_TIMEOUT_SECONDS = 60.0
# The operations of this module that accept a StreamName.
_OPERATIONS_BY_NAME = ("GetShardIterator", "PutRecords")
# A smaller record costs Python less CPU in JSON than in CBOR, whose decoder makes a new string of
# each key. Native code always prefers CBOR.
_SMALL_BYTES = 1000
_SAMPLE_RECORDS = 100
_OF_GATEWAYS = (502, 503, 504)
_CODES_OF_UNREADABLE = ("SerializationException", "UnknownOperationException")
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_KINESIS", "AWS_ENDPOINT_URL")
_LOGGER = logging.getLogger(__name__)


class AioDataPlane(DataPlane, RecordWriter):
    """Calls Kinesis with the endpoints and the credentials of a client of aiobotocore.

    Subscriptions have separate connections and never delay another call.

    Use it as ``async with AioDataPlane(config) as data_plane``; leaving closes every connection.

    Args:
        config: limits the number of connections; a shard needs one at a time.
        encoding: the encoding of GetRecords, GetShardIterator and PutRecords.
        clock: measures the silence of a subscription, and learns the service's time.

    Raises:
        ConfigError: the endpoint or this machine does not support ``http``.
    """

    def __init__(
        self,
        config: AwsConfig,
        *,
        http: SubscriptionHttpConfig | None = None,
        encoding: Encoding = Encoding.AUTO,
        clock: Clock | None = None,
    ) -> None:
        self._config = config
        self._http = http or SubscriptionHttpConfig()
        self._encoding = encoding
        self._may_choose = encoding is Encoding.AUTO
        # The ARNs of the streams with small records.
        self._small: set[str] = set()
        # Whether calls name a stream, where the operation allows it, instead of its ARN.
        self._uses_names = False
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._calls: ServiceCalls | None = None
        self._endpoint: Endpoint | None = None
        self._subscriptions: SubscriptionCarrier | None = None
        check_carrier(self._http, config.endpoint_url)

    @classmethod
    def from_properties(cls, properties: Properties, clock: Clock, *, reads: bool) -> Self:
        """Return the data plane that ``properties`` describe; a producer ``reads`` nothing."""
        return cls(
            AwsConfig.from_properties(properties),
            http=SubscriptionHttpConfig.from_properties(properties) if reads else None,
            encoding=PollingConfig.from_properties(properties).encoding,
            clock=clock,
        )

    async def __aenter__(self) -> Self:
        with mapped_errors("CreateClient", "Kinesis"):
            config, session = self._config, build_aio_session(self._config)
            url = config.endpoint_url
            opening = open_aio_client(config, "kinesis", url, session, parameter_validation=False)
            client = await self._stack.enter_async_context(opening)
        try:
            await self._open_calls(session, client)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _open_calls(self, session: AioSession, client: Any) -> None:
        url = str(client.meta.endpoint_url)
        # Again: the environment may have named another endpoint than AWS's own.
        check_carrier(self._http, url)
        self._endpoint = Endpoint.of_session(session, url, self._config.ca_bundle)
        if self._endpoint.ca_bundle is not None:
            # Load them now: at the first call an error would look like one that may pass.
            await asyncio.to_thread(self._endpoint.tls_context)
        carrier = AiohttpCarrier(
            self._endpoint,
            read_timeout_seconds=_READ_TIMEOUT_SECONDS,
            max_connections=self._config.max_connections,
        )
        self._stack.push_async_callback(carrier.close)
        self._calls = ServiceCalls(client, carrier, self._clock)

    async def __aexit__(self, *_: object) -> None:
        self._calls = self._subscriptions = None
        await self._stack.aclose()

    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        place = position_members(position, "ShardIteratorType", "StartingSequenceNumber")
        request = {"ShardId": shard.shard_id, **place}
        answer = await self._call_shard("GetShardIterator", shard, request)
        with complete_answer("GetShardIterator", str(shard)):
            return text_in(answer.parsed(), "ShardIterator")

    async def get_records(self, shard: Shard, shard_iterator: str, limit: int) -> RecordPage:
        request = {"ShardIterator": shard_iterator, "Limit": limit}
        answer = await self._call_shard("GetRecords", shard, request)
        page = decode_get_records(answer.body, is_cbor=answer.is_cbor, is_packed=self.packs_columns)
        if page.payloads and self._may_choose and native() is None:
            sample = page.payloads[:_SAMPLE_RECORDS]
            is_small = sum(map(len, sample)) < _SMALL_BYTES * len(sample)
            (self._small.add if is_small else self._small.discard)(shard.stream_arn)
        return page

    @asynccontextmanager
    async def subscribe_to_shard(
        self, shard: Shard, consumer_arn: str, position: StartingPosition
    ) -> AsyncIterator[ShardSubscription]:
        where, operation = str(shard), subscription.OPERATION
        calls, carrier = self._opened(operation, where), self._subscription_carrier()
        body = orjson.dumps(
            {
                "ConsumerARN": consumer_arn,
                "ShardId": shard.shard_id,
                "StartingPosition": position_members(position, "Type", "SequenceNumber"),
            }
        )
        async with AsyncExitStack() as stack:
            with calls.errors(operation, where):
                call = await calls.sign(operation, consumer_arn, body, where)
                response = await carrier.open(call)
                stack.push_async_callback(response.close)
                calls.observe(response.headers, call.signed_at)
                if response.status != 200:
                    raise await subscription.refusal_in(response, calls, where)
            yield subscription.EventStreamSubscription(
                response.read,
                where=where,
                clock=self._clock,
                is_packed=self.packs_columns,
                request_id=response.headers.get("x-amzn-requestid"),
            )

    def _subscription_carrier(self) -> SubscriptionCarrier:
        # Made now: a process that polls loads no client of subscriptions.
        if self._subscriptions is None:
            assert self._endpoint is not None, "it is open"
            connections = self._config.max_connections
            self._subscriptions = create_carrier(self._endpoint, self._http, connections)
            self._stack.push_async_callback(self._subscriptions.close)
        return self._subscriptions

    async def put_records(self, stream_arn: str, records: PutColumns) -> PutAnswer:
        stream = stream_name_of(stream_arn)
        encode = partial(writing.body_of, records)
        is_small = self._may_choose and writing.are_small(records)
        answer = await self._call(writing.OPERATION, stream_arn, stream, encode, is_small)
        with complete_answer(writing.OPERATION, stream):
            return writing.decode_answer(answer, len(records), stream)

    async def _call_shard(self, operation: str, shard: Shard, request: dict[str, Any]) -> Answer:
        arn = shard.stream_arn

        def encode(is_cbor: bool, naming: dict[str, str]) -> bytes:
            return encoded(request | naming, is_cbor)

        return await self._call(operation, arn, str(shard), encode, arn in self._small)

    def _opened(self, operation: str, where: str) -> ServiceCalls:
        if self._calls is None:
            raise ClosedError(f"{operation} of {where}: the data plane is closed")
        return self._calls

    async def _call(
        self,
        operation: str,
        arn: str,
        where: str,
        encode: Callable[[bool, dict[str, str]], bytes],
        is_small: bool,
    ) -> Answer:
        """Make a call, whose body ``encode`` returns in CBOR or JSON with the stream's member."""
        calls = self._opened(operation, where)

        async def send(is_cbor: bool) -> Answer:
            body = encode(is_cbor, self._naming(operation, arn))
            content_type = cbor.CONTENT_TYPE if is_cbor else JSON
            return await calls.post(await calls.sign(operation, arn, body, where, content_type))

        with calls.errors(operation, where):
            answer = await self._negotiate(send, is_small)
            if answer.status != 200 and self._learns_naming(operation, answer):
                answer = await self._negotiate(send, is_small)
            if answer.status != 200:
                raise calls.refusal(operation, answer)
        return answer

    async def _negotiate(self, send: Callable[[bool], Awaitable[Answer]], is_small: bool) -> Answer:
        """Send a request in an encoding that the service understands; detect it if necessary."""
        encoding = self._encoding
        is_cbor = encoding is not Encoding.JSON and not is_small
        answer = await send(is_cbor)
        if encoding is not Encoding.AUTO or not is_cbor:
            return answer
        if not _is_understood(answer):
            answer = await send(False)
        # Another call may have detected it meanwhile.
        if self._encoding is encoding and (answer.is_cbor or answer.status == 200):
            self._encoding = Encoding.CBOR if answer.is_cbor else Encoding.JSON
            if not answer.is_cbor:
                _LOGGER.info("The service does not support CBOR. Calls use JSON from now on.")
        return answer

    def _naming(self, operation: str, arn: str) -> dict[str, str]:
        if self._uses_names and operation in _OPERATIONS_BY_NAME:
            return {"StreamName": stream_name_of(arn)}
        return {"StreamARN": arn}

    def _learns_naming(self, operation: str, refusal: Answer) -> bool:
        if self._uses_names or operation not in _OPERATIONS_BY_NAME:
            return False
        self._uses_names = asks_for_name(error_in(refusal))
        return self._uses_names


def _is_understood(answer: Answer) -> bool:
    """Return whether an answer shows that the service understands CBOR.

    Such a service also refuses calls in CBOR. Errors of gateways show nothing.
    """
    if answer.status == 200 or answer.status in _OF_GATEWAYS:
        return True
    return answer.is_cbor and error_in(answer)["Error"]["Code"] not in _CODES_OF_UNREADABLE


def check_carrier(
    http: SubscriptionHttpConfig, url: str | None, *, subscribes: bool = False
) -> None:
    """Check that the configured subscriptions to an endpoint are possible; do no I/O.

    HTTP/2 needs a package, which may be missing in a process that never ``subscribes``.

    Raises:
        InvalidOptionError: HTTP/2 is required of an endpoint without TLS.
        ConfigError: the package is not installed; the message says what to install.
    """
    if url is None and any(map(os.environ.get, _ENDPOINT_VARIABLES)):
        return  # It is checked when the data plane has found it.
    # AWS's own endpoints are https.
    url = url or "https://kinesis"
    if not _speaks_http_1(http, url):
        if subscribes and find_spec("h2") is None:
            raise ConfigError(
                "enhanced fan-out over HTTP/2 needs h2: pip install 'kinesis-publishers[efo]'"
            )
    elif http.version is HttpVersion.HTTP_2:
        raise http_2_not_offered(url)


def create_carrier(
    endpoint: Endpoint, http: SubscriptionHttpConfig, max_connections: int
) -> SubscriptionCarrier:
    """Return the carrier for subscriptions that :func:`check_carrier` allows, not connected yet."""
    if _speaks_http_1(http, endpoint.url):
        return AiohttpCarrier(
            endpoint,
            read_timeout_seconds=http.read_timeout_seconds,
            max_connections=max_connections,
        )
    check_carrier(http, endpoint.url, subscribes=True)
    # Imported here: only what is chosen must be installed.
    from kinesis_publishers.aws.carriers.http2_carrier import Http2Carrier

    return Http2Carrier(endpoint, http, max_connections)


def _speaks_http_1(http: SubscriptionHttpConfig, url: str) -> bool:
    return http.version is HttpVersion.HTTP_1_1 or not url.lower().startswith("https:")
