"""How a task reads its ranges: as they arrive, in bounded memory, with its process's readers."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import Properties
from kinesis_publishers.errors import AccessDeniedError
from kinesis_publishers.model.native import PackedColumn, native
from kinesis_publishers.testing.local_kinesis import Fault, Limits, LocalKinesis
from kinesis_publishers_spark import workers
from kinesis_publishers_spark.partitions import RangePartition
from kinesis_publishers_spark.schema import Columns
from kinesis_publishers_spark.workers import WorkerCache, WorkerReader
from tests.integration.readers.range_reading import (
    STREAM,
    StoredStream,
    polling_properties,
)
from tests.integration.spark.planner.planner_harness import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from kinesis_publishers import ShardRange

KIB, MIB = 1024, 1024 * 1024


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerCache[WorkerReader]]:
    """The readers of one worker process, which ends with the test."""
    cache = WorkerCache(WorkerReader)
    monkeypatch.setattr(workers, "lend_reader", cache.lend)
    yield cache
    cache.close()


@pytest.fixture
def server(cache: WorkerCache[WorkerReader]) -> Iterator[LocalKinesis]:
    with LocalKinesis.in_thread(Limits.off()) as server:
        yield server
        cache.close()


def stored(
    server: LocalKinesis, *, shards: int = 4, count: int = 400, size: int = 100
) -> StoredStream:
    server.create_stream(STREAM, shards)
    server.put_many(STREAM, [(f"key-{n}", str(n).encode().ljust(size)) for n in range(count)])
    return StoredStream.of(server)


def task(server: LocalKinesis, ranges: Iterable[ShardRange], **more: str) -> RangePartition:
    properties = Properties.parse(polling_properties(server, **more))
    return RangePartition(properties, tuple(ranges))


def rows_of(batches: Iterable[pa.RecordBatch]) -> dict[str, list[tuple[str, bytes]]]:
    rows: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
    for batch in batches:
        for row in batch.to_pylist():
            rows[row["shardId"]].append((row["sequenceNumber"], row["data"]))
    return rows


@pytest.mark.parametrize("include_metadata", [False, True])
def test_the_rows_have_the_schema_that_spark_was_told(
    server: LocalKinesis, include_metadata: bool
) -> None:
    stream = stored(server)
    option = {"spark_includemetadata": str(include_metadata).lower()}
    batches = list(task(server, stream.whole(), **option).read())
    schema = Columns(metadata=include_metadata).arrow
    assert all(batch.schema.equals(schema, check_metadata=True) for batch in batches)
    assert rows_of(batches) == stream.rows()


def test_a_task_makes_no_objects_of_values_where_native_code_decodes(
    server: LocalKinesis, cache: WorkerCache[WorkerReader]
) -> None:
    stream = stored(server)
    with cache.lend(Properties.parse(polling_properties(server))) as reader:
        batches = [one.batch for taken in reader.read(stream.whole()) for one in taken]
    assert sum(map(len, batches)) == 400
    assert {type(one.payloads) for one in batches} == {PackedColumn if native() else list}


def test_the_next_task_of_the_process_goes_on_with_the_same_reader(
    server: LocalKinesis, cache: WorkerCache[WorkerReader]
) -> None:
    stream = stored(server)
    halves: tuple[list[ShardRange], list[ShardRange]] = ([], [])
    for shard_id, held in stream.records.items():
        middle = len(held) // 2
        halves[0].append(stream.range_of(shard_id, 0, middle))
        halves[1].append(stream.range_of(shard_id, middle + 1, len(held) - 1))
    first = rows_of(task(server, halves[0]).read())
    second = rows_of(task(server, halves[1]).read())
    assert {key: first[key] + second[key] for key in first} == stream.rows()
    assert len(cache) == 1


def test_tiny_pages_of_many_shards_make_few_batches(server: LocalKinesis) -> None:
    stream = stored(server, shards=64, count=1000)
    batches = task(server, stream.whole()).read()
    first = next(batches)
    # Whatever has come by the time the first batch has been worked on comes at once.
    eventually(lambda: len(server.calls("GetRecords")) >= 64, "pages")
    rest = list(batches)
    assert rows_of([first, *rest]) == stream.rows()
    assert 1 + len(rest) < 32


def test_reading_stops_while_spark_does_not_take_what_is_there(server: LocalKinesis) -> None:
    stream = stored(server, shards=2, count=400, size=50 * KIB)
    limits = {"pending_maxbytes": str(4 * MIB), "shard_getrecords_maxrecordcount": "20"}
    batches = task(server, stream.whole(), **limits).read()
    largest = 0
    read = [next(batches)]
    while (batch := next(batches, None)) is not None:
        read.append(batch)
        answered = 20 * len(server.calls("GetRecords"))
        taken = sum(one.num_rows for one in read)
        largest = max(largest, answered - taken)
    assert rows_of(read) == stream.rows()
    assert largest * 50 * KIB <= 4 * MIB + 2 * 20 * 50 * KIB


def test_what_has_been_taken_is_not_held_any_longer(
    server: LocalKinesis, cache: WorkerCache[WorkerReader]
) -> None:
    stream = stored(server, count=4000)
    properties = Properties.parse(polling_properties(server, shard_getrecords_maxrecordcount="100"))
    with cache.lend(properties) as reader:
        taken = list(reader.read(stream.whole()))
    assert len(taken) > 1
    assert not any(taken)


def test_an_error_of_one_range_is_the_error_of_the_task(
    server: LocalKinesis, cache: WorkerCache[WorkerReader]
) -> None:
    stream = stored(server)
    server.add_fault(
        Fault(
            "GetRecords",
            "error",
            code="AccessDeniedException",
            times=None,
            shard_id="shardId-000000000002",
        )
    )
    with pytest.raises(AccessDeniedError):
        list(task(server, stream.whole()).read())
    assert len(cache) == 0
    server.clear_faults()
    assert rows_of(task(server, stream.whole()).read()) == stream.rows()


def test_a_task_that_is_ended_early_stops_reading_and_leaves_nothing_half_read(
    server: LocalKinesis, cache: WorkerCache[WorkerReader]
) -> None:
    stream = stored(server, shards=2, count=400, size=50 * KIB)
    limits = {"pending_maxbytes": str(4 * MIB), "shard_getrecords_maxrecordcount": "20"}
    partition = task(server, stream.whole(), **limits)
    batches = partition.read()
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert len(cache) == 1
    eventually(lambda: len(server.calls("GetShardIterator")) == 2, "both shards")
    assert rows_of(partition.read()) == stream.rows()
    assert len(server.calls("GetShardIterator")) == 4
