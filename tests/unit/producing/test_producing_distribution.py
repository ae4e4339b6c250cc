"""Streams that distribute records themselves, and listings that explain nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import KinesisProducer, PutResult
from kinesis_publishers.aggregation import decode_aggregate
from kinesis_publishers.engine.discovery import ShardDiscovery
from kinesis_publishers.errors import RecordExpiredError, RecordsNotWrittenError
from kinesis_publishers.events import RecordsRefused, ShardMispredicted
from kinesis_publishers.model import hash_key_of
from kinesis_publishers.model.records import AGGREGATE_MAGIC
from kinesis_publishers.producing.routing import ShardMap
from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.producing.producing_support import STREAM, SlowWriter, Writing
from tests.unit.producing.test_producing_aggregates import read_by_ours, read_by_the_kcl

if TYPE_CHECKING:
    from kinesis_publishers import Shard
    from kinesis_publishers.abc import PutAnswer, PutColumns
    from kinesis_publishers.assembly import WritingServices

DATA = [b"%d" % number for number in range(400)]


def _aggregates(writing: Writing) -> int:
    return sum(one.data.startswith(AGGREGATE_MAGIC) for one in writing.stored())


@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_there_records_go_alone_and_without_keys_that_nobody_gave(
    writing: Writing, caplog: pytest.LogCaptureFixture, ordering: str
) -> None:
    writing.server.distribute(STREAM)
    async with writing.producer(aggregation=True, ordering=ordering) as producer:
        given = [(data, "key", None) for data in DATA[:200]] + [(data, None) for data in DATA[200:]]
        results = await writing.result(await producer.put_many(given))
    stored = writing.stored()
    assert sorted((one.data, one.partition_key) for one in stored) == sorted(
        (data, "key" if n < 200 else None) for n, data in enumerate(DATA)
    )
    assert Counter(one.shard_id for one in results).keys() == writing.server.records(STREAM).keys()
    assert {one.attempts for one in results} == {1}
    assert writing.total(ShardMispredicted, "records") == 0
    (said,) = [one.message for one in caplog.records]
    assert said.startswith("The stream orders distributes its records itself (strategy AUTO). The")


async def test_a_hot_key_has_the_rate_of_all_shards_there() -> None:
    clock = ManualClock()
    writing = Writing(LocalKinesis(Limits.aws(writes=True), clock), clock)
    writing.server.create_stream(STREAM, 4)
    writing.server.distribute(STREAM)
    async with writing.producer() as producer:
        await writing.result(await producer.put_many([(b"x", "hot")] * 20_000))
        assert writing.clock.monotonic() < 8
    assert writing.total(RecordsRefused, "entries") < 1_000


@pytest.mark.parametrize("is_resharded", [False, True])
async def test_aggregates_on_their_way_when_the_stream_begins_it_are_lost_to_no_reader(
    writing: Writing, is_resharded: bool
) -> None:
    if is_resharded:
        writing.server.reshard(STREAM, 5)
    writer = writing.slow(0.5)
    async with writing.producer(writer=writer, aggregation=True) as producer:
        futures = [await producer.put(data, data.decode()) for data in DATA[:100]]
        await writing.clock.advance(0.2)
        writing.server.distribute(STREAM)
        futures += [await producer.put(data, data.decode()) for data in DATA[100:200]]
        await writing.until_done(futures)
        aggregates = _aggregates(writing)
        await writing.result(await producer.put_many([(one, None) for one in DATA[200:]]))
    assert _aggregates(writing) == aggregates > 0
    assert writing.total(ShardMispredicted, "records") == 0
    for found in (await read_by_ours(writing), await read_by_the_kcl(writing)):
        assert set(found) == set(DATA)


async def test_records_without_keys_have_one_when_the_stream_wants_them_again(
    writing: Writing, caplog: pytest.LogCaptureFixture
) -> None:
    writing.server.distribute(STREAM)
    writer = writing.slow(0.5)
    async with writing.producer(writer=writer, aggregation=True, ratelimit=1) as producer:
        future = await producer.put_many([(data, None) for data in DATA])
        await writing.clock.advance(0.2)
        writing.server.distribute(STREAM, is_auto=False)
        await writing.result(future)
        # It was asked when the first call was refused.
        assert [one.message for one in caplog.records][1:] == [
            "The stream orders distributes its records by their partition keys again."
        ]
    assert sorted(writing.data()) == sorted(DATA)
    assert {len(one.partition_key) for one in writing.stored() if one.partition_key} == {1, 16}
    assert _aggregates(writing) > 0


async def test_a_producer_whose_records_have_keys_learns_within_a_minute_that_they_decide(
    writing: Writing,
) -> None:
    writing.server.distribute(STREAM)
    async with writing.producer(aggregation=True) as producer:
        await writing.result(await producer.put(b"x", "k"))
        writing.server.distribute(STREAM, is_auto=False)
        await writing.clock.advance(61)
        await writing.result(await producer.put(b"x", "k"))
        await writing.result(await producer.put_many([(data, "k") for data in DATA]))
    (aggregate,) = [one for one in writing.stored() if one.data.startswith(AGGREGATE_MAGIC)]
    assert list(decode_aggregate(aggregate.data).payloads) == DATA


async def _show_old_shards(
    writing: Writing, services: WritingServices, monkeypatch: pytest.MonkeyPatch, until: float
) -> tuple[Shard, ...]:
    """Let listings show the shards of now as open beside their children; return them."""
    old, listed = await services.list_shards(), services.discovery.list_shards

    async def list_shards(arn: str, **options: Any) -> tuple[Shard, ...]:
        shards = await listed(arn, **options)
        parents = set(old) - set(shards) if writing.clock.monotonic() < until else set()
        return (*parents, *shards)

    monkeypatch.setattr(ShardDiscovery, "list_shards", staticmethod(list_shards))
    return old


@pytest.mark.parametrize("seconds", [2.0, 1000.0])
async def test_an_aggregate_waits_for_a_listing_that_does_not_contradict_the_answer(
    writing: Writing, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Two replicas disagree: one still shows the parents as open, beside their children."""
    services = await writing.services(aggregation=True, recordttlmillis="10s")
    old = await _show_old_shards(writing, services, monkeypatch, seconds)
    writing.server.reshard(STREAM, 4)
    async with KinesisProducer(services, ShardMap.of(old)) as producer:
        future = await producer.put_many([(data, data.decode()) for data in DATA])
        await writing.until_done([future])
        error = future.exception()
        if seconds == 2.0:
            assert error is None
        else:
            assert isinstance(error, RecordsNotWrittenError)
            assert {type(one) for one in error.results} <= {RecordExpiredError, PutResult}
            with pytest.raises(RecordsNotWrittenError, match="both as open"):
                await producer.flush()
    monkeypatch.undo()
    results = [future.result()] if error is None else [error.results]  # type: ignore[union-attr]
    written = {data for data, one in zip(DATA, *results, strict=True) if type(one) is PutResult}
    for found in (await read_by_ours(writing), await read_by_the_kcl(writing)):
        assert set(found) >= written
        assert len(written) == len(DATA) or seconds > 2


async def test_each_aggregate_of_an_answer_waits_for_a_listing_for_its_own_time_to_live(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LateAnswers(SlowWriter):
        async def put_records(self, stream_arn: str, records: PutColumns) -> PutAnswer:
            seconds, self.seconds = self.seconds, 0.0
            answer = await self.server.data_plane().put_records(stream_arn, records)
            await self.clock.sleep(seconds)
            return answer

    services = await writing.services(
        writer=LateAnswers(writing.server, writing.clock, 4.0),
        aggregation=True,
        aggregation_maxrecords=10,
        maxinflight=1,
        recordttlmillis="10s",
    )
    old = await _show_old_shards(writing, services, monkeypatch, 11.5)
    one_shard = [one for one in DATA if hash_key_of(one.decode()) < 2**127]
    async with KinesisProducer(services, ShardMap.of(old)) as producer:
        first = await producer.put(b"x", "a")
        await writing.clock.advance(1)
        early = await producer.put_many([(one, one.decode()) for one in one_shard[:10]])
        writing.server.reshard(STREAM, 4)
        await writing.clock.advance(2)
        # Both wait for the answer to the first call, and are sent with the next one.
        late = await producer.put_many([(one, one.decode()) for one in one_shard[10:20]])
        await writing.until_done([first, early, late])
        assert isinstance(error := early.exception(), RecordsNotWrittenError)
        assert {type(one) for one in error.results} == {RecordExpiredError}
        assert len(late.result()) == 10
        with pytest.raises(RecordsNotWrittenError, match="both as open"):
            await producer.flush()
    monkeypatch.undo()
    for found in (await read_by_ours(writing), await read_by_the_kcl(writing)):
        assert set(found) >= set(one_shard[10:20])
