"""Packing records into aggregates."""

from __future__ import annotations

import base64

import pytest
from aws_kinesis_agg.deaggregator import iter_deaggregate_records
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers import UserRecord
from kinesis_publishers.aggregation import RecordAggregator, decode_aggregate
from kinesis_publishers.model import hash_key_of

RECORDS = st.lists(
    st.builds(
        UserRecord,
        data=st.binary(max_size=200),
        # A few keys often, many keys seldom: both make the tables what they are for.
        partition_key=st.sampled_from(["a", "ключ"]) | st.text("xyz", min_size=1, max_size=256),
        explicit_hash_key=st.none() | st.integers(0, 2**128 - 1).map(str),
    ),
    min_size=2,
    max_size=50,
)


def record_of(data: bytes = b"data", key: str = "key", hash_key: str | None = None) -> UserRecord:
    return UserRecord(data=data, partition_key=key, explicit_hash_key=hash_key)


def packed(aggregator: RecordAggregator, *records: UserRecord) -> bytes:
    for record in records:
        assert aggregator.add(record) is None
    full = aggregator.flush()
    assert full is not None
    return full.data


@given(RECORDS)
def test_what_was_packed_is_decoded_to_the_same_records(records: list[UserRecord]):
    found = decode_aggregate(packed(RecordAggregator(max_bytes=10**6), *records))
    assert found is not None
    columns = zip(found.payloads, found.partition_keys, found.explicit_hash_keys, strict=True)
    assert list(columns) == [(r.data, r.partition_key, r.explicit_hash_key) for r in records]


@given(RECORDS)
def test_the_library_of_aws_takes_it_apart_to_the_same_records(records: list[UserRecord]):
    outer = {
        "SequenceNumber": "1",
        "PartitionKey": "a",
        "ApproximateArrivalTimestamp": 1.0,
        "Data": packed(RecordAggregator(max_bytes=10**6), *records),
    }
    theirs = [one["kinesis"] for one in iter_deaggregate_records([outer], "Boto3")]
    found = [(base64.b64decode(one["data"]), one["partitionKey"]) for one in theirs]
    assert found == [(one.data, one.partition_key) for one in records]
    # It gives a record without one that of another record, if any has one.
    if all(one.explicit_hash_key for one in records):
        assert [one["explicitHashKey"] for one in theirs] == [
            one.explicit_hash_key for one in records
        ]


@given(RECORDS)
def test_the_size_is_that_of_the_aggregate_to_the_byte(records: list[UserRecord]):
    aggregator = RecordAggregator(max_bytes=10**6)
    assert aggregator.size == 0
    for number, record in enumerate(records, 1):
        aggregator.add(record)
        assert len(aggregator) == number
    size = aggregator.size
    full = aggregator.flush()
    assert full is not None
    assert (len(full.data), full.user_records) == (size, len(records))
    assert (aggregator.size, len(aggregator)) == (0, 0)


@given(RECORDS, st.integers(100, 2000), st.integers(1, 20))
def test_no_aggregate_exceeds_the_limits_and_none_is_closed_too_early(
    records: list[UserRecord], max_bytes: int, max_records: int
):
    aggregator = RecordAggregator(max_bytes=max_bytes, max_records=max_records)
    put, group = [], []
    for record in records:
        full = aggregator.add(record)
        if full is not None:
            put.append(full)
            together = RecordAggregator(max_bytes=10**6)
            for one in (*group, record):
                together.add(one)
            assert len(group) == max_records or together.size > max_bytes
            group.clear()
        group.append(record)
    last = aggregator.flush()
    assert last is not None
    put.append(last)
    assert sum(one.user_records for one in put) == len(records)
    for one in put:
        assert one.user_records <= max_records
        assert one.user_records == 1 or len(one.data) <= max_bytes


def test_a_single_record_is_put_as_it_is():
    aggregator = RecordAggregator()
    aggregator.add(record_of(b"data", "key", "5"))
    full = aggregator.flush()
    assert full is not None
    assert (full.data, full.partition_key, full.explicit_hash_key) == (b"data", "key", "5")


def test_a_record_that_is_too_large_is_put_as_it_is_behind_what_came_before():
    aggregator = RecordAggregator(max_bytes=100)
    aggregator.add(record_of(b"small"))
    before = aggregator.add(record_of(bytes(1000)))
    large = aggregator.add(record_of(b"after"))
    assert before is not None
    assert before.data == b"small"
    assert large is not None
    assert large.data == bytes(1000)


@pytest.mark.parametrize(
    ("first", "hash_key"),
    [(record_of(key="key"), hash_key_of("key")), (record_of(key="key", hash_key="7"), 7)],
)
def test_an_aggregate_goes_to_the_shard_of_its_first_record(first: UserRecord, hash_key: int):
    aggregator = RecordAggregator()
    aggregator.add(first)
    aggregator.add(record_of(key="other"))
    full = aggregator.flush()
    assert full is not None
    assert (full.partition_key, full.explicit_hash_key) == ("a", str(hash_key))


def test_without_records_there_is_nothing_to_put():
    assert RecordAggregator().flush() is None


@pytest.mark.parametrize("limit", [{"max_bytes": 0}, {"max_records": 0}])
def test_a_limit_that_admits_nothing_is_refused(limit: dict[str, int]):
    with pytest.raises(ValueError, match="must be >= 1"):
        RecordAggregator(**limit)
