"""Aggregates by predicted shard, and predictions that a reshard has made wrong."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from aws_kinesis_agg.deaggregator import iter_deaggregate_records

from kinesis_publishers import (
    KinesisProducer,
    PutResult,
    RecordBatch,
    StartingPosition,
    UserRecord,
)
from kinesis_publishers.abc import PutAnswer, PutColumns, RecordWriter
from kinesis_publishers.aggregation import decode_aggregate
from kinesis_publishers.aggregation.deaggregation import Deaggregator
from kinesis_publishers.config import AggregationMode
from kinesis_publishers.engine.discovery import ShardDiscovery
from kinesis_publishers.errors import InvalidRecordError, RecordExpiredError, RecordsNotWrittenError
from kinesis_publishers.events import RecordsFailed, ShardMispredicted
from kinesis_publishers.model import HashRange, hash_key_of
from kinesis_publishers.model.records import AGGREGATE_MAGIC
from kinesis_publishers.producing.routing import ShardMap
from kinesis_publishers.testing.local_kinesis import Fault
from tests.unit.producing.producing_support import FIRST, KEYS, SECOND, STREAM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers import Shard
    from tests.unit.producing.producing_support import Writing

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def _shards(writing: Writing) -> tuple[Shard, ...]:
    services = await writing.services()
    return await services.discovery.list_shards(services.arn)


async def read_by_ours(
    writing: Writing, mode: AggregationMode = AggregationMode.AUTO
) -> list[bytes]:
    """Return what a reader of this package delivers of all shards."""
    plane, shards = writing.server.data_plane(), await _shards(writing)

    async def list_shards(_: str) -> tuple[Shard, ...]:
        return shards

    deaggregator = Deaggregator(mode, lambda _: None, list_shards)
    found: list[bytes] = []
    for shard in shards:
        iterator = await plane.get_shard_iterator(shard, StartingPosition.trim_horizon())
        page = await plane.get_records(shard, iterator, 10_000)
        batch = RecordBatch.from_page(page, shard=shard, requested_at=_NOW)
        found += [record.data for record in await deaggregator.expand(batch, shard)]
        await writing.clock.advance(1)  # The rate of GetShardIterator.
    return found


async def read_by_the_kcl(writing: Writing) -> list[bytes]:
    """Return what the KCL delivers, which drops an aggregate if any of its records is foreign.

    Its AggregatorUtil is tried itself in tests/integration/leases/kcl.
    """
    found: list[bytes] = []
    for shard in await _shards(writing):
        hash_range = HashRange.of(shard)
        for stored in writing.stored(shard.shard_id):
            if not stored.data.startswith(AGGREGATE_MAGIC):
                found.append(stored.data)
                continue
            one = decode_aggregate(stored.data)
            hash_keys = map(hash_key_of, one.partition_keys, one.explicit_hash_keys)
            if all(hash_key in hash_range for hash_key in hash_keys):
                found += one.payloads
    return found


def _records(first: int, count: int) -> list[tuple[bytes, str]]:
    return [(b"%d" % n, f"key-{n}") for n in range(first, first + count)]


async def test_an_aggregate_has_the_records_of_one_shard(writing: Writing) -> None:
    async with writing.producer(aggregation=True) as producer:
        await producer.put_many(_records(0, 1_000))
    for shard in await _shards(writing):
        for stored in writing.stored(shard.shard_id):
            assert stored.partition_key == "a"
            for key in decode_aggregate(stored.data).partition_keys:
                assert hash_key_of(key, None) in HashRange.of(shard)
    assert len(writing.stored()) == 2
    assert sorted(await read_by_ours(writing)) == sorted(data for data, _ in _records(0, 1_000))


def read_by_aws(writing: Writing) -> list[bytes]:
    """Return what AWS's modules for Lambda deliver, which leave nothing out."""
    outer = [
        {
            "SequenceNumber": one.sequence_number,
            "PartitionKey": one.partition_key,
            "ApproximateArrivalTimestamp": 1.0,
            "Data": one.data,
        }
        for one in writing.stored()
    ]
    found = [one["kinesis"]["data"] for one in iter_deaggregate_records(outer, "Boto3")]
    return [base64.b64decode(one) for one in found]


async def test_aws_reads_what_is_packed_and_copies_after_a_reshard_twice(writing: Writing) -> None:
    async with writing.producer(aggregation=True) as producer:
        await writing.result(await producer.put_many(_records(0, 300)))
        assert sorted(read_by_aws(writing)) == sorted(data for data, _ in _records(0, 300))
        writing.server.reshard(STREAM, 3)
        await writing.result(await producer.put_many(_records(300, 300)))
    found = Counter(read_by_aws(writing))
    assert found.keys() == {data for data, _ in _records(0, 600)}
    assert set(found.values()) == {1, 2}


async def test_one_that_is_alone_goes_as_it_is(writing: Writing) -> None:
    async with writing.producer(aggregation=True) as producer:
        await producer.put(b"plain", KEYS[FIRST])
    (stored,) = writing.stored()
    assert (stored.partition_key, stored.data) == (KEYS[FIRST], b"plain")


async def test_an_aggregate_is_no_larger_than_the_limit_and_a_larger_record_goes_alone(
    writing: Writing,
) -> None:
    sizes = [10, 1_000, 2_000, 3_000, 900, 5, 5, 2_048, 100] * 20
    options = {"aggregation": True, "aggregation_maxbytes": 2_048}
    async with writing.producer(**options) as producer:
        await producer.put_many([(bytes(size), f"key-{n}") for n, size in enumerate(sizes)])
    for stored in writing.stored():
        if stored.data.startswith(AGGREGATE_MAGIC):
            assert len(stored.data) <= 2_048
    assert Counter(map(len, writing.data())) == Counter(sizes)


async def test_an_aggregate_has_no_more_records_than_the_limit(writing: Writing) -> None:
    options = {"aggregation": True, "aggregation_maxrecords": 7}
    async with writing.producer(**options) as producer:
        await producer.put_many([(b"x", KEYS[FIRST])] * 50)
    counts = [len(decode_aggregate(one.data).payloads) for one in writing.stored()[:-1]]
    assert counts == [7] * 7
    assert len(writing.data()) == 50


@pytest.mark.parametrize("shards", [1, 3, 4, 7])
@pytest.mark.parametrize("options", [{}, {"ordering": "key"}], ids=["", "ordered"])
async def test_across_a_reshard_every_reader_gets_every_record_once(
    writing: Writing, shards: int, options: dict[str, str]
) -> None:
    async with writing.producer(aggregation=True, **options) as producer:
        before = await producer.put_many(_records(0, 300))
        await writing.run(producer.flush())
        writing.server.reshard(STREAM, shards)
        after = await producer.put_many(_records(300, 300))
        await writing.run(producer.flush())
        later = await producer.put_many(_records(600, 300))
        await writing.run(producer.flush())
        assert [len(one.result()) for one in (before, after, later)] == [300, 300, 300]
    expected = sorted(data for data, _ in _records(0, 900))
    assert sorted(await read_by_ours(writing)) == expected
    assert sorted(await read_by_the_kcl(writing)) == expected
    assert 0 < writing.total(ShardMispredicted, "records") <= 300
    # A result names the place where readers find the record.
    places = await _places(writing)
    for (data, _), result in zip(_records(300, 300), after.result(), strict=True):
        assert places[data] == result[:3]
        assert result.attempts in (1, 2)


async def _places(writing: Writing) -> dict[bytes, tuple[str, str, int | None]]:
    """Return the first place of each record in a shard to which it belongs."""
    found: dict[bytes, tuple[str, str, int | None]] = {}
    for shard in await _shards(writing):
        hash_range = HashRange.of(shard)
        for stored in writing.stored(shard.shard_id):
            if not stored.data.startswith(AGGREGATE_MAGIC):
                found.setdefault(stored.data, (shard.shard_id, stored.sequence_number, None))
                continue
            one = decode_aggregate(stored.data)
            for sub, (data, key) in enumerate(zip(one.payloads, one.partition_keys, strict=True)):
                if hash_key_of(key, None) in hash_range:
                    place = (shard.shard_id, stored.sequence_number, sub)
                    found.setdefault(data, place)
    return found


async def test_explicit_hash_keys_decide_after_a_reshard_too(writing: Writing) -> None:
    records = [(b"%d" % n, "k", str(n * 2**120)) for n in range(256)]
    async with writing.producer(aggregation=True) as producer:
        await producer.put(b"known", "k")
        await writing.run(producer.flush())
        writing.server.reshard(STREAM, 4)
        await writing.result(await producer.put_many(records))
    expected = sorted([b"known", *(data for data, _, _ in records)])
    assert sorted(await read_by_ours(writing)) == expected
    assert sorted(await read_by_the_kcl(writing)) == expected


async def test_with_unfiltered_a_reader_gets_copies_of_others_alone(writing: Writing) -> None:
    async with writing.producer(aggregation=True) as producer:
        await writing.run(producer.flush())
        writing.server.reshard(STREAM, 4)
        await writing.result(await producer.put_many(_records(0, 300)))
    found = Counter(await read_by_ours(writing, AggregationMode.UNFILTERED))
    resent = writing.total(ShardMispredicted, "resent")
    assert sum(found.values()) == 300 + resent
    assert set(found) == {data for data, _ in _records(0, 300)}


async def test_plain_records_need_no_mending(writing: Writing) -> None:
    async with writing.producer() as producer:
        await writing.run(producer.flush())
        writing.server.reshard(STREAM, 4)
        results = await writing.result(await producer.put_many(_records(0, 300)))
    assert len(writing.stored()) == 300
    assert all(one.attempts == 1 for one in results)
    assert writing.total(ShardMispredicted, "resent") == 0
    # At the start, and once more: the next records go to queues of their own.
    assert len(writing.server.calls("ListShards")) == 2


async def test_what_waits_for_a_closed_shard_goes_to_those_that_continue_it(
    writing: Writing,
) -> None:
    options = {"aggregation": True, "buffer_maxrecords": 100, "ordering": "key"}
    async with writing.producer(**options) as producer:
        putting = asyncio.ensure_future(producer.put_many(_records(0, 1_000)))
        await writing.clock.settle()
        writing.server.reshard(STREAM, 5)
        await writing.result(await writing.result(putting))
    assert sorted(await read_by_ours(writing)) == sorted(data for data, _ in _records(0, 1_000))


_NO_NUMBER = (
    f'{{"Shards": [{{"ShardId": "{FIRST}", "HashKeyRange": {{"StartingHashKey": "0", '
    '"EndingHashKey": "0x7f"}, "SequenceNumberRange": {"StartingSequenceNumber": "1"}}]}'
)


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "error", "code": "AccessDeniedException", "message": ""},
        {"kind": "body", "message": _NO_NUMBER},
        {"kind": "body", "message": _NO_NUMBER.replace(f'"{FIRST}"', f'["{FIRST}"]')},
    ],
)
async def test_shards_that_cannot_be_listed_cost_copies_and_no_record(
    writing: Writing, fault: dict[str, Any]
) -> None:
    async with writing.producer(aggregation=True) as producer:
        await writing.run(producer.flush())
        writing.server.reshard(STREAM, 4)
        writing.server.add_fault(Fault("ListShards", **fault, times=1))
        results = await writing.result(await producer.put_many(_records(0, 300)))
    assert len(results) == 300
    found = Counter(await read_by_ours(writing))
    assert set(found) == {data for data, _ in _records(0, 300)}


async def test_a_reshard_while_the_shard_throttles(writing: Writing) -> None:
    async with writing.producer(aggregation=True) as producer:
        writing.server.add_fault(Fault("PutRecords", "throttle", shard_id=FIRST, times=5))
        futures = [await producer.put(data, key) for data, key in _records(0, 200)]
        await writing.clock.advance(0.2)
        writing.server.reshard(STREAM, 3)
        await writing.until_done(futures)
    expected = sorted(data for data, _ in _records(0, 200))
    assert sorted(await read_by_ours(writing)) == expected
    assert sorted(await read_by_the_kcl(writing)) == expected


async def test_what_cannot_be_sent_again_is_an_error_although_it_is_in_the_stream(
    writing: Writing,
) -> None:
    class TakesOneCall(RecordWriter):
        """Everything of the first call is taken, and nothing of those after it."""

        async def put_records(self, stream_arn: str, records: PutColumns) -> PutAnswer:
            answer = await plane.put_records(stream_arn, records)
            writing.server.add_fault(Fault("PutRecords", "throttle", times=None))
            return answer

    plane = writing.server.data_plane()
    options = {"aggregation": True, "recordttlmillis": "5s"}
    async with writing.producer(writer=TakesOneCall(), **options) as producer:
        first, second = (KEYS[one] for one in (FIRST, SECOND))
        writing.server.reshard(STREAM, 4)
        records = [(b"0", first, "0"), (b"1", first, str(2**127 - 1)), (b"2", second)]
        future = await producer.put_many(records)
        await writing.until_done([future])
        error = future.exception()
        assert isinstance(error, RecordsNotWrittenError)
        with pytest.raises(RecordsNotWrittenError, match="2 of the records"):
            await producer.flush()
    kinds = [type(one) for one in error.results]
    assert kinds == [RecordExpiredError, RecordExpiredError, PutResult]
    assert writing.total(RecordsFailed, "records") == 2


async def test_markers_travel_in_aggregates(writing: Writing) -> None:
    records = [
        UserRecord(data=b"%d" % n, partition_key="k", marker=f"query/7/{n}") for n in range(3)
    ]
    async with writing.producer() as producer:
        await writing.result(await producer.put_many(records))
    # Without aggregation each has an aggregate of its own, with its own partition key.
    assert [one.partition_key for one in writing.stored()] == ["k", "k", "k"]
    plane, (_, shard) = writing.server.data_plane(), await _shards(writing)
    iterator = await plane.get_shard_iterator(shard, StartingPosition.trim_horizon())
    page = await plane.get_records(shard, iterator, 10_000)
    batch = RecordBatch.from_page(page, shard=shard, requested_at=_NOW)
    deaggregator = Deaggregator(AggregationMode.AUTO, lambda _: None, lambda _: _shards(writing))
    delivered = list(await deaggregator.expand(batch, shard))
    assert [(one.data, one.marker) for one in delivered] == [
        (b"%d" % n, f"query/7/{n}") for n in range(3)
    ]


async def _opened(writing: Writing, hidden: int, **options: Any) -> KinesisProducer:
    """Open a producer whose first listing lacks a shard, as it may during a reshard."""
    services = await writing.services(aggregation=True, **options)
    shards = await services.list_shards()
    lacking = [one for one in shards if one is not _open_ones(shards)[hidden]]
    return await KinesisProducer(services, ShardMap.of(lacking)).__aenter__()


def _open_ones(shards: Sequence[Shard]) -> list[Shard]:
    return sorted(
        (one for one in shards if not one.is_closed), key=lambda one: int(one.starting_hash_key)
    )


@pytest.mark.parametrize("hidden", range(4))
@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_a_listing_with_a_hole_costs_no_record(
    writing: Writing, hidden: int, ordering: str
) -> None:
    writing.server.reshard(STREAM, 4)
    producer = await _opened(writing, hidden, ordering=ordering)
    # The second half waits when the listing is known to be wrong.
    await producer.put_many(_records(0, 150))
    await writing.clock.advance(0.095)
    results = await producer.put_many(_records(150, 150))
    await writing.result(results)
    await writing.run(producer.close())
    expected = sorted(data for data, _ in _records(0, 300))
    assert sorted(await read_by_ours(writing)) == expected
    assert sorted(await read_by_the_kcl(writing)) == expected


async def test_a_shard_that_is_listed_late_is_waited_for(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = await writing.services(aggregation=True, writer=writing.slow(0.02))
    old, listings = await services.list_shards(), 0

    async def late(_: str, *, since: object) -> tuple[Shard, ...]:
        nonlocal listings
        listings += 1
        await writing.clock.sleep(0.02)
        return old if writing.clock.monotonic() < shown_at else await listed(_, since=since)

    listed: Any = services.discovery.list_shards
    shown_at = writing.clock.monotonic() + 2
    monkeypatch.setattr(ShardDiscovery, "list_shards", staticmethod(late))
    producer = await KinesisProducer(services, ShardMap.of(old)).__aenter__()
    writing.server.reshard(STREAM, 4)
    await writing.result(await producer.put_many(_records(0, 300)))
    await writing.run(producer.close())
    monkeypatch.undo()
    expected = sorted(data for data, _ in _records(0, 300))
    assert sorted(await read_by_ours(writing)) == expected
    assert listings <= 10
    # Each once more, at the most: as a copy or because it belongs elsewhere.
    assert len(writing.data()) <= 600


async def test_a_shard_that_is_never_listed_is_an_error(writing: Writing) -> None:
    options = {"aggregation": True, "recordttlmillis": "5s"}
    async with writing.producer(**options) as producer:
        await writing.run(producer.flush())
        writing.server.reshard(STREAM, 4)
        denied = Fault("ListShards", "error", code="AccessDeniedException", message="", times=None)
        writing.server.add_fault(denied)
        future = await producer.put_many(_records(0, 300))
        await writing.until_done([future])
        with pytest.raises(RecordsNotWrittenError, match="is not listed: readers") as raised:
            await future
        assert isinstance(raised.value.results[0], RecordExpiredError)
        with pytest.raises(RecordsNotWrittenError):
            await writing.run(producer.flush())
    assert len(writing.data()) <= 300


async def test_a_large_aggregate_lingers_like_a_small_one(writing: Writing) -> None:
    async with writing.producer(aggregation=True, aggregation_maxbytes="1MB") as producer:
        future = await producer.put_many([(bytes(1_000), KEYS[FIRST])] * 400)
        await writing.until_done([future], within=1)
    assert len(writing.server.calls("PutRecords")) == 1


@pytest.mark.parametrize("marker", ["a/\ud800", "no slash", "/1", "", 7])
async def test_a_marker_that_readers_would_not_get_is_refused(
    writing: Writing, marker: Any
) -> None:
    with pytest.raises(ValueError, match="a marker must be a text"):
        UserRecord(data=b"x", partition_key="k", marker=marker)
    async with writing.producer(aggregation=True) as producer:
        with pytest.raises(InvalidRecordError, match=r"a marker must be .* partition key 'k'\)"):
            await producer.put_many([(b"x", "k", None, marker)])


async def test_the_marker_counts_for_the_size(writing: Writing) -> None:
    async with writing.producer() as producer:
        with pytest.raises(InvalidRecordError, match="with that key and its marker"):
            await producer.put_many([(bytes(1024 * 1024 - 50), "k", None, "batch/1")])
        largest = bytes(1024 * 1024 - 150)
        future = await producer.put_many([(largest, "k", None, "batch/1")])
        await writing.result(future)
    assert writing.data() == [largest]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_listing_that_does_not_end_is_given_up_with_the_records(
    writing: Writing, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """So is one that fails as no code here expects."""

    async def never(*_: object, **__: object) -> None:
        if fails:
            raise RuntimeError("a bug")
        await asyncio.Event().wait()

    services = await writing.services(aggregation=True, recordttlmillis="5s")
    old = await services.list_shards()
    monkeypatch.setattr(ShardDiscovery, "list_shards", staticmethod(never))
    producer = await KinesisProducer(services, ShardMap.of(old)).__aenter__()
    writing.server.reshard(STREAM, 4)
    future = await producer.put_many(_records(0, 40))
    await writing.until_done([future], within=6)
    with pytest.raises(RecordsNotWrittenError):
        await writing.run(producer.close())
