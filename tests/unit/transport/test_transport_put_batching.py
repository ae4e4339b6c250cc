"""How records are put together to calls of PutRecords."""

from __future__ import annotations

from kinesis_publishers import UserRecord
from kinesis_publishers.aws.record_writer import is_acceptable, put_batches

_MIB = 1024 * 1024


def entry(data: bytes = b"x") -> UserRecord:
    return UserRecord(data=data, partition_key="k")


def test_a_call_takes_five_hundred_records() -> None:
    assert [len(batch) for batch in put_batches(entry() for _ in range(1001))] == [500, 500, 1]


def test_a_call_takes_five_mebibytes_and_a_larger_record_goes_alone() -> None:
    sizes = [2 * _MIB, 2 * _MIB, 2 * _MIB, 8 * _MIB, 1]
    found = [
        [len(one.data) for one in batch] for batch in put_batches(entry(bytes(n)) for n in sizes)
    ]
    assert found == [[2 * _MIB, 2 * _MIB], [2 * _MIB], [8 * _MIB], [1]]


def test_no_stream_takes_more_than_ten_mebibytes_with_the_partition_key() -> None:
    assert is_acceptable(entry(bytes(10 * _MIB - 1)))
    assert not is_acceptable(entry(bytes(10 * _MIB)))
