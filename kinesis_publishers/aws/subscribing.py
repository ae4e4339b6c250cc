"""Makes SubscribeToShard calls: aiobotocore signs them and reads refusals, a carrier sends them.

aiobotocore would send them over HTTP/1.1 and the connection pool of the other calls, and parse the
events itself, at a fifth of the speed. Its hook ``before-send`` is where something else may answer
a signed request, and ``before-parse`` where the body is taken away from its parser.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from aiobotocore.awsrequest import AioAWSResponse

from kinesis_publishers.aws.carriers.carrier import SignedCall, SubscriptionResponse
from kinesis_publishers.aws.errors import mapped_errors
from kinesis_publishers.aws.event_stream import encode_frame
from kinesis_publishers.aws.subscription import OPERATION, EventStreamSubscription
from kinesis_publishers.errors import MalformedResponseError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers.aws.carriers.carrier import SubscriptionCarrier
    from kinesis_publishers.clock import Clock
    from kinesis_publishers.model import Shard, StartingPosition

__all__ = ["ShardSubscriber"]

_RESPONSE = "SubscriptionResponse"
_MAX_REFUSAL_BYTES = 1024 * 1024
_INITIAL_RESPONSE = encode_frame(
    {":message-type": "event", ":event-type": "initial-response"}, b"{}"
)


# The call that a task is making, for its hooks: the shard, and what closes the response.
_OPENING: ContextVar[tuple[str, AsyncExitStack]] = ContextVar("opening")


class ShardSubscriber:
    """Subscribes through one client of aiobotocore, whose hooks for this operation it installs.

    The caller closes the carrier.
    """

    def __init__(self, client: Any, carrier: SubscriptionCarrier, clock: Clock) -> None:
        self._client = client
        self._carrier = carrier
        self._clock = clock
        hooks = client.meta.events
        hooks.register(f"before-send.kinesis.{OPERATION}", self._send)
        hooks.register(f"before-parse.kinesis.{OPERATION}", _divert_response)

    @asynccontextmanager
    async def subscribe(
        self, shard: Shard, consumer_arn: str, position: StartingPosition
    ) -> AsyncIterator[EventStreamSubscription]:
        """Make the call; see ``DataPlane.subscribe_to_shard``."""
        async with AsyncExitStack() as stack:
            response = await self._call(shard, consumer_arn, position, stack)
            yield EventStreamSubscription(
                response,
                where=str(shard),
                clock=self._clock,
                request_id=response.headers.get("x-amzn-requestid"),
            )

    async def _call(
        self, shard: Shard, consumer_arn: str, position: StartingPosition, stack: AsyncExitStack
    ) -> SubscriptionResponse:
        where = str(shard)
        token = _OPENING.set((where, stack))
        try:
            with mapped_errors(OPERATION, where, client=self._client):
                answer = await self._client.subscribe_to_shard(
                    ConsumerARN=consumer_arn,
                    ShardId=shard.shard_id,
                    StartingPosition=_starting_position(position),
                )
        finally:
            _OPENING.reset(token)
        response: SubscriptionResponse = answer[_RESPONSE]
        return response

    async def _send(self, request: Any, **_: Any) -> AioAWSResponse:
        where, stack = _OPENING.get()
        response = await self._carrier.open(_signed_call(request, where))
        stack.push_async_callback(response.close)
        if response.status == 200:
            return AioAWSResponse(request.url, 200, response.headers, response)
        body = await _read_refusal(response)
        if response.status < 300:
            # botocore would take it for the beginning of a subscription.
            raise _not_a_subscription(response, where)
        return AioAWSResponse(request.url, response.status, response.headers, _Body(body))


class _Body:
    """A complete body, in the two forms that aiobotocore reads."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self) -> bytes:
        return self._data

    @property
    def content(self) -> _Body:
        return self

    async def iter_chunks(self) -> AsyncIterator[tuple[bytes, bool]]:
        yield self._data, True


def _starting_position(position: StartingPosition) -> dict[str, Any]:
    request: dict[str, Any] = {"Type": position.type.value}
    if position.sequence_number is not None:
        request["SequenceNumber"] = position.sequence_number.sequence_number
    if position.timestamp is not None:
        request["Timestamp"] = position.timestamp
    return request


def _signed_call(request: Any, where: str) -> SignedCall:
    headers = {
        name: value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
    }
    # botocore's other sessions send it too: clients would add one that allows compression.
    headers["Accept-Encoding"] = "identity"
    return SignedCall(url=request.url, headers=headers, body=request.body, where=where)


async def _read_refusal(response: SubscriptionResponse) -> bytes:
    body = b""
    while (chunk := await response.read()) and len(body) < _MAX_REFUSAL_BYTES:
        body += chunk
    return body


def _not_a_subscription(response: SubscriptionResponse, where: str) -> MalformedResponseError:
    return MalformedResponseError(
        f"{OPERATION} of {where}: the answer has the status {response.status}, which Kinesis does "
        "not give. Check the endpoint and the proxy.",
        operation=OPERATION,
        code="MalformedResponse",
        request_id=response.headers.get("x-amzn-requestid"),
    )


def _divert_response(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    if response_dict["status_code"] == 200:
        customized_response_dict[_RESPONSE] = response_dict["body"]
        # The parser wants to read the first frame itself.
        response_dict["body"] = _Body(_INITIAL_RESPONSE)
