"""Faults within the body of a subscription: where they hit and what the client sees."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_publishers.testing.local_kinesis import Fault, Limits
from kinesis_publishers.testing.local_kinesis.answers import ApiError
from tests.unit.testing.subscribing_harness import HALF, SHARD, STREAM


@pytest.fixture
def faulty(make_fan_out: Any) -> Any:
    """Three records in as many events, and no wait before another subscription."""
    fan_out = make_fan_out(
        Limits(event_max_records=1, resubscribe_seconds=None, subscribe_calls_per_second=None)
    )
    fan_out.put("a", "b", "c")
    return fan_out


def plan(fan_out: Any, kind: Any, **fields: Any) -> None:
    fan_out.service.state.faults.add(Fault("SubscribeToShard", kind, **fields))


@pytest.mark.parametrize("kind", ["reset_mid_event", "truncated_frame"])
async def test_half_a_frame_is_sent_before_the_break(faulty: Any, kind: str) -> None:
    reader = await faulty.subscribe()
    plan(faulty, kind, after_events=1)
    cut = await faulty.subscribe()
    assert cut.pieces[:2] == reader.pieces[:2]
    assert cut.pieces[2] == reader.pieces[2][: len(reader.pieces[2]) // 2]
    assert len(cut.pieces) == 3


async def test_a_bad_checksum_spoils_one_event_and_the_body_continues(faulty: Any) -> None:
    good = await faulty.subscribe()
    plan(faulty, "bad_crc", after_events=1)
    reader = await faulty.subscribe()
    # botocore does not get past the frame.
    assert (reader.texts, reader.checksum_errors > 0) == (["a"], True)
    assert [a == b for a, b in zip(reader.pieces, good.pieces, strict=True)] == [
        True,
        True,
        False,
        True,
    ]
    assert reader.ending is None


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("repeated", ["a", "b", "b", "c", "c"]), ("reversed", ["a", "c", "b"])],
)
async def test_an_event_may_repeat_or_reverse_its_records(
    make_fan_out: Any, kind: str, expected: list[str]
) -> None:
    fan_out = make_fan_out()
    plan(fan_out, kind, after_events=1)
    reader = await fan_out.subscribe()
    fan_out.put("a")
    await fan_out.clock.settle()
    last = fan_out.put("b", "c")[-1]
    await fan_out.clock.settle()
    assert (reader.texts, reader.continuation) == (expected, last)


async def test_the_end_of_a_shard_may_carry_a_continuation_again_and_again(faulty: Any) -> None:
    (last,) = faulty.put("d")
    await faulty.call(
        "SplitShard", StreamName=STREAM, ShardToSplit=SHARD(0), NewStartingHashKey=HALF
    )
    plan(faulty, "continues_with_children", times=None)
    reader = await faulty.subscribe()
    assert reader.texts == ["a", "b", "c", "d"]
    for _ in range(2):
        children = [child["ShardId"] for child in reader.events[-1]["ChildShards"]]
        assert (reader.continuation, children) == (last, [SHARD(1), SHARD(2)])
        assert reader.ending == "clean"
        reader = await faulty.after(reader.continuation)
    assert reader.texts == []


async def test_silence_lasts_until_the_subscription_ends(faulty: Any) -> None:
    plan(faulty, "silence", after_events=1)
    reader = await faulty.subscribe()
    await faulty.clock.advance(200)
    faulty.put("d")
    await faulty.clock.advance(99)
    assert (reader.texts, reader.ending) == (["a"], None)
    await faulty.clock.advance(1)
    assert reader.ending == "clean"


async def test_silence_ends_when_another_subscription_takes_over(faulty: Any) -> None:
    plan(faulty, "silence")
    silent = await faulty.subscribe()
    reader = await faulty.subscribe()
    assert (silent.ending, reader.texts) == ("clean", ["a", "b", "c"])


async def test_a_trickle_is_one_whole_event_in_many_pieces(faulty: Any) -> None:
    plan(faulty, "trickle", after_events=1, delay_seconds=2)
    reader = await faulty.subscribe()
    await faulty.clock.advance(37.9)
    assert reader.texts == ["a"]
    await faulty.clock.advance(0.1)
    assert reader.texts == ["a", "b", "c"]
    # The initial response, a, 20 pieces of b, c.
    assert len(reader.pieces) == 23


async def test_an_exception_carries_its_message(faulty: Any) -> None:
    plan(faulty, "exception", code="InternalFailureException", message="sorry")
    reader = await faulty.subscribe()
    assert reader.exceptions == [("InternalFailureException", "sorry")]


async def test_faults_hit_one_subscription_after_another(faulty: Any) -> None:
    plan(faulty, "end", after_events=1, times=2)
    plan(faulty, "reset", after_events=2)
    reads = [await faulty.subscribe() for _ in range(4)]
    assert [len(reader.texts) for reader in reads] == [1, 1, 2, 3]


async def test_every_second_subscription_may_be_hit(faulty: Any) -> None:
    plan(faulty, "end", times=None, every=2)
    reads = [await faulty.subscribe() for _ in range(4)]
    assert [len(reader.texts) for reader in reads] == [3, 0, 3, 0]


async def test_a_fault_of_another_stream_or_shard_hits_nothing(faulty: Any) -> None:
    plan(faulty, "end", stream="others")
    plan(faulty, "end", shard_id=SHARD(7))
    assert (await faulty.subscribe()).texts == ["a", "b", "c"]
    plan(faulty, "end", stream=STREAM, shard_id=SHARD(0))
    assert (await faulty.subscribe()).texts == []


async def test_a_call_that_is_refused_uses_up_no_fault_of_events(faulty: Any) -> None:
    plan(faulty, "end")
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        await faulty.open_body("AT_SEQUENCE_NUMBER", SequenceNumber="1")
    assert (await faulty.subscribe()).texts == []


async def test_the_call_itself_may_be_refused_n_times(faulty: Any) -> None:
    plan(faulty, "error", code="ResourceInUseException", times=3)
    for _ in range(3):
        with pytest.raises(ApiError, match="ResourceInUseException"):
            await faulty.open_body()
    assert (await faulty.subscribe()).texts == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("throttle", "ProvisionedThroughputExceededException"),
        ("internal_failure", "InternalFailure"),
    ],
)
async def test_the_call_itself_may_fail_like_others(faulty: Any, kind: Any, code: str) -> None:
    plan(faulty, kind)
    with pytest.raises(ApiError, match=code):
        await faulty.open_body()
    assert faulty.open_count() == 0


async def test_truncation_by_length_spares_subscriptions(faulty: Any) -> None:
    faulty.service.state.faults.add(Fault("*", "truncate", times=None))
    assert (await faulty.subscribe()).texts == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"kind": "exception"}, "needs the code"),
        ({"kind": "end", "operation": "GetRecords"}, "is one of SubscribeToShard"),
        ({"kind": "silence", "operation": "*"}, "is one of SubscribeToShard"),
        ({"kind": "throttle", "after_events": 1}, "after_events does not go with"),
        ({"kind": "end", "delay_seconds": 1.0}, "cannot delay events"),
        ({"kind": "end", "after_events": -1}, "after_events"),
        ({"kind": "truncate"}, "truncated_frame"),
    ],
)
def test_a_fault_of_events_that_makes_no_sense_is_refused(
    fault: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Fault(**({"operation": "SubscribeToShard"} | fault))
