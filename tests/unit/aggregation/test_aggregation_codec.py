"""Taking aggregates apart: what is one, what is none, and what contradicts itself."""

from __future__ import annotations

import pytest
from aws_kinesis_agg.aggregator import RecordAggregator as AwsAggregator
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.aggregation import decode_aggregate, has_aggregates
from kinesis_publishers.errors import AggregationError
from kinesis_publishers.model.user_records import check_fields
from tests.unit.aggregation.aggregate_support import (
    MAGIC,
    aggregate_of,
    field_of,
    number_of,
    record_of,
    wrapped,
)

# Written down once, with the MD5 that `md5sum` gives for the bytes between: two keys, one explicit
# hash key, and three records of which the second has it.
RECORDED = bytes.fromhex(
    "f3899ac2"
    "0a026b31" "0a026b32" "120135"
    "1a09" "0800" "1a056461746131"
    "1a0b" "0801" "1000" "1a056461746132"
    "1a04" "0800" "1a00"
    "238b8584809588c8aa2296cb2abd7d8f"
)  # fmt: skip

KEYS = st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable())
HASH_KEYS = st.none() | st.integers(0, 2**128 - 1).map(str)


def test_an_aggregate_recorded_from_the_definition_is_decoded():
    found = decode_aggregate(RECORDED)
    assert found is not None
    assert found.payloads == [b"data1", b"data2", b""]
    assert found.partition_keys == ["k1", "k2", "k1"]
    assert found.explicit_hash_keys == [None, "5", None]


def test_the_longest_keys_that_kinesis_takes_are_taken():
    keys, hash_keys = ["ключ" * 64], [str(2**128 - 1)]
    found = decode_aggregate(aggregate_of(keys, hash_keys, [record_of(0, b"data", 0)]))
    assert found is not None
    assert (found.partition_keys, found.explicit_hash_keys) == (keys, hash_keys)


def test_what_is_not_asked_for_is_passed_over():
    tag = field_of(4, field_of(1, b"name") + field_of(2, b"value"))
    unknown = field_of(15, b"of a later version")
    record = record_of(0, b"data", tags=tag + unknown)
    found = decode_aggregate(wrapped(field_of(1, b"k") + unknown + field_of(3, record)))
    assert found is not None
    assert (found.payloads, found.partition_keys) == ([b"data"], ["k"])


def test_an_aggregate_may_hold_nothing():
    found = decode_aggregate(aggregate_of(["k"], [], []))
    assert found is not None
    assert len(found) == 0


@given(st.lists(st.tuples(st.binary(max_size=50), KEYS), max_size=30))
def test_what_the_library_of_aws_packs_is_decoded(records: list[tuple[bytes, str]]):
    theirs = AwsAggregator()
    for data, key in records:
        theirs.add_user_record(key, data)
    packed = theirs.clear_and_get()
    if packed is None:
        assert records == []
        return
    found = decode_aggregate(packed.get_contents()[2])
    assert found is not None
    assert list(zip(found.payloads, found.partition_keys, strict=True)) == records
    assert found.explicit_hash_keys == [None] * len(records)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        MAGIC[:3],
        MAGIC,
        MAGIC + bytes(15),
        wrapped(b""),
        RECORDED[1:],
        RECORDED[:-1],
        RECORDED + b"\0",
        RECORDED[:10] + b"\xff" + RECORDED[11:],
        wrapped(b"\x0a\xff"),
        wrapped(b"not a message"),
        wrapped(field_of(3, field_of(3, b"no partition key"))),
        wrapped(field_of(1, b"k") + field_of(3, number_of(1, 0))),
        wrapped(field_of(1, b"\xff") + field_of(3, record_of(0, b"data"))),
        aggregate_of(["k" * 257], [], [record_of(0, b"data")]),
        aggregate_of(["k"], ["0" * 40], [record_of(0, b"data", 0)]),
    ],
    ids=[
        "nothing",
        "a part of the magic bytes",
        "the magic bytes alone",
        "an incomplete checksum",
        "no message between",
        "other first bytes",
        "cut off",
        "something behind",
        "a changed byte",
        "a length that is too long",
        "no message",
        "a record without a key",
        "a record without data",
        "a key that is no text",
        "a partition key that Kinesis would refuse",
        "an explicit hash key that Kinesis would refuse",
    ],
)
def test_what_does_not_parse_is_an_ordinary_record(data: bytes):
    assert decode_aggregate(data) is None


@pytest.mark.parametrize(
    "record",
    [record_of(2, b"data"), record_of(2**64 - 1, b"data"), record_of(0, b"data", 1)],
)
def test_an_index_outside_its_table_is_an_error_and_no_partial_result(record: bytes):
    aggregate = aggregate_of(["k1", "k2"], ["5"], [record_of(0, b"good", 0), record])
    with pytest.raises(AggregationError, match="that the aggregate does not have"):
        decode_aggregate(aggregate)


@pytest.mark.parametrize(("length", "is_marker"), [(254, True), (255, False), (500_000, False)])
def test_a_marker_is_as_long_as_a_producer_may_make_it(length: int, is_marker: bool):
    def tag(key: str, value: str) -> bytes:
        return field_of(4, field_of(1, key.encode()) + field_of(2, value.encode()))

    first = tag("kinesis-publishers.batch", "b" * length) + tag("m", "7")
    records = [record_of(0, b"", tags=first), *[record_of(0, b"", tags=tag("m", "7"))] * 40_000]
    found = decode_aggregate(aggregate_of(["k"], [], records))
    assert found is not None
    assert {*(found.markers or [None])} == {f"{'b' * length}/7" if is_marker else None}
    if is_marker:
        check_fields("key", marker="b" * length + "/7")
    else:
        with pytest.raises(ValueError, match="at most 256 characters"):
            check_fields("key", marker="b" * length + "/7")


@given(st.binary(max_size=200))
def test_any_message_gives_no_other_than_the_documented_error(message: bytes):
    for data in (message, MAGIC + message, wrapped(message)):
        try:
            found = decode_aggregate(data)
        except AggregationError:
            continue
        if found is not None:
            assert len(found.partition_keys) == len(found.explicit_hash_keys) == len(found)


@given(st.data())
def test_a_damaged_aggregate_is_an_ordinary_record(data: st.DataObject):
    index = data.draw(st.integers(0, len(RECORDED) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda byte: byte != RECORDED[index]))
    damaged = RECORDED[:index] + bytes([value]) + RECORDED[index + 1 :]
    assert decode_aggregate(damaged) is None


@given(st.lists(st.binary(max_size=8) | st.binary(max_size=4).map(lambda tail: MAGIC + tail)))
def test_a_page_with_aggregates_is_told_from_one_without(payloads: list[bytes]):
    assert has_aggregates(payloads) == any(one[:4] == MAGIC for one in payloads)
