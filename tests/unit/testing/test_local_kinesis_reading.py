"""ListShards, GetShardIterator and GetRecords: where reading begins, continues and ends."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_publishers.testing.local_kinesis import Fault, Limits
from kinesis_publishers.testing.local_kinesis.answers import ApiError

HALF = str(2**127)


@pytest.fixture
async def filled(kinesis: Any) -> Any:
    """Records a, b, c at seconds 0, 10, 20; it is second 20."""
    kinesis.numbers = {}
    for second, text in ((0, "a"), (10, "b"), (10, "c")):
        await kinesis.clock.advance(second)
        kinesis.numbers[text] = kinesis.put(text)["SequenceNumber"]
    return kinesis


@pytest.mark.parametrize(
    ("second", "expected"),
    [(-5, ["a", "b", "c"]), (0, ["a", "b", "c"]), (10, ["b", "c"]), (10.001, ["c"]), (20, ["c"])],
)
def test_a_timestamp_begins_with_the_first_record_that_is_not_older(
    filled: Any, second: float, expected: list[str]
) -> None:
    start = filled.clock.now().timestamp() - 20
    assert filled.texts(filled.iterator("AT_TIMESTAMP", Timestamp=start + second)) == expected


async def test_a_timestamp_behind_the_tip_begins_with_what_comes(filled: Any) -> None:
    await filled.clock.advance(10)
    iterator = filled.iterator("AT_TIMESTAMP", Timestamp=filled.clock.now().timestamp() - 5)
    assert filled.texts(iterator) == []
    filled.put("d")
    assert filled.texts(iterator) == ["d"]


def test_a_timestamp_in_the_future_is_refused(filled: Any) -> None:
    with pytest.raises(ApiError, match="InvalidArgumentException: The timestampInMillis"):
        filled.iterator("AT_TIMESTAMP", Timestamp=filled.clock.now().timestamp() + 1)


def test_the_latest_of_an_instant_sees_what_is_put_in_the_same_instant(kinesis: Any) -> None:
    iterator = kinesis.iterator("LATEST")
    kinesis.put("a")
    assert kinesis.texts(iterator) == ["a"]


def test_the_starting_number_of_a_shard_is_a_position(filled: Any) -> None:
    (shard,) = filled.shards()
    number = shard["SequenceNumberRange"]["StartingSequenceNumber"]
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        assert filled.texts(filled.iterator(kind, StartingSequenceNumber=number)) == ["a", "b", "c"]


def test_the_ending_number_of_a_shard_is_its_end(filled: Any) -> None:
    filled("SplitShard", ShardToSplit="shardId-000000000000", NewStartingHashKey=HALF)
    number = filled.shards()[0]["SequenceNumberRange"]["EndingSequenceNumber"]
    assert int(number) > int(filled.numbers["c"])
    answer = filled.read(filled.iterator("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=number))
    assert (answer["Records"], answer["NextShardIterator"]) == ([], None)


def test_a_number_that_was_never_given_out_is_refused(filled: Any) -> None:
    last = int(filled.numbers["c"])
    for number in (0, 12345, last + 1, last + (1 << 80), last + (1 << 150)):
        with pytest.raises(ApiError, match=r"InvalidArgumentException.*did not come from"):
            filled.iterator("AT_SEQUENCE_NUMBER", StartingSequenceNumber=str(number))


def test_a_number_of_another_shard_is_refused(make_kinesis: Any) -> None:
    kinesis = make_kinesis()
    kinesis.create(2)
    number = kinesis.put("x", ExplicitHashKey="0")["SequenceNumber"]
    with pytest.raises(ApiError, match="encodes shardId-000000000000"):
        kinesis.iterator("AT_SEQUENCE_NUMBER", shard=1, StartingSequenceNumber=number)


@pytest.mark.parametrize(
    "iterator", ["x", "AAAA", "e30=", "WzFd", "é", "WyJhIiwxLCJzIixudWxsLCJsaXZlIiwxXQ=="]
)
def test_a_foreign_iterator_is_refused(kinesis: Any, iterator: str) -> None:
    with pytest.raises(ApiError, match="InvalidArgumentException: Invalid ShardIterator"):
        kinesis.read(iterator)


def test_an_iterator_fits_its_arn_and_its_512_characters(make_kinesis: Any) -> None:
    kinesis = make_kinesis()
    arn = kinesis.state.arn_of("n" * 128)
    kinesis("CreateStream", StreamName="n" * 128, ShardCount=1)
    kinesis("CreateStream", StreamName="other", ShardCount=1)
    iterator = kinesis.iterator(StreamARN=arn)
    assert len(iterator) <= 512
    assert kinesis.read(iterator, StreamARN=arn)["Records"] == []
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        kinesis.read(iterator, StreamARN=kinesis.state.arn_of("other"))


async def test_millis_behind_latest_is_the_age_of_what_is_left(filled: Any) -> None:
    behind = [filled.read(Limit=limit)["MillisBehindLatest"] for limit in (1, 2, 3)]
    # c has just arrived: still not zero, which would say that nothing is left.
    assert behind == [10_000, 1, 0]
    await filled.clock.advance(1)
    assert filled.read(Limit=2)["MillisBehindLatest"] == 1000


def test_an_answer_may_be_empty_with_data_ahead(filled: Any) -> None:
    filled.state.faults.add(Fault("GetRecords", "empty"))
    answer = filled.read()
    assert (answer["Records"], answer["MillisBehindLatest"]) == ([], 20_000)
    assert filled.texts(answer["NextShardIterator"]) == ["a", "b", "c"]


def test_an_open_shard_may_answer_no_next_iterator(filled: Any) -> None:
    filled.state.faults.add(Fault("GetRecords", "no_next_iterator"))
    answer = filled.read(Limit=2)
    assert (len(answer["Records"]), answer["NextShardIterator"]) == (2, None)
    assert "ChildShards" not in answer
    assert filled.read()["NextShardIterator"] is not None


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("repeated", ["a", "a", "b", "b"]), ("reversed", ["b", "a"])],
)
def test_a_page_may_repeat_or_reverse_its_records(
    filled: Any, kind: Any, expected: list[str]
) -> None:
    filled.state.faults.add(Fault("GetRecords", kind))
    answer = filled.read(Limit=2)
    numbers = [record["SequenceNumber"] for record in answer["Records"]]
    assert numbers == [filled.numbers[text] for text in expected]
    assert filled.texts(answer["NextShardIterator"]) == ["c"]


def test_an_answer_ends_at_10_mib_but_holds_one_record(make_kinesis: Any) -> None:
    kinesis = make_kinesis(Limits(get_records_max_bytes=10, get_records_calls_per_second=None))
    kinesis.create()
    for data in ("x" * 20, "1234", "5678", "9"):
        kinesis.put(data, "k")
    sizes, iterator = [], kinesis.iterator()
    for _ in range(4):
        answer = kinesis.read(iterator)
        sizes.append(len(answer["Records"]))
        iterator = answer["NextShardIterator"]
    assert sizes == [1, 2, 1, 0]


async def test_a_clock_that_steps_back_breaks_no_order(kinesis: Any) -> None:
    await kinesis.clock.advance(100)
    kinesis.put("a")
    await kinesis.clock.advance(-50)
    kinesis.put("b")
    start = kinesis.clock.now().timestamp()
    assert kinesis.texts(kinesis.iterator("AT_TIMESTAMP", Timestamp=start)) == ["a", "b"]


@pytest.fixture
async def split(kinesis: Any) -> Any:
    """Shard 0 from second 0, split into 1 and 2 at second 100; it is second 200."""
    await kinesis.clock.advance(100)
    kinesis.put("in the parent")
    kinesis("SplitShard", ShardToSplit="shardId-000000000000", NewStartingHashKey=HALF)
    await kinesis.clock.advance(100)
    return kinesis


def test_1500_shards_come_in_two_pages(make_kinesis: Any) -> None:
    kinesis = make_kinesis(Limits.aws())
    kinesis.create(1500)
    first = kinesis("ListShards", MaxResults=10_000)
    rest = kinesis("ListShards", NextToken=first["NextToken"])
    assert [len(first["Shards"]), len(rest["Shards"])] == [1000, 500]
    assert "NextToken" not in rest
    assert len({shard["ShardId"] for shard in first["Shards"] + rest["Shards"]}) == 1500


async def test_a_token_lives_300_seconds(make_kinesis: Any) -> None:
    kinesis = make_kinesis(Limits.aws())
    kinesis.create(2)
    token = kinesis("ListShards", MaxResults=1)["NextToken"]
    await kinesis.clock.advance(300)
    assert len(kinesis("ListShards", NextToken=token)["Shards"]) == 1
    await kinesis.clock.advance(0.001)
    with pytest.raises(ApiError, match="ExpiredNextTokenException"):
        kinesis("ListShards", NextToken=token)


@pytest.mark.parametrize(
    "excluded",
    [
        {"StreamName": "orders"},
        {"StreamARN": "arn:aws:kinesis:us-east-1:123456789012:stream/orders"},
        {"ExclusiveStartShardId": "shardId-000000000000"},
        {"StreamCreationTimestamp": 1},
    ],
)
def test_a_token_excludes_what_it_contains(make_kinesis: Any, excluded: dict[str, Any]) -> None:
    kinesis = make_kinesis()
    kinesis.create(2)
    token = kinesis("ListShards", MaxResults=1)["NextToken"]
    with pytest.raises(ApiError, match="InvalidArgumentException: NextToken and"):
        kinesis("ListShards", NextToken=token, **excluded)


def test_a_token_keeps_its_filter(make_kinesis: Any) -> None:
    kinesis = make_kinesis()
    kinesis.create(3)
    kinesis("SplitShard", ShardToSplit="shardId-000000000001", NewStartingHashKey=HALF)
    first = kinesis("ListShards", MaxResults=1, ShardFilter={"Type": "AT_LATEST"})
    rest = kinesis("ListShards", NextToken=first["NextToken"])
    ids = [shard["ShardId"][-1] for shard in first["Shards"] + rest["Shards"]]
    assert ids == ["0", "2", "3", "4"]


def test_shards_after_an_id(make_kinesis: Any) -> None:
    kinesis = make_kinesis()
    kinesis.create(3)
    assert kinesis.shard_ids(ExclusiveStartShardId="shardId-000000000000") == [1, 2]


def test_a_creation_timestamp_that_differs_is_not_found(kinesis: Any) -> None:
    created = kinesis.clock.now().timestamp()
    assert kinesis.shard_ids(StreamCreationTimestamp=int(created)) == [0]
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        kinesis.shards(StreamCreationTimestamp=int(created) - 60)


@pytest.mark.parametrize(
    ("shard_filter", "expected"),
    [
        ({"Type": "FROM_TRIM_HORIZON"}, [0, 1, 2]),
        ({"Type": "AT_TRIM_HORIZON"}, [0]),
        ({"Type": "AT_LATEST"}, [1, 2]),
        ({"Type": "AFTER_SHARD_ID", "ShardId": "shardId-000000000000"}, [1, 2]),
        ({"Type": "AT_TIMESTAMP", "Timestamp": 50}, [0]),
        ({"Type": "AT_TIMESTAMP", "Timestamp": 150}, [1, 2]),
        ({"Type": "FROM_TIMESTAMP", "Timestamp": 50}, [0, 1, 2]),
        ({"Type": "FROM_TIMESTAMP", "Timestamp": 150}, [1, 2]),
    ],
)
async def test_each_filter_selects_by_lineage_or_time(
    split: Any, shard_filter: dict[str, Any], expected: list[int]
) -> None:
    if "Timestamp" in shard_filter:
        start = split.clock.now().timestamp() - 200
        shard_filter = shard_filter | {"Timestamp": start + shard_filter["Timestamp"]}
    assert split.shard_ids(ShardFilter=shard_filter) == expected


async def test_the_trim_horizon_moves_on_to_the_children(split: Any) -> None:
    await split.clock.advance(24 * 3600 - 99)
    assert split.shard_ids(ShardFilter={"Type": "AT_TRIM_HORIZON"}) == [1, 2]
