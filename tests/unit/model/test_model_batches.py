"""Batches of records: columns, records made from them, slices, and Arrow."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st

from kinesis_publishers import RecordBatch, RecordPage, SequenceNumber
from kinesis_publishers.testing.fakes import SUCCESSOR, batch_of, sample_records, sample_shard

NOW = datetime(2026, 1, 1, tzinfo=UTC)
(SAMPLE,) = sample_records(1)
EPOCH_SECONDS = st.floats(min_value=0, max_value=7e9) | st.integers(0, 7 * 10**12).map(
    lambda millis: millis / 1000
)


def test_iterating_makes_the_records_that_went_in():
    records = sample_records(3)
    assert list(batch_of(records)) == records


def test_an_empty_batch_has_no_records_and_no_places():
    batch = batch_of([])
    assert (len(batch), list(batch), batch.payload_bytes) == (0, [], 0)
    assert (batch.last_sequence_number, batch.last_arrival) == (None, None)


def test_a_batch_takes_the_columns_of_a_page():
    page = RecordPage(
        payloads=[b"a", b""],
        partition_keys=["k", "ключ"],
        sequence_numbers=["9", "10"],
        arrival_epoch_seconds=[1.5, 2.0],
        encryption_types=["KMS", None],
        millis_behind_latest=7,
        child_shards=(SUCCESSOR,),
    )
    batch = RecordBatch.from_page(page, shard=sample_shard(), requested_at=NOW)
    assert batch.child_shards == (SUCCESSOR,)
    assert [record.encryption_type for record in batch] == ["KMS", None]
    assert [record.data for record in batch] == [b"a", b""]
    assert (batch.payload_bytes, batch.millis_behind_latest, batch.requested_at) == (1, 7, NOW)


def test_records_carry_the_names_of_shard_and_stream():
    (record,) = batch_of(sample_records(1))
    assert (record.stream_name, record.shard_id) == ("orders", "shardId-000000000000")


@pytest.mark.parametrize(
    ("millis_behind_latest", "read_until"),
    [(None, None), (0, NOW), (1500, NOW - timedelta(seconds=6, milliseconds=500))],
)
def test_an_answer_says_until_when_everything_has_been_read(
    millis_behind_latest: int | None, read_until: datetime | None
):
    batch = batch_of([], requested_at=NOW, millis_behind_latest=millis_behind_latest)
    assert batch.read_until == read_until


def test_columns_of_different_length_are_an_error_and_not_a_shorter_batch():
    batch = RecordBatch(shard=sample_shard(), requested_at=NOW, payloads=[b"a", b"b"])
    with pytest.raises(ValueError, match=r"zip\(\)"):
        list(batch)


@given(st.integers(0, 12), st.integers(0, 12), st.booleans())
def test_a_slice_holds_the_records_between_its_bounds(start: int, stop: int, is_encrypted: bool):
    records = [
        one._replace(encryption_type=f"T{at}" if is_encrypted else None)
        for at, one in enumerate(sample_records(10, size=3))
    ]
    page = RecordPage(
        payloads=[one.data for one in records],
        partition_keys=[one.partition_key for one in records],
        sequence_numbers=[one.sequence_number for one in records],
        arrival_epoch_seconds=[one.arrival_epoch_seconds for one in records],
        encryption_types=[one.encryption_type for one in records] if is_encrypted else None,
    )
    cut = RecordBatch.from_page(page, shard=sample_shard(), requested_at=NOW).slice(start, stop)
    assert list(cut) == records[start:stop]
    assert cut.payload_bytes == 3 * len(records[start:stop])


@given(st.integers(0, 10), st.booleans(), st.booleans())
def test_two_batches_become_one_with_all_columns(at: int, first_has_subs: bool, second_has: bool):
    batch = batch_of(sample_records(10))
    columns = {"sub_sequence_numbers": list(range(10)), "encryption_types": ["KMS"] * 10}
    first = evolve(batch, **columns if first_has_subs else {}).slice(0, at)
    second = evolve(batch, **columns if second_has else {}, millis_behind_latest=7).slice(at, 10)
    joined = first.joined(second)
    assert list(joined) == [*first, *second]
    assert (joined.payload_bytes, joined.millis_behind_latest) == (batch.payload_bytes, 7)


def test_a_slice_of_everything_is_the_batch_itself():
    batch = batch_of(sample_records(3))
    assert batch.slice(0, 3) is batch


def test_a_record_has_an_identity_that_no_other_has():
    whole, first, second, other = evolve(
        batch_of(sample_records(4)),
        sequence_numbers=["7", "7", "7", "70"],
        sub_sequence_numbers=[None, 0, 1, None],
    )
    shard = "orders/shardId-000000000000"
    assert whole.id == f"{shard}/7/"
    assert (first.id, second.id, other.id) == (f"{shard}/7/0", f"{shard}/7/1", f"{shard}/70/")
    assert whole._replace(stream_name="returns").id == "returns/shardId-000000000000/7/"
    assert pickle.loads(pickle.dumps(first)).id == first.id


@given(
    st.lists(st.integers(0, 10**25), unique=True, max_size=30).map(sorted), st.integers(0, 10**25)
)
def test_counting_up_to_a_place_counts_by_number(numbers: list[int], place: int):
    records = [
        one._replace(sequence_number=str(number))
        for one, number in zip(sample_records(len(numbers)), numbers, strict=True)
    ]
    expected = sum(number <= place for number in numbers)
    assert batch_of(records).count_up_to(SequenceNumber(str(place))) == expected


def test_a_batch_knows_its_first_and_last_place_and_its_latest_arrival():
    records = sample_records(20)
    out_of_order = [
        records[0],
        records[1]._replace(arrival_epoch_seconds=records[19].arrival_epoch_seconds),
        records[2],
    ]
    batch = batch_of(out_of_order)
    assert batch.first_sequence_number == SequenceNumber("991")
    assert batch.last_sequence_number == SequenceNumber("993")
    assert batch.last_arrival == records[19].approximate_arrival_timestamp


def test_a_batch_survives_pickling():
    batch = batch_of(sample_records(3))
    restored = pickle.loads(pickle.dumps(batch))
    assert list(restored) == list(batch)
    assert restored.requested_at == batch.requested_at


@given(EPOCH_SECONDS)
@example(1.0078125)  # half a microsecond exactly
def test_the_arrival_of_a_record_is_exact_to_the_microsecond(seconds: float):
    record = sample_records(1)[0]._replace(arrival_epoch_seconds=seconds)
    assert record.approximate_arrival_timestamp == datetime.fromtimestamp(seconds, UTC)


@given(st.lists(EPOCH_SECONDS, max_size=20))
@example([1.0078125, 1.0234375])  # half a microsecond exactly
def test_arrow_timestamps_are_exact_to_the_microsecond(times: list[float]):
    records = [
        one._replace(arrival_epoch_seconds=seconds)
        for one, seconds in zip(sample_records(len(times)), times, strict=True)
    ]
    column = batch_of(records).to_arrow().column("approximate_arrival_timestamp")
    assert column.to_pylist() == [datetime.fromtimestamp(seconds, UTC) for seconds in times]


def test_arrow_columns_have_the_documented_names_types_and_values():
    table = batch_of(sample_records(2, size=4)).to_arrow()
    assert [(one.name, one.type) for one in table.schema] == [
        ("data", pa.binary()),
        ("stream_name", pa.string()),
        ("shard_id", pa.string()),
        ("sequence_number", pa.string()),
        ("partition_key", pa.string()),
        ("approximate_arrival_timestamp", pa.timestamp("us", tz="UTC")),
        ("sub_sequence_number", pa.int64()),
    ]
    assert table.to_pylist()[1] == {
        "data": b"...1",
        "stream_name": "orders",
        "shard_id": "shardId-000000000000",
        "sequence_number": "992",
        "partition_key": "key-1",
        "approximate_arrival_timestamp": datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC),
        "sub_sequence_number": None,
    }


def test_an_empty_batch_is_an_arrow_batch_without_rows():
    assert batch_of([]).to_arrow().num_rows == 0


def test_arrow_keeps_empty_payloads_and_unicode_keys():
    record = sample_records(1, size=0)[0]._replace(partition_key="ключ-🔑")
    row = batch_of([record]).to_arrow().to_pylist()[0]
    assert (row["data"], row["partition_key"]) == (b"", "ключ-🔑")


@given(numbers=st.lists(st.integers(0, 1200), max_size=9))
def test_records_are_put_in_order_by_number_and_each_stays_once(numbers: list[int]):
    records = [SAMPLE._replace(sequence_number=str(n)) for n in numbers]
    ordered = batch_of(records).in_order()
    assert [int(one.sequence_number) for one in ordered] == sorted(set(numbers))
    assert set(ordered) <= set(records)


def test_records_inside_aggregates_are_put_in_order_by_their_index():
    places = [("9", 1), ("10", 0), ("9", 0), ("9", 1), ("9", None)]
    batch = evolve(
        batch_of([SAMPLE] * len(places)),
        sequence_numbers=[number for number, _ in places],
        sub_sequence_numbers=[sub for _, sub in places],
    )
    ordered = [(one.sequence_number, one.sub_sequence_number) for one in batch.in_order()]
    assert ordered == [("9", 0), ("9", 1), ("9", None), ("10", 0)]


@pytest.mark.parametrize("numbers", [[], ["7"], ["9", "10", "100"], ["100", "101"]], ids=str)
def test_a_batch_in_order_is_itself(numbers: list[str]):
    batch = batch_of([SAMPLE._replace(sequence_number=number) for number in numbers])
    assert batch.in_order() is batch
