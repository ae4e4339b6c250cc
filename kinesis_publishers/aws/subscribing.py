"""Makes SubscribeToShard calls; a carrier sends each over a separate connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import orjson

from kinesis_publishers.aws.calls import Answer, ServiceCalls, millis_of
from kinesis_publishers.aws.carriers.carrier import SubscriptionCarrier, SubscriptionResponse
from kinesis_publishers.aws.subscription import OPERATION, EventStreamSubscription
from kinesis_publishers.clock import Clock
from kinesis_publishers.errors import MalformedResponseError
from kinesis_publishers.model import Shard, StartingPosition

_MAX_REFUSAL_BYTES = 1024 * 1024


class ShardSubscriber:
    """Opens subscriptions; the caller closes the carrier."""

    def __init__(self, calls: ServiceCalls, carrier: SubscriptionCarrier, clock: Clock) -> None:
        self._calls = calls
        self._carrier = carrier
        self._clock = clock

    @asynccontextmanager
    async def subscribe(
        self, shard: Shard, consumer_arn: str, position: StartingPosition
    ) -> AsyncIterator[EventStreamSubscription]:
        """Open a subscription; see ``DataPlane.subscribe_to_shard``."""
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
        body = orjson.dumps(
            {
                "ConsumerARN": consumer_arn,
                "ShardId": shard.shard_id,
                "StartingPosition": position_members(position, "Type", "SequenceNumber"),
            }
        )
        with self._calls.errors(OPERATION, where):
            call = await self._calls.sign(OPERATION, consumer_arn, body, where)
            response = await self._carrier.open(call)
            stack.push_async_callback(response.close)
            self._calls.observe(response.headers, call.signed_at)
            if response.status == 200:
                return response
            answer = Answer(response.status, response.headers, await _read_refusal(response))
            if response.status < 300:
                raise _not_a_subscription(response, where)
            raise self._calls.refusal(OPERATION, answer)


def position_members(position: StartingPosition, kind: str, number: str) -> dict[str, Any]:
    """Return a position as members of a call in JSON, with these names."""
    members: dict[str, Any] = {kind: position.type.value}
    if position.sequence_number is not None:
        members[number] = position.sequence_number.sequence_number
    if position.timestamp is not None:
        members["Timestamp"] = millis_of(position.timestamp) / 1000
    return members


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
