"""SubscribeToShard, as far as the call itself: who may subscribe, and from where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.testing.local_kinesis.errors import (
    ApiError,
    limit_exceeded,
    resource_in_use,
)
from kinesis_publishers.testing.local_kinesis.faults import Scope
from kinesis_publishers.testing.local_kinesis.operations.consumers import find_consumer
from kinesis_publishers.testing.local_kinesis.operations.positions import (
    SUBSCRIPTION_MEMBERS,
    position_in,
)
from kinesis_publishers.testing.local_kinesis.requests import missing
from kinesis_publishers.testing.local_kinesis.subscriptions import Subscription

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.consumers import Consumer
    from kinesis_publishers.testing.local_kinesis.operations.types import Members, Operation
    from kinesis_publishers.testing.local_kinesis.requests import Request
    from kinesis_publishers.testing.local_kinesis.shard import Shard
    from kinesis_publishers.testing.local_kinesis.state import ServiceState

__all__ = ["OPERATIONS"]


def subscribe_to_shard(state: ServiceState, request: Request) -> Members:
    arn, shard_id = request.required_text("ConsumerARN"), request.required_text("ShardId")
    starting_position = request.section("StartingPosition")
    if starting_position is None:
        raise missing("StartingPosition")
    stream, consumer = find_consumer(state, arn)
    state.account.find_readable(stream.name)
    shard = stream.shard(shard_id, state.now_ms())
    _check_consumer(state, consumer)
    _take_call(state, consumer, shard)
    position = position_in(state, stream, shard, starting_position, SUBSCRIPTION_MEMBERS)
    if request.flag("DryRun"):
        raise ApiError("DryRunOperationException", "The request would have succeeded.")
    fault = state.faults.take_inside(Scope("SubscribeToShard", stream.name, shard_id))
    subscription = Subscription(stream, shard, consumer, position, state.monotonic(), fault)
    is_silent = state.behaviour.takeover == "close"
    state.subscriptions.open(subscription, None if is_silent else _taken_over(consumer, shard))
    return subscription


def _check_consumer(state: ServiceState, consumer: Consumer) -> None:
    status = consumer.status(state.now_ms())
    if status != "ACTIVE":
        raise resource_in_use(f"Consumer {consumer.arn} is not ACTIVE, instead in state {status}.")


def _take_call(state: ServiceState, consumer: Consumer, shard: Shard) -> None:
    """Count a call.

    Raises:
        ApiError: ResourceInUseException within 5 s of a successful call, otherwise
            LimitExceededException above the rate.
    """
    now, limits = state.monotonic(), state.limits
    age = state.subscriptions.seconds_since_opening(consumer, shard, now)
    # Before the rate: clients know this answer and wait it out, however often they ask.
    if limits.resubscribe_seconds is not None and age < limits.resubscribe_seconds:
        raise resource_in_use(
            f"Another active subscription exists for this consumer: {consumer.arn}, shard "
            f"{shard.shard_id}."
        )
    key = ("SubscribeToShard", consumer.arn, shard.shard_id)
    if not state.rates.take_call(key, limits.subscribe_calls_per_second, now):
        raise limit_exceeded(
            f"Rate exceeded for consumer {consumer.arn} and shard {shard.shard_id}."
        )


def _taken_over(consumer: Consumer, shard: Shard) -> ApiError:
    return resource_in_use(
        f"Another subscription of consumer {consumer.arn} to shard {shard.shard_id} has taken over."
    )


OPERATIONS: dict[str, Operation] = {"SubscribeToShard": subscribe_to_shard}
