"""The loader puts every record once, also when the service refuses some."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.errors import StreamNotFoundError
from kinesis_publishers.testing.local_kinesis import Fault
from kinesis_publishers_spark.demo.flights import FlightRecord
from kinesis_publishers_spark.demo.loader import start_loader

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_RECORDS = [FlightRecord(f"N{number % 97}", b"%d" % number) for number in range(1234)]


def _stored(server: LocalKinesis) -> Counter[tuple[str, bytes]]:
    return Counter(
        (record.partition_key, record.data)
        for records in server.records("s").values()
        for record in records
    )


def test_every_record_is_put_once(local_kinesis: LocalKinesis) -> None:
    local_kinesis.create_stream("s", 2)
    with start_loader(local_kinesis.properties("s"), _RECORDS) as (loader, loading):
        loading.result()
    assert loader.put == len(_RECORDS)
    assert _stored(local_kinesis) == Counter((one.partition_key, one.data) for one in _RECORDS)


def test_refused_entries_are_put_again_and_the_others_are_not(local_kinesis: LocalKinesis) -> None:
    local_kinesis.create_stream("s", 2)
    shard_id = next(iter(local_kinesis.records("s")))
    local_kinesis.add_fault(Fault("PutRecords", "throttle", shard_id=shard_id, times=2))
    with start_loader(local_kinesis.properties("s"), _RECORDS) as (loader, loading):
        loading.result()
    assert loader.put == len(_RECORDS)
    assert _stored(local_kinesis) == Counter((one.partition_key, one.data) for one in _RECORDS)


def test_a_stream_that_is_not_there_is_an_error(local_kinesis: LocalKinesis) -> None:
    loader = start_loader(local_kinesis.properties("s"), _RECORDS)
    with pytest.raises(StreamNotFoundError), loader:
        pass


def test_leaving_early_stops_it(local_kinesis: LocalKinesis) -> None:
    local_kinesis.create_stream("s", 1)
    shard_id = next(iter(local_kinesis.records("s")))
    local_kinesis.add_fault(Fault("PutRecords", "throttle", shard_id=shard_id, times=None))
    with start_loader(local_kinesis.properties("s"), _RECORDS) as (loader, loading):
        pass
    assert loading.done()
    assert loader.put < len(_RECORDS)


@pytest.mark.parametrize("count", [0, 1, 500, 501])
def test_any_number_of_records_is_put(local_kinesis: LocalKinesis, count: int) -> None:
    local_kinesis.create_stream("s", 1)
    with start_loader(local_kinesis.properties("s"), _RECORDS[:count]) as (loader, loading):
        loading.result()
    assert loader.put == count
