"""Packing records into aggregates."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from aws_kinesis_agg.deaggregator import iter_deaggregate_records
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers import UserRecord
from kinesis_publishers.aggregation import (
    AggregatedRecord,
    Packable,
    decode_aggregate,
    pack_first,
    pack_plain,
    pack_user_records,
)
from kinesis_publishers.model import hash_key_of

if TYPE_CHECKING:
    from collections.abc import Iterator

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
MARKERS = st.none() | st.builds("{}/{}".format, st.sampled_from(["q/1", "q/2"]), st.text("xyz"))


def record_of(data: bytes = b"data", key: str = "key", hash_key: str | None = None) -> UserRecord:
    return UserRecord(data=data, partition_key=key, explicit_hash_key=hash_key)


def pack_all(
    records: list[UserRecord], **limits: int
) -> Iterator[tuple[AggregatedRecord, list[UserRecord]]]:
    """Yield each aggregate and what is inside."""
    while records:
        one = pack_user_records(records, **limits)
        yield one, records[: one.user_records]
        records = records[one.user_records :]


def packed(*records: UserRecord) -> AggregatedRecord:
    one = pack_user_records(records, max_bytes=10**6)
    assert one.user_records == len(records)
    return one


@given(RECORDS, st.data())
def test_what_was_packed_is_decoded_to_the_same_records(
    plain: list[UserRecord], data: st.DataObject
):
    records = [evolve(one, marker=data.draw(MARKERS)) for one in plain]
    found = decode_aggregate(packed(*records).data)
    assert found is not None
    columns = zip(found.payloads, found.partition_keys, found.explicit_hash_keys, strict=True)
    assert list(columns) == [(r.data, r.partition_key, r.explicit_hash_key) for r in records]
    markers = [one.marker for one in records]
    assert found.markers == (markers if any(markers) else None)


@given(RECORDS, MARKERS)
def test_the_library_of_aws_deaggregates_it_to_the_same_records(
    records: list[UserRecord], marker: str | None
):
    outer = {
        "SequenceNumber": "1",
        "PartitionKey": "a",
        "ApproximateArrivalTimestamp": 1.0,
        "Data": packed(*[evolve(one, marker=marker) for one in records]).data,
    }
    theirs = [one["kinesis"] for one in iter_deaggregate_records([outer], "Boto3")]
    found = [(base64.b64decode(one["data"]), one["partitionKey"]) for one in theirs]
    assert found == [(one.data, one.partition_key) for one in records]
    # It gives a record without one that of another record, if any has one.
    if all(one.explicit_hash_key for one in records):
        assert [one["explicitHashKey"] for one in theirs] == [
            one.explicit_hash_key for one in records
        ]


@given(RECORDS, st.integers(100, 2000), st.integers(1, 20))
def test_no_aggregate_exceeds_the_limits_and_none_is_closed_too_early(
    records: list[UserRecord], max_bytes: int, max_records: int
):
    put = list(pack_all(records, max_bytes=max_bytes, max_records=max_records))
    assert [record for _, inside in put for record in inside] == records
    for (one, inside), (_, following) in zip(put, [*put[1:], (None, [])], strict=True):
        assert len(inside) <= max_records
        assert len(inside) == 1 or len(one.data) <= max_bytes
        if following and len(inside) < max_records:
            assert len(packed(*inside, following[0]).data) > max_bytes


@given(RECORDS, st.integers(30, 2000), st.integers(1, 20))
def test_columns_are_packed_to_the_same_aggregate(
    records: list[UserRecord], max_bytes: int, max_records: int
):
    plain = [evolve(one, explicit_hash_key=None) for one in records]
    columns = [one.data for one in plain], [one.partition_key for one in plain]
    limits = {"max_bytes": max_bytes, "max_records": max_records}
    assert pack_plain(*columns, **limits) == pack_user_records(plain, **limits)


def test_a_single_record_is_put_as_it_is():
    one = packed(record_of(b"data", "key", "5"))
    assert (one.data, one.partition_key, one.explicit_hash_key) == (b"data", "key", "5")
    assert not one.is_aggregate


def test_a_single_record_with_a_marker_is_an_aggregate_under_its_own_keys():
    one = packed(evolve(record_of(b"data", "key", "5"), marker="query/7/0/digest"))
    assert (one.partition_key, one.explicit_hash_key, one.is_aggregate) == ("key", "5", True)
    found = decode_aggregate(one.data)
    assert found is not None
    assert (found.payloads, found.markers) == ([b"data"], ["query/7/0/digest"])


def test_what_markers_have_in_common_is_stored_once():
    marked = [evolve(record_of(), marker=f"query/batch/{number:09d}") for number in range(100)]
    assert packed(*marked).data.count(b"query/batch") == 1


def test_a_record_that_is_too_large_is_put_as_it_is_behind_what_came_before():
    records = [record_of(b"small"), record_of(bytes(1000)), record_of(b"after")]
    found = [one.data for one, _ in pack_all(records, max_bytes=100)]
    assert found == [b"small", bytes(1000), b"after"]


@pytest.mark.parametrize(
    ("first", "hash_key"),
    [(record_of(key="key"), hash_key_of("key")), (record_of(key="key", hash_key="7"), 7)],
)
def test_an_aggregate_goes_to_the_shard_of_its_first_record(first: UserRecord, hash_key: int):
    full = packed(first, record_of(key="other"))
    assert (full.partition_key, full.explicit_hash_key) == ("a", str(hash_key))


def test_copies_are_marked_and_the_others_are_not() -> None:
    rows: list[Packable] = [(b"1", "k", None, None, False), (b"2", "k", "5", "q/1", True)]
    found = decode_aggregate(pack_first(rows).data)
    assert (found.payloads, found.copies, found.markers) == ([b"1", b"2"], {1}, [None, "q/1"])


def test_a_copy_that_is_alone_is_an_aggregate_too() -> None:
    packed = pack_first([(b"1", "k", None, None, True)])
    assert packed.is_aggregate
    assert (packed.partition_key, packed.user_records) == ("k", 1)
    assert decode_aggregate(packed.data).copies == {0}
