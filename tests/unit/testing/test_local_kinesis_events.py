"""What a subscription delivers, when, how it continues after a restart, and how it ends."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kinesis_publishers.testing.local_kinesis import Behaviour, Limits
from tests.unit.testing.subscribing_harness import HALF, SHARD, STREAM

MIB = 1024 * 1024


async def split(fan_out: Any) -> None:
    await fan_out.call(
        "SplitShard", StreamName=STREAM, ShardToSplit=SHARD(0), NewStartingHashKey=HALF
    )


async def test_a_record_is_delivered_at_once(fan_out: Any) -> None:
    reader = await fan_out.subscribe()
    (number,) = fan_out.put("a")
    await fan_out.clock.settle()
    (event,) = reader.events
    assert event["ContinuationSequenceNumber"] == number
    assert event["MillisBehindLatest"] == 0
    assert reader.texts == ["a"]


async def test_no_record_is_missed_while_threads_store_them(make_fan_out: Any) -> None:
    """Time stands still: a subscription that no record wakes never looks again."""
    fan_out = make_fan_out(Limits.off())
    reader = await fan_out.subscribe()

    def put(thread: int) -> None:
        for number in range(200):
            with fan_out.service.lock:
                fan_out.put(f"{thread} {number}")

    threads = [threading.Thread(target=put, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(60):
        await reader.wait_for_texts(800)
    for thread in threads:
        thread.join()
    assert len(set(reader.texts)) == 800


async def test_an_idle_shard_gives_an_event_every_five_seconds(fan_out: Any) -> None:
    reader = await fan_out.subscribe()
    await fan_out.clock.advance(4.9)
    assert reader.events == []
    await fan_out.clock.advance(0.1)
    assert len(reader.events) == 1
    await fan_out.clock.advance(12)
    assert len(reader.events) == 3
    assert all(event["Records"] == [] for event in reader.events)
    assert all(event["MillisBehindLatest"] == 0 for event in reader.events)
    numbers = [int(event["ContinuationSequenceNumber"]) for event in reader.events]
    assert numbers == sorted(set(numbers))


async def test_an_event_with_records_puts_off_the_next_one_without(fan_out: Any) -> None:
    reader = await fan_out.subscribe()
    await fan_out.clock.advance(3)
    fan_out.put("a")
    await fan_out.clock.advance(4.9)
    assert len(reader.events) == 1
    await fan_out.clock.advance(0.1)
    assert len(reader.events) == 2


@pytest.mark.parametrize("kind", ["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"])
@pytest.mark.parametrize("has_records", [False, True])
async def test_nothing_is_missed_after_the_continuation_of_an_idle_shard(
    fan_out: Any, kind: str, has_records: bool
) -> None:
    if has_records:
        fan_out.put("old")
        await fan_out.clock.advance(1)
    position = {"Timestamp": fan_out.clock.now().timestamp()} if kind == "AT_TIMESTAMP" else {}
    reader = await fan_out.subscribe(kind, **position)
    await fan_out.clock.advance(6)
    await reader.close()
    fan_out.put("a")
    again = await fan_out.after(reader.continuation)
    assert again.texts == ["a"]


async def test_the_continuation_of_an_idle_shard_outlives_the_records_before_it(
    fan_out: Any,
) -> None:
    """The number of the last record would lead nowhere once that record is trimmed."""
    fan_out.put("old")
    reader = await fan_out.subscribe()
    await fan_out.clock.advance(6)
    await reader.close()
    fan_out.state.trim(STREAM)
    fan_out.put("a")
    assert (await fan_out.after(reader.continuation)).texts == ["a"]


async def test_a_continuation_is_a_position_for_an_iterator_too(fan_out: Any) -> None:
    fan_out.put("old")
    reader = await fan_out.subscribe()
    await fan_out.clock.advance(6)
    fan_out.put("a")
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        answer = await fan_out.call(
            "GetShardIterator",
            StreamName=STREAM,
            ShardId=SHARD(0),
            ShardIteratorType=kind,
            StartingSequenceNumber=reader.events[1]["ContinuationSequenceNumber"],
        )
        answer = await fan_out.call("GetRecords", ShardIterator=answer["ShardIterator"])
        assert len(answer["Records"]) == 1


async def test_the_end_of_a_shard_is_told_at_once(fan_out: Any) -> None:
    reader = await fan_out.subscribe()
    await split(fan_out)
    await fan_out.clock.settle()
    assert (reader.continuation, reader.ending) == (None, "clean")


async def test_the_end_of_a_shard_may_come_in_an_event_of_its_own(make_fan_out: Any) -> None:
    fan_out = make_fan_out(behaviour=Behaviour(late_shard_end=True))
    (number,) = fan_out.put("a")
    await split(fan_out)
    reader = await fan_out.subscribe()
    records, end = reader.events
    assert (records["ContinuationSequenceNumber"], "ChildShards" in records) == (number, False)
    assert (end["Records"], len(end["ChildShards"])) == ([], 2)


async def test_a_reshard_that_takes_its_time_ends_the_subscription_when_it_is_done(
    make_fan_out: Any,
) -> None:
    fan_out = make_fan_out(behaviour=Behaviour(updating_seconds=2))
    reader = await fan_out.subscribe()
    await split(fan_out)
    await fan_out.clock.advance(1.9)
    assert reader.ending is None
    await fan_out.clock.advance(0.1)
    assert (reader.continuation, reader.ending) == (None, "clean")


async def test_a_subscription_lasts_five_minutes(fan_out: Any) -> None:
    reader = await fan_out.subscribe()
    await fan_out.clock.advance(299.9)
    assert reader.ending is None
    await fan_out.clock.advance(0.1)
    assert (reader.ending, reader.exceptions) == ("clean", [])
    assert reader.continuation is not None
    assert fan_out.open_count() == 0


async def test_a_subscription_may_last_for_ever(make_fan_out: Any) -> None:
    fan_out = make_fan_out(Limits(subscription_seconds=None))
    reader = await fan_out.subscribe()
    await fan_out.clock.advance(1000)
    assert reader.ending is None


async def test_a_consumer_that_is_deregistered_loses_its_subscriptions(fan_out: Any) -> None:
    other = await fan_out.subscribe(arn=fan_out.register("other"))
    reader = await fan_out.subscribe()
    await fan_out.call("DeregisterStreamConsumer", ConsumerARN=fan_out.consumer_arn)
    await fan_out.clock.settle()
    ((code, message),) = reader.exceptions
    assert code == "ResourceNotFoundException"
    assert fan_out.consumer_arn in message
    assert (reader.ending, other.ending) == ("clean", None)


async def test_a_stream_that_is_deleted_loses_its_subscriptions(make_fan_out: Any) -> None:
    fan_out = make_fan_out(behaviour=Behaviour(deleting_seconds=10))
    reader = await fan_out.subscribe()
    await fan_out.call("DeleteStream", StreamName=STREAM, EnforceConsumerDeletion=True)
    await fan_out.clock.settle()
    ((code, message),) = reader.exceptions
    assert (code, reader.ending) == ("ResourceNotFoundException", "clean")
    assert message.startswith(f"Stream {STREAM} ")


async def test_a_reset_of_the_service_ends_all_subscriptions(fan_out: Any) -> None:
    reader = await fan_out.subscribe()
    fan_out.service.clear()
    await fan_out.clock.settle()
    assert [code for code, _ in reader.exceptions] == ["ResourceNotFoundException"]


async def test_what_is_trimmed_before_it_was_read_is_not_delivered(fan_out: Any) -> None:
    first, _ = fan_out.put("a", "b")
    body = await fan_out.open_body()
    fan_out.state.trim(STREAM, through=first)
    await anext(body)
    event = await anext(body)
    assert b'"Yg=="' in event
    assert b'"YQ=="' not in event
    await body.aclose()


async def test_a_retention_that_is_shortened_trims_what_a_subscription_has_not_read(
    fan_out: Any,
) -> None:
    stream = fan_out.state.find(STREAM)
    stream.retention_hours = 48
    fan_out.put("old")
    await fan_out.clock.advance(30 * 3600)
    fan_out.put("new")
    body = await fan_out.open_body()
    await fan_out.call("DecreaseStreamRetentionPeriod", StreamName=STREAM, RetentionPeriodHours=24)
    await anext(body)
    event = await anext(body)
    assert b'"bmV3"' in event
    assert b'"b2xk"' not in event
    await body.aclose()


async def test_a_shard_that_leaves_the_retention_ends_with_an_exception(fan_out: Any) -> None:
    fan_out.put("a")
    body = await fan_out.open_body()
    await split(fan_out)
    fan_out.state.trim(STREAM)
    pieces = [piece async for piece in body]
    assert b"ResourceNotFoundException" in pieces[-1]
    assert SHARD(0).encode() in pieces[-1]


async def test_after_a_trimmed_number_nothing_is_delivered_but_the_lag(fan_out: Any) -> None:
    (number,) = fan_out.put("a")
    fan_out.state.trim(STREAM)
    fan_out.put("b")
    reader = await fan_out.after(number)
    await fan_out.clock.advance(11)
    assert reader.texts == []
    assert [event["MillisBehindLatest"] for event in reader.events] == [86_400_000] * 2
    assert reader.continuation == number


async def test_the_lag_is_the_age_of_what_is_left(make_fan_out: Any) -> None:
    fan_out = make_fan_out(Limits(event_max_records=1))
    for text in ("a", "b", "c"):
        fan_out.put(text)
        await fan_out.clock.advance(10)
    reader = await fan_out.subscribe()
    assert [event["MillisBehindLatest"] for event in reader.events] == [20_000, 10_000, 0]


async def test_an_event_has_a_limit_of_bytes_which_one_record_may_exceed(
    make_fan_out: Any,
) -> None:
    fan_out = make_fan_out(Limits(event_max_bytes=10))
    fan_out.put("x" * 20, "1234", "567", "89")
    reader = await fan_out.subscribe()
    # The partition key counts 3 bytes.
    assert [len(event["Records"]) for event in reader.events] == [1, 1, 1, 1]
    fan_out.put("1", "2", "3")
    await fan_out.clock.settle()
    assert [len(event["Records"]) for event in reader.events[4:]] == [2, 1]


async def test_a_subscription_delivers_2_mib_a_second(fan_out: Any) -> None:
    reader = await fan_out.subscribe()
    fan_out.put(*["x" * (MIB - 3)] * 7)
    counts = []
    for _ in range(4):
        await fan_out.clock.settle()
        counts.append(len(reader.events))
        await fan_out.clock.advance(1)
    assert counts == [2, 4, 6, 7]
    assert reader.ending is None


async def test_a_large_record_passes_alone_and_is_made_up_for(fan_out: Any) -> None:
    reader = await fan_out.subscribe()
    fan_out.put("x" * 6 * MIB, "y")
    await fan_out.clock.advance(2.9)
    assert len(reader.events) == 1
    await fan_out.clock.advance(0.2)
    assert len(reader.events) == 2


async def test_without_the_limit_everything_is_delivered_at_once(make_fan_out: Any) -> None:
    fan_out = make_fan_out(Limits(subscribe_bytes_per_second=None))
    fan_out.put(*["x" * MIB] * 5)
    assert len((await fan_out.subscribe()).events) == 5


async def test_no_event_is_made_before_it_is_pulled(fan_out: Any) -> None:
    body = await fan_out.open_body()
    await anext(body)
    fan_out.put("a")
    await fan_out.clock.advance(60)
    fan_out.put("b")
    # One event with all there is, not one that was made a minute ago.
    event = await anext(body)
    assert event.count(b'"Data"') == 2
    await body.aclose()
