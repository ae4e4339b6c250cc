"""What becomes of records that the service refuses, or of which it says nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import PutResult
from kinesis_publishers.abc import PutAnswer, PutColumns, RecordWriter
from kinesis_publishers.errors import (
    AccessDeniedError,
    InvalidArgumentError,
    RecordExpiredError,
    RecordsNotWrittenError,
    StreamNotFoundError,
    ThroughputExceededError,
)
from kinesis_publishers.events import PutRecordsAnswered, RecordsFailed, RecordsRefused
from kinesis_publishers.producing import collector
from kinesis_publishers.testing.local_kinesis import Fault
from tests.unit.producing.producing_support import FIRST, KEYS, SECOND, STREAM, SlowWriter

if TYPE_CHECKING:
    from tests.unit.producing.producing_support import Writing

BOTH = pytest.mark.parametrize("aggregation", [False, True], ids=["plain", "aggregated"])
_THROTTLED = "ProvisionedThroughputExceededException"


def _fault(kind: str, times: int | None = 1, **fields: object) -> Fault:
    return Fault("PutRecords", kind, times=times, **fields)  # type: ignore[arg-type]


@BOTH
async def test_only_what_was_refused_is_sent_again(writing: Writing, aggregation: bool) -> None:
    writing.server.add_fault(_fault("throttle", 2, shard_id=SECOND))
    # As few as a shard takes at once.
    records = [(b"%d" % number, f"{number}") for number in range(20)]
    options = {"aggregation": aggregation, "ratelimit_adaptive": False}
    async with writing.producer(**options) as producer:
        results = await writing.result(await producer.put_many(records))
    assert sorted(writing.data()) == sorted(data for data, _ in records)
    attempts = {(one.shard_id, one.attempts) for one in results}
    assert attempts == {(FIRST, 1), (SECOND, 3)}
    assert set(writing.count(RecordsRefused, "code")) == {_THROTTLED}


@BOTH
async def test_what_is_refused_is_sent_again_after_growing_random_delays(
    writing: Writing, aggregation: bool
) -> None:
    writing.server.add_fault(_fault("throttle", 8, shard_id=FIRST))
    async with writing.producer(aggregation=aggregation, backoff_base=1000) as producer:
        result = await writing.result(await producer.put(b"x", KEYS[FIRST]))
    assert result.attempts == 9
    # Uniform up to 1, 2, 4, 5, 5, 5, 5 and 5 seconds: 16 in the mean.
    assert 2 < result.seconds < 32


async def test_a_shard_that_refuses_does_not_hold_up_another(writing: Writing) -> None:
    writing.server.add_fault(_fault("throttle", None, shard_id=FIRST))
    async with writing.producer(recordttlmillis="20s") as producer:
        stuck = await producer.put(b"stuck", KEYS[FIRST])
        await writing.clock.advance(10)
        free = await producer.put(b"free", KEYS[SECOND])
        assert (await writing.result(free)).seconds < 0.15
        assert not stuck.done()
        await writing.until_done([stuck])
        with pytest.raises(RecordsNotWrittenError):
            await producer.flush()


@BOTH
async def test_a_record_that_is_refused_for_too_long_expires(
    writing: Writing, aggregation: bool
) -> None:
    writing.server.add_fault(_fault("throttle", None, shard_id=FIRST))
    async with writing.producer(aggregation=aggregation, recordttlmillis="7s") as producer:
        expired = await producer.put(b"x", KEYS[FIRST])
        written = await producer.put(b"y", KEYS[SECOND])
        await writing.until_done([expired, written])
        assert writing.clock.monotonic() == pytest.approx(7, abs=0.02)
        assert written.result().shard_id == SECOND
        error = expired.exception()
        assert isinstance(error, RecordExpiredError)
        assert isinstance(error.__cause__, ThroughputExceededError)
        assert "kinesis.producer.recordttlmillis" in str(error)
        with pytest.raises(RecordsNotWrittenError, match="1 of the records for orders") as raised:
            await producer.flush()
        assert raised.value.results == (error,)
        await producer.flush()  # It is said once.
    assert writing.total(RecordsFailed, "records") == 1


@BOTH
async def test_with_fail_on_error_the_first_refusal_is_final(
    writing: Writing, aggregation: bool
) -> None:
    writing.server.add_fault(_fault("throttle", shard_id=FIRST))
    async with writing.producer(aggregation=aggregation, failonerror=True) as producer:
        future = await producer.put(b"x", KEYS[FIRST])
        await writing.until_done([future])
        assert isinstance(future.exception(), ThroughputExceededError)
        writing.server.add_fault(_fault("internal_failure"))
        future = await producer.put(b"x", KEYS[FIRST])
        await writing.until_done([future])
        with pytest.raises(RecordsNotWrittenError, match="2 of the records"):
            await producer.flush()
    assert writing.stored() == []


@BOTH
@pytest.mark.parametrize("kind", ["internal_failure", "reset", "throttle"])
async def test_a_call_that_fails_is_made_again(
    writing: Writing, aggregation: bool, kind: str
) -> None:
    writing.server.add_fault(_fault(kind, 3))
    async with writing.producer(aggregation=aggregation) as producer:
        result = await writing.result(await producer.put(b"x", "k"))
    assert result.attempts == 4
    assert writing.data() == [b"x"]


@BOTH
async def test_after_a_lost_answer_a_record_may_be_there_twice_but_is_there(
    writing: Writing, aggregation: bool
) -> None:
    writing.server.add_fault(_fault("truncate"))
    async with writing.producer(aggregation=aggregation) as producer:
        result = await writing.result(await producer.put(b"x", "k"))
    assert result.attempts == 2
    assert writing.data() == [b"x", b"x"]
    assert writing.stored()[-1].sequence_number == result.sequence_number


async def test_a_call_without_an_answer_is_given_up_and_made_again(writing: Writing) -> None:
    writing.server.add_fault(_fault("delay", delay_seconds=1000.0))
    async with writing.producer(requesttimeoutmillis="3s") as producer:
        result = await writing.result(await producer.put(b"x", "k"))
    assert result.attempts == 2
    assert result.seconds > 3
    assert writing.count(PutRecordsAnswered, "code") == Counter({"RequestTimeout": 1, "": 1})


@BOTH
async def test_no_permission_is_an_error_at_once_that_names_the_action(
    writing: Writing, aggregation: bool
) -> None:
    writing.server.add_fault(_fault("error", code="AccessDeniedException", message="no"))
    async with writing.producer(aggregation=aggregation) as producer:
        future = await producer.put(b"x", "k")
        await writing.until_done([future])
        assert isinstance(future.exception(), AccessDeniedError)
        with pytest.raises(RecordsNotWrittenError, match="kinesis:PutRecords"):
            await producer.flush()
    assert len(writing.server.calls("PutRecords")) == 1


@BOTH
async def test_a_stream_that_was_deleted_is_an_error_at_once(
    writing: Writing, aggregation: bool
) -> None:
    async with writing.producer(aggregation=aggregation) as producer:
        writing.server.reset()
        future = await producer.put(b"x", "k")
        await writing.until_done([future])
        assert isinstance(future.exception(), StreamNotFoundError)
        with pytest.raises(RecordsNotWrittenError):
            await producer.flush()


async def test_a_node_that_does_not_know_the_stream_for_a_moment_is_asked_again(
    writing: Writing,
) -> None:
    missing = _fault("error", code="ResourceNotFoundException", message="Stream not found.")
    writing.server.add_fault(missing)
    async with writing.producer() as producer:
        assert (await writing.result(await producer.put(b"x", "k"))).attempts == 2


@BOTH
async def test_of_a_call_with_an_invalid_record_only_that_one_fails(
    writing: Writing, aggregation: bool
) -> None:
    # The service takes less than it says: nothing here can know which one it is.
    class Picky(RecordWriter):
        async def put_records(self, stream_arn: str, records: PutColumns) -> PutAnswer:
            if any(b"bad" in one for one in records.payloads):
                raise InvalidArgumentError(
                    "PutRecords of orders: no.", operation="PutRecords", code="ValidationException"
                )
            return await plane.put_records(stream_arn, records)

    plane = writing.server.data_plane()
    options = {"aggregation": aggregation, "aggregation_maxbytes": 64}
    async with writing.producer(writer=Picky(), **options) as producer:
        data = [b"bad" if number == 33 else b"%030d" % number for number in range(100)]
        future = await producer.put_many([(one, f"{n}") for n, one in enumerate(data)])
        await writing.until_done([future])
        error = future.exception()
        with pytest.raises(RecordsNotWrittenError):
            await producer.flush()
    assert isinstance(error, RecordsNotWrittenError)
    failed = [n for n, one in enumerate(error.results) if isinstance(one, InvalidArgumentError)]
    assert 33 in failed
    # Of aggregates, those that shared one with it fail too.
    assert len(failed) == 1 or (aggregation and len(failed) <= 3)
    assert sorted(writing.data()) == sorted(one for n, one in enumerate(data) if n not in failed)


@pytest.mark.parametrize(
    "entries",
    [
        "",
        '{"ShardId": null, "SequenceNumber": "1"}',
        '{"ShardId": ["s"], "SequenceNumber": "1"}',
        '{"ShardId": "s", "SequenceNumber": null}',
        '{"ShardId": "s", "SequenceNumber": ""}',
    ],
)
async def test_an_answer_that_makes_no_sense_is_a_lost_answer(
    writing: Writing, entries: str
) -> None:
    writing.server.add_fault(_fault("body", message=f'{{"Records": [{entries}]}}'))
    async with writing.producer() as producer:
        result = await writing.result(await producer.put(b"x", "k"))
    assert result.attempts == 2
    assert set(writing.count(PutRecordsAnswered, "code")) == {"", "MalformedResponse"}


async def test_a_record_with_an_error_code_is_not_written_whatever_the_count_says(
    writing: Writing,
) -> None:
    entry = f'{{"ErrorCode": "{_THROTTLED}", "ShardId": "{FIRST}", "SequenceNumber": "1"}}'
    body = f'{{"FailedRecordCount": 0, "Records": [{entry}]}}'
    writing.server.add_fault(_fault("body", message=body))
    async with writing.producer() as producer:
        result = await writing.result(await producer.put(b"x", KEYS[FIRST]))
    assert (result.attempts, writing.data()) == (2, [b"x"])


async def test_many_have_a_result_or_an_error_for_each(writing: Writing) -> None:
    writing.server.add_fault(_fault("throttle", None, shard_id=FIRST))
    keys = [KEYS[FIRST], KEYS[SECOND]] * 3
    async with writing.producer(recordttlmillis="1s") as producer:
        future = await producer.put_many([(b"x", key) for key in keys])
        await writing.until_done([future])
        error = future.exception()
        with pytest.raises(RecordsNotWrittenError, match="3 of the records for orders"):
            await producer.flush()
    assert isinstance(error, RecordsNotWrittenError)
    assert str(error).startswith("3 of 6 records were not written, or not for certain")
    assert [type(one) for one in error.results] == [RecordExpiredError, PutResult] * 3


class _Broken(RecordWriter):
    async def put_records(self, stream_arn: str, records: PutColumns) -> PutAnswer:
        raise RuntimeError("a bug")


async def test_a_producer_that_has_failed_says_so_at_its_end(writing: Writing) -> None:
    async with writing.producer(writer=_Broken()) as producer:
        await producer.put(b"x", KEYS[FIRST])
        await writing.clock.advance(1)
        # As leaving does.
        with pytest.raises(RecordsNotWrittenError, match=r"1 of the records .*a bug"):
            await producer.__aexit__()


@pytest.mark.parametrize("aggregation", [False, True])
@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_what_cannot_be_packed_leaves_no_future_behind(
    writing: Writing, monkeypatch: pytest.MonkeyPatch, aggregation: bool, ordering: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    options = {"aggregation": aggregation, "ordering": ordering}
    async with writing.producer(**options) as producer:
        futures: list[asyncio.Future[Any]] = [await producer.put(b"1", KEYS[FIRST])]
        marked = [(b"2", KEYS[SECOND], None, "batch/1"), (b"3", KEYS[SECOND], None, "batch/2")]
        futures.append(await producer.put_many(marked))
        futures.append(await producer.put(b"4", KEYS[FIRST]))
        monkeypatch.setattr(collector, "pack_first", broken)
        await writing.clock.advance(1)
        assert all(future.done() for future in futures)
        assert producer.pending_records == 0
        with pytest.raises(RecordsNotWrittenError, match="4 of the records"):
            await producer.close()


async def test_closing_in_the_middle_of_a_divided_call_counts_each_record_once(
    writing: Writing,
) -> None:
    class Refuses(SlowWriter):
        async def put_records(self, stream_arn: str, records: PutColumns) -> PutAnswer:
            answer = await super().put_records(stream_arn, records) if self.takes(records) else None
            if answer is None:
                await self.clock.sleep(self.seconds)
                raise InvalidArgumentError("no", operation="PutRecords", code="ValidationException")
            return answer

        def takes(self, records: PutColumns) -> bool:
            return not any(b"bad" in data for data in records.payloads)

    opened = writing.producer(writer=Refuses(writing.server, writing.clock, 0.3))
    producer = await opened.__aenter__()
    rows = [(b"ok %d" % number, f"{number}") for number in range(8)]
    future = await producer.put_many([*rows, (b"bad 1", "x"), (b"bad 2", "y")])
    await writing.clock.advance(0.8)
    with pytest.raises(RecordsNotWrittenError) as raised:
        await writing.run(producer.close(timeout_seconds=0.01))
    assert future.done()
    assert (producer.pending_records, producer.pending_bytes) == (0, 0)
    assert len(raised.value.results) + len(writing.data()) == 10


@pytest.mark.parametrize("turns", range(7))
async def test_closing_is_cancelled_when_the_answer_arrives(writing: Writing, turns: int) -> None:
    answered = asyncio.Event()

    class Held(RecordWriter):
        async def put_records(self, stream_arn: str, records: PutColumns) -> PutAnswer:
            answer = await writing.server.data_plane().put_records(stream_arn, records)
            await answered.wait()
            return answer

    opened = writing.producer(aggregation=True, writer=Held())
    producer = await opened.__aenter__()
    writing.server.reshard(STREAM, 3)
    future = await producer.put_many([(b"%d" % number, f"{number}") for number in range(50)])
    closing = asyncio.ensure_future(producer.close())
    await writing.clock.advance(0.2)
    closing.cancel()
    for _ in range(turns):
        await asyncio.sleep(0)
    answered.set()
    await writing.clock.advance(5)
    assert future.done()
    assert producer.pending_records == 0


async def test_who_closes_a_second_time_waits_for_the_first(writing: Writing) -> None:
    opened = writing.producer(writer=writing.slow(1.0))
    producer = await opened.__aenter__()
    future = await producer.put(b"x", KEYS[FIRST])
    both = [asyncio.ensure_future(producer.close()) for _ in range(2)]
    await writing.clock.advance(0.5)
    assert not any(one.done() for one in both)
    await writing.until_done(both)
    assert future.result().shard_id == FIRST


async def test_each_of_those_who_flush_at_a_time_learns_what_failed(writing: Writing) -> None:
    writing.server.add_fault(Fault("PutRecords", "throttle", shard_id=FIRST, times=None))
    async with writing.producer(recordttlmillis="2s") as producer:
        await producer.put(b"x", KEYS[FIRST])
        both = [asyncio.ensure_future(producer.flush()) for _ in range(2)]
        await writing.until_done(both)
        for one in both:
            with pytest.raises(RecordsNotWrittenError, match="1 of the records"):
                one.result()
        # It is said once.
        await writing.run(producer.flush())


async def test_what_waits_long_for_room_does_not_expire(writing: Writing) -> None:
    # A minute at the rate of a shard, and a third of that to live.
    rows = ((bytes(50_000), KEYS[FIRST]) for _ in range(1_200))
    async with writing.producer(recordttlmillis="20s", buffer_maxbytes="4MB") as producer:
        future = await writing.run(producer.put_many(rows))
        results = await writing.result(future, within=100)
    assert len(results) == 1_200
    assert max(one.seconds for one in results) < 20
