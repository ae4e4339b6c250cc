"""Registering, describing, listing and deregistering consumers, and SubscribeToShard."""

from __future__ import annotations

from kinesis_publishers.testing.local_kinesis.answers import (
    invalid_argument,
    limit_exceeded,
    resource_in_use,
)
from kinesis_publishers.testing.local_kinesis.faults import Scope
from kinesis_publishers.testing.local_kinesis.operations.reading import (
    SUBSCRIPTION_MEMBERS,
    position_in,
)
from kinesis_publishers.testing.local_kinesis.requests import ConsumerListToken, Request
from kinesis_publishers.testing.local_kinesis.shard import Shard
from kinesis_publishers.testing.local_kinesis.state import (
    Members,
    Operation,
    ServiceState,
    consumer_not_found,
)
from kinesis_publishers.testing.local_kinesis.stream import Consumer, ConsumerArn, Stream
from kinesis_publishers.testing.local_kinesis.subscriptions import Subscription

# A larger MaxResults is accepted and not honoured (API reference).
_MOST_PER_PAGE = 100


def register_stream_consumer(state: ServiceState, request: Request) -> Members:
    limits = state.limits
    state.take_control_call("RegisterStreamConsumer", limits.register_consumer_calls_per_second)
    stream = _named_stream(state, request)
    name = request.name("ConsumerName")
    tags = request.tags()
    # A name that is taken is refused as such even when nothing more fits.
    if stream.consumer(name, state.now_ms()) is None:
        _check_room(state, stream)
    return {"Consumer": _shape(state, state.register(stream, name, tags))}


def describe_stream_consumer(state: ServiceState, request: Request) -> Members:
    stream, consumer = _consumer_in(state, request)
    per_second = state.limits.describe_consumer_calls_per_second
    state.take_control_call("DescribeStreamConsumer", per_second, stream.name)
    return {"ConsumerDescription": _shape(state, consumer) | {"StreamARN": stream.arn}}


def list_stream_consumers(state: ServiceState, request: Request) -> Members:
    stream = _named_stream(state, request)
    per_second = state.limits.list_consumers_calls_per_second
    state.take_control_call("ListStreamConsumers", per_second, stream.name)
    after = _page_start(state, stream, request)
    limit = request.page_size("MaxResults", 10_000, _MOST_PER_PAGE) or _MOST_PER_PAGE
    now_ms = state.now_ms()
    consumers = [one for one in stream.present_consumers(now_ms) if one.name > after]
    page = consumers[:limit]
    answer: dict[str, object] = {"Consumers": [_shape(state, one) for one in page]}
    if len(page) < len(consumers):
        answer["NextToken"] = ConsumerListToken(
            stream.arn, stream.created_ms, page[-1].name, now_ms
        ).encode()
    return answer


def deregister_stream_consumer(state: ServiceState, request: Request) -> None:
    stream, consumer = _consumer_in(state, request)
    per_second = state.limits.deregister_consumer_calls_per_second
    state.take_control_call("DeregisterStreamConsumer", per_second, stream.name)
    state.deregister(consumer)


def _named_stream(state: ServiceState, request: Request) -> Stream:
    request.required_text("StreamARN")
    return state.find_active(request, "UPDATING")


def _check_room(state: ServiceState, stream: Stream) -> None:
    limits, now_ms = state.limits, state.now_ms()
    is_advantage = stream.mode == "ON_DEMAND" and state.commitment.is_on(now_ms)
    most = limits.consumers_per_advantage_stream if is_advantage else limits.consumers_per_stream
    if most is not None and len(stream.present_consumers(now_ms)) >= most:
        raise limit_exceeded(
            f"Stream {stream.name} under account {stream.account_id} has its {most} registered "
            "consumers already."
        )
    creating = [
        consumer
        for one in state.all_streams()
        for consumer in one.present_consumers(now_ms)
        if consumer.status(now_ms) == "CREATING"
    ]
    if limits.creating_consumers is not None and len(creating) >= limits.creating_consumers:
        raise limit_exceeded(
            f"{limits.creating_consumers} consumers under account {stream.account_id} are in state "
            "CREATING already."
        )


def _consumer_in(state: ServiceState, request: Request) -> tuple[Stream, Consumer]:
    """Return the consumer that a request means by its ARN, or by its stream and name."""
    arn, name = request.text("ConsumerARN"), request.text("ConsumerName")
    if arn is None:
        if name is None or not request.has("StreamARN"):
            raise invalid_argument(
                "Either ConsumerARN, or both StreamARN and ConsumerName must be provided."
            )
        stream = state.find(request)
        consumer = stream.consumer(name, state.now_ms())
        if consumer is None:
            raise consumer_not_found(f"{name} of stream {stream.name}")
        return stream, consumer
    parsed = ConsumerArn.parse(arn)
    if name not in (None, parsed.consumer_name) or request.text("StreamARN") not in (
        None,
        parsed.stream_arn,
    ):
        raise invalid_argument("StreamARN and ConsumerName contradict the ConsumerARN.")
    return state.find_consumer(arn)


def _page_start(state: ServiceState, stream: Stream, request: Request) -> str:
    """Return the name after which a page begins."""
    created_ms = request.instant_ms("StreamCreationTimestamp")
    text = request.text("NextToken")
    if text is None:
        state.check_creation(stream, created_ms)
        return ""
    if created_ms is not None:
        raise invalid_argument("NextToken and StreamCreationTimestamp cannot be provided together.")
    token = ConsumerListToken.decode(text)
    if (token.stream_arn, token.stream_created_ms) != (stream.arn, stream.created_ms):
        raise invalid_argument("The NextToken belongs to another stream.")
    state.check_token(token.created_ms, state.limits.list_consumers_token_lifetime_seconds)
    return token.after_name


def _shape(state: ServiceState, consumer: Consumer) -> dict[str, object]:
    return {
        "ConsumerName": consumer.name,
        "ConsumerARN": consumer.arn,
        "ConsumerStatus": consumer.status(state.now_ms()),
        "ConsumerCreationTimestamp": consumer.created_ms / 1000,
    }


def subscribe_to_shard(state: ServiceState, request: Request) -> Members:
    arn, shard_id = request.required_text("ConsumerARN"), request.required_text("ShardId")
    starting_position = request.required_section("StartingPosition")
    stream, consumer = state.find_consumer(arn)
    state.find_readable(stream.name)
    shard = stream.shard(shard_id, state.now_ms())
    status = consumer.status(state.now_ms())
    if status != "ACTIVE":
        raise resource_in_use(f"Consumer {arn} is not ACTIVE, instead in state {status}.")
    _take_call(state, consumer, shard)
    position = position_in(state, stream, shard, starting_position, SUBSCRIPTION_MEMBERS)
    request.end_dry_run()
    fault = state.faults.take_inside(Scope("SubscribeToShard", stream.name, shard_id))
    subscription = Subscription(stream, shard, consumer, position, state.clock.monotonic(), fault)
    taken_over = resource_in_use(
        f"Another subscription of consumer {arn} to shard {shard_id} has taken over."
    )
    is_silent = state.behaviour.takeover == "close"
    state.subscriptions.open(subscription, None if is_silent else taken_over)
    return subscription


def _take_call(state: ServiceState, consumer: Consumer, shard: Shard) -> None:
    """Count a call, or refuse it: too soon after a successful one, or above the rate."""
    now, limits = state.clock.monotonic(), state.limits
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


OPERATIONS: dict[str, Operation] = {
    "RegisterStreamConsumer": register_stream_consumer,
    "DescribeStreamConsumer": describe_stream_consumer,
    "ListStreamConsumers": list_stream_consumers,
    "DeregisterStreamConsumer": deregister_stream_consumer,
    "SubscribeToShard": subscribe_to_shard,
}
