"""The call of SubscribeToShard: who may subscribe, from where, how often, and who gives way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers.testing.local_kinesis import Behaviour, Fault, Limits
from kinesis_publishers.testing.local_kinesis.answers import ApiError
from tests.examples import examples
from tests.unit.testing.subscribing_harness import HALF, SHARD, STREAM, FanOut

IN_USE = "ResourceInUseException: Another active subscription"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"ConsumerARN": None}, "ValidationException"),
        ({"ConsumerARN": "c"}, "ValidationException"),
        ({"ShardId": None}, "ValidationException"),
        ({"StartingPosition": None}, "ValidationException"),
        ({"StartingPosition": "LATEST"}, "SerializationException"),
        ({"StartingPosition": {}}, "ValidationException"),
        ({"StartingPosition": {"Type": "NOW"}}, "ValidationException"),
        ({"StartingPosition": {"Type": "AT_TIMESTAMP"}}, "ValidationException"),
        ({"StartingPosition": {"Type": "AT_SEQUENCE_NUMBER"}}, "ValidationException"),
        (
            {"StartingPosition": {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": "12345"}},
            "InvalidArgumentException: SequenceNumber 12345 used in SubscribeToShard",
        ),
        ({"ShardId": SHARD(7)}, f"ResourceNotFoundException: Shard {SHARD(7)}"),
        ({"DryRun": True}, "DryRunOperationException"),
    ],
)
async def test_a_malformed_call_opens_nothing(
    fan_out: Any, fields: dict[str, Any], code: str
) -> None:
    valid = {
        "ConsumerARN": fan_out.consumer_arn,
        "ShardId": SHARD(0),
        "StartingPosition": {"Type": "LATEST"},
    }
    with pytest.raises(ApiError, match=f"^{code}"):
        await fan_out.call("SubscribeToShard", **(valid | fields))
    assert fan_out.open_count() == 0


async def test_a_consumer_that_is_not_active_cannot_subscribe(make_fan_out: Any) -> None:
    fan_out = make_fan_out(
        behaviour=Behaviour(consumer_creating_seconds=10, consumer_deleting_seconds=10)
    )
    with pytest.raises(ApiError, match=r"ResourceInUseException.*CREATING"):
        await fan_out.open_body()
    await fan_out.clock.advance(10)
    await fan_out.subscribe()
    await fan_out.call("DeregisterStreamConsumer", ConsumerARN=fan_out.consumer_arn)
    with pytest.raises(ApiError, match=r"ResourceInUseException.*DELETING"):
        await fan_out.open_body()
    await fan_out.clock.advance(10)
    with pytest.raises(ApiError, match="ResourceNotFoundException: Consumer"):
        await fan_out.open_body()


async def test_the_arn_of_an_earlier_registration_is_unknown(fan_out: Any) -> None:
    await fan_out.call("DeregisterStreamConsumer", ConsumerARN=fan_out.consumer_arn)
    again = fan_out.register("c")
    with pytest.raises(ApiError, match="ResourceNotFoundException: Consumer"):
        await fan_out.open_body()
    assert (await fan_out.subscribe(arn=again)).initial_responses == 1


@pytest.mark.parametrize("is_over", [False, True])
async def test_within_five_seconds_of_a_successful_call_another_is_refused(
    fan_out: Any, is_over: bool
) -> None:
    reader = await fan_out.subscribe()
    if is_over:
        await reader.close()
    for _ in range(20):
        with pytest.raises(ApiError, match=IN_USE):
            await fan_out.open_body()
    await fan_out.clock.advance(4.9)
    with pytest.raises(ApiError, match=IN_USE):
        await fan_out.open_body()
    await fan_out.clock.advance(0.1)
    assert (await fan_out.subscribe()).initial_responses == 1


async def test_shards_and_consumers_are_subscribed_each_for_itself(fan_out: Any) -> None:
    await fan_out.call(
        "UpdateShardCount",
        StreamName=STREAM,
        TargetShardCount=2,
        ScalingType="UNIFORM_SCALING",
    )
    arns = [fan_out.consumer_arn, fan_out.register("d")]
    for arn in arns:
        for shard in (1, 2):
            await fan_out.subscribe(arn=arn, shard=shard)
    find = fan_out.service.state.subscriptions.find
    assert len(find()) == 4
    assert len(find(stream=STREAM, shard_id=SHARD(1))) == 2
    assert len(find(consumer="d")) == 2
    assert find(stream="others") == []


@pytest.mark.parametrize(
    ("takeover", "exceptions"), [("close", []), ("exception", ["ResourceInUseException"])]
)
async def test_after_five_seconds_a_second_subscription_takes_over(
    make_fan_out: Any, takeover: Any, exceptions: list[str]
) -> None:
    fan_out = make_fan_out(behaviour=Behaviour(takeover=takeover))
    older = await fan_out.subscribe()
    await fan_out.clock.advance(5)
    newer = await fan_out.subscribe()
    assert older.ending == "clean"
    assert [code for code, _ in older.exceptions] == exceptions
    fan_out.put("a")
    await fan_out.clock.settle()
    assert (older.texts, newer.texts) == ([], ["a"])
    assert fan_out.open_count() == 1


async def test_the_end_of_a_subscription_that_was_taken_over_leaves_the_newer_one(
    fan_out: Any,
) -> None:
    older = await fan_out.open_body()
    await fan_out.clock.advance(5)
    await fan_out.subscribe()
    await older.aclose()
    assert fan_out.open_count() == 1


async def test_a_client_that_leaves_before_the_first_byte_has_no_subscription(
    fan_out: Any,
) -> None:
    body = await fan_out.open_body()
    assert fan_out.open_count() == 1
    await body.aclose()
    assert fan_out.open_count() == 0


async def test_a_client_that_leaves_while_it_waits_is_no_longer_told_of_records(
    fan_out: Any,
) -> None:
    (shard,) = fan_out.state.find(STREAM).shards.values()
    reader = await fan_out.subscribe()
    await fan_out.clock.advance(1)
    assert len(shard.watchers) == 1
    await reader.close()
    assert shard.watchers == set()


async def test_one_call_a_second_is_taken_where_none_succeeds(fan_out: Any) -> None:
    def call() -> Any:
        return fan_out.open_body("AT_SEQUENCE_NUMBER", SequenceNumber="1")

    with pytest.raises(ApiError, match="InvalidArgumentException"):
        await call()
    with pytest.raises(ApiError, match="LimitExceededException"):
        await call()
    await fan_out.clock.advance(1)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        await call()


async def test_switched_off_no_limit_keeps_a_consumer_from_subscribing_again(
    make_fan_out: Any,
) -> None:
    fan_out = make_fan_out(Limits.off())
    readers = [await fan_out.subscribe() for _ in range(20)]
    assert [reader.ending for reader in readers] == ["clean"] * 19 + [None]


async def test_calls_are_logged_with_their_shard_and_their_error(fan_out: Any) -> None:
    await fan_out.subscribe()
    with pytest.raises(ApiError):
        await fan_out.open_body()
    calls = fan_out.service.calls.find("SubscribeToShard", STREAM, SHARD(0))
    assert [call.code for call in calls] == ["", "ResourceInUseException"]
    await fan_out.call("DescribeStreamConsumer", ConsumerARN=fan_out.consumer_arn)
    (call,) = fan_out.service.calls.find("DescribeStreamConsumer", STREAM)
    assert call.shard_id is None


EVENT_KINDS = ["end", "reset", "reset_mid_event", "truncated_frame", "bad_crc", "exception"]

puts = st.tuples(st.just("put"), st.integers(1, 12))
waits = st.tuples(st.just("wait"), st.floats(0, 20))
restarts = st.tuples(st.just("restart"), st.none())
faults = st.tuples(st.just("fault"), st.tuples(st.sampled_from(EVENT_KINDS), st.integers(0, 3)))
steps = st.lists(st.one_of(puts, waits, restarts, faults), max_size=25)


class RestartingReader:
    """Keeps one subscription going: from the last continuation whenever it has ended."""

    def __init__(self, fan_out: FanOut, start: dict[str, Any]) -> None:
        self.fan_out = fan_out
        self.texts: list[str] = []
        self._position = start
        self._reader: Any = None

    async def read(self) -> None:
        """Subscribe, unless it is subscribed, and take what has come."""
        if self._reader is None:
            position = dict(self._position)
            self._reader = await self.fan_out.subscribe(position.pop("Type"), **position)
        await self.fan_out.clock.settle()

    async def leave(self) -> None:
        """Close the subscription and remember where the next one begins."""
        if self._reader is None:
            return
        await self._reader.close()
        self.texts += self._reader.texts
        if self._reader.events:
            number = self._reader.continuation
            self._position = {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": number}
        self._reader = None

    @property
    def has_failed(self) -> bool:
        reader = self._reader
        return reader is not None and (reader.ending is not None or reader.checksum_errors > 0)


async def run(script: list[tuple[str, Any]], behaviour: Behaviour, start: str, most: int) -> None:
    limits = Limits(
        event_max_records=most,
        subscription_seconds=60,
        resubscribe_seconds=None,
        subscribe_calls_per_second=None,
    )
    fan_out = FanOut(limits, behaviour)
    position: dict[str, Any] = {"Type": start}
    if start == "AT_TIMESTAMP":
        position["Timestamp"] = fan_out.clock.now().timestamp()
    reader = RestartingReader(fan_out, position)
    put: list[str] = []
    for kind, value in script:
        if kind == "put":
            new = [str(len(put) + number) for number in range(value)]
            fan_out.put(*new)
            put += new
        elif kind == "wait":
            await fan_out.clock.advance(value)
        elif kind == "restart":
            await reader.leave()
        else:
            fault, after = value
            fan_out.service.state.faults.add(
                Fault("SubscribeToShard", fault, after_events=after, code="InternalFailure")
            )
        if reader.has_failed:
            await reader.leave()
        await reader.read()
    fan_out.service.state.faults.clear()
    await reader.leave()
    await fan_out.call(
        "SplitShard", StreamName=STREAM, ShardToSplit=SHARD(0), NewStartingHashKey=HALF
    )
    await reader.read()
    await reader.leave()
    assert reader.texts == put
    assert fan_out.open_count() == 0


@settings(max_examples=examples(80))
@given(
    script=steps,
    start=st.sampled_from(["TRIM_HORIZON", "AT_TIMESTAMP"]),
    most=st.integers(1, 5),
    late=st.booleans(),
)
def test_each_record_comes_once_and_in_order(
    script: list[tuple[str, Any]], start: str, most: int, late: bool
) -> None:
    asyncio.run(run(script, Behaviour(late_shard_end=late), start, most))
