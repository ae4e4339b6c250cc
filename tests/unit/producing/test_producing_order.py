"""``ordering = key``: the records of a partition key are stored in the order they were put in."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers.abc import PutAnswer, PutColumns
from kinesis_publishers.aggregation import decode_aggregate
from kinesis_publishers.errors import RecordsNotWrittenError
from kinesis_publishers.events import PutRecordsAnswered
from kinesis_publishers.model import hash_key_of
from kinesis_publishers.model.records import AGGREGATE_MAGIC
from kinesis_publishers.testing.local_kinesis import Fault, Limits, LocalKinesis
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.examples import examples
from tests.unit.producing.producing_support import FIRST, KEYS, SECOND, STREAM, SlowWriter, Writing

BOTH = pytest.mark.parametrize("aggregation", [False, True], ids=["plain", "aggregated"])
_KEYS = "abcde"


@frozen
class _Step:
    """Some records that are put together, what goes wrong with the next calls, and a pause."""

    keys: str
    is_many: bool
    fault: tuple[str, str | None] | None
    seconds: float


_FAULTS = st.sampled_from(
    [None, ("throttle", FIRST), ("throttle", SECOND), ("internal_failure", None), ("reset", None)]
)
_STEPS = st.builds(
    _Step,
    st.text(_KEYS, min_size=1, max_size=12),
    st.booleans(),
    _FAULTS,
    st.sampled_from([0.0, 0.01, 0.2]),
)


def _stored_by_key(writing: Writing) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for shard in (FIRST, SECOND):
        for one in writing.stored(shard):
            if one.data.startswith(AGGREGATE_MAGIC):
                columns = decode_aggregate(one.data)
                for key, data in zip(columns.partition_keys, columns.payloads, strict=True):
                    found[key].append(int(data))
            else:
                found[one.partition_key].append(int(one.data))
    return found


async def _run(steps: list[_Step], options: dict[str, Any]) -> None:
    clock = ManualClock()
    writing = Writing(LocalKinesis(Limits(), clock), clock)
    writing.server.create_stream(STREAM, 2)
    put: dict[str, list[int]] = defaultdict(list)
    number = 0
    latency = options.pop("latency", 0.0)
    options["writer"] = writing.slow(latency) if latency else None
    async with writing.producer(ordering="key", **options) as producer:
        for step in steps:
            if step.fault is not None:
                kind, shard_id = step.fault
                writing.server.add_fault(Fault("PutRecords", kind, shard_id=shard_id))  # type: ignore[arg-type]
            records = []
            for key in step.keys:
                records.append((b"%d" % number, key))
                put[key].append(number)
                number += 1
            if step.is_many:
                await writing.run(producer.put_many(records))
            else:
                for data, key in records:
                    await writing.run(producer.put(data, key))
            await clock.advance(step.seconds)
    assert _stored_by_key(writing) == put


@pytest.mark.deep
@settings(max_examples=examples(40, deep=True))
@given(
    st.lists(_STEPS, min_size=1, max_size=8),
    st.fixed_dictionaries(
        {
            "aggregation": st.booleans(),
            "latency": st.sampled_from([0.0, 0.05]),
            "aggregation_maxbytes": st.sampled_from([64, 51_200]),
            "maxinflight": st.sampled_from([1, 3]),
            "batch_maxrecords": st.sampled_from([2, 500]),
            "buffer_maxrecords": st.sampled_from([4, 1000]),
        }
    ),
)
def test_the_records_of_a_key_are_stored_in_order_and_once(
    steps: list[_Step], options: dict[str, Any]
) -> None:
    asyncio.run(_run(steps, options))


@BOTH
async def test_a_refused_record_holds_back_those_of_its_key_alone(
    writing: Writing, aggregation: bool
) -> None:
    writing.server.add_fault(Fault("PutRecords", "throttle", shard_id=FIRST, times=3))
    options = {"ordering": "key", "aggregation": aggregation}
    async with writing.producer(**options, backoff_base="1s") as producer:
        held = [await producer.put(b"%d" % n, KEYS[FIRST]) for n in range(5)]
        free = [await producer.put(b"%d" % n, KEYS[SECOND]) for n in range(5)]
        await writing.until_done(free)
        assert not any(one.done() for one in held)
    assert writing.data(FIRST) == writing.data(SECOND) == [b"%d" % n for n in range(5)]


async def test_in_an_aggregate_many_records_of_a_key_go_together(writing: Writing) -> None:
    async with writing.producer(ordering="key", aggregation=True) as producer:
        await producer.put_many([(b"%d" % n, "k") for n in range(300)])
    assert writing.data() == [b"%d" % n for n in range(300)]
    assert len(writing.server.calls("PutRecords")) <= 2


async def test_without_aggregation_a_call_has_one_record_of_a_key(writing: Writing) -> None:
    async with writing.producer(ordering="key") as producer:
        await producer.put_many([(b"%d" % n, f"{n % 3}") for n in range(12)])
    assert writing.count(PutRecordsAnswered, "entries") == {3: 4}


@BOTH
async def test_an_expired_record_lets_the_next_of_its_key_go(
    writing: Writing, aggregation: bool
) -> None:
    writing.server.add_fault(Fault("PutRecords", "throttle", shard_id=FIRST, lasting_seconds=10.0))
    options = {"aggregation": aggregation, "recordttlmillis": "5s", "backoff_max": "1s"}
    async with writing.producer(ordering="key", **options) as producer:
        first = await producer.put(b"1", KEYS[FIRST])
        await writing.clock.advance(4)
        second = await producer.put(b"2", KEYS[FIRST])
        await writing.clock.advance(4)
        third = await producer.put(b"3", KEYS[FIRST])
        await writing.until_done([first, second, third])
        assert first.exception() is not None
        assert third.exception() is None
        with pytest.raises(Exception, match="not written"):
            await writing.run(producer.flush())
    assert writing.data()[-1] == b"3"


@BOTH
async def test_nothing_passes_an_older_one_that_was_put_aside(
    writing: Writing, aggregation: bool
) -> None:
    writing.server.add_fault(Fault("PutRecords", "throttle", shard_id=FIRST))
    options = {"aggregation": aggregation, "lingermillis": 10}
    async with writing.producer(ordering="key", writer=writing.slow(0.05), **options) as producer:
        await producer.put(b"1", KEYS[FIRST])
        # A call with it is under way.
        await writing.clock.advance(0.02)
        await producer.put(b"2", KEYS[FIRST])
        # This one is put aside; the next one waits when the first is refused.
        await writing.clock.advance(0.035)
        await producer.put(b"3", KEYS[FIRST])
        await writing.run(producer.flush())
    assert writing.data(FIRST) == [b"1", b"2", b"3"]


@BOTH
async def test_closing_gives_up_what_was_put_aside(writing: Writing, aggregation: bool) -> None:
    writing.server.add_fault(Fault("PutRecords", "throttle", shard_id=FIRST, times=None))
    opened = writing.producer(ordering="key", aggregation=aggregation)
    producer = await opened.__aenter__()
    futures = [await producer.put(b"0", KEYS[FIRST])]
    await writing.clock.advance(0.5)
    futures += [await producer.put(b"%d" % number, KEYS[FIRST]) for number in range(1, 6)]
    await writing.clock.advance(3)
    with pytest.raises(RecordsNotWrittenError, match="6 of the records"):
        await writing.run(producer.close(timeout_seconds=1))
    assert all(future.done() for future in futures)
    assert (producer.pending_records, producer.pending_bytes) == (0, 0)


@BOTH
async def test_a_newer_one_that_is_refused_waits_for_an_older_one_that_was_put_aside(
    writing: Writing, aggregation: bool
) -> None:
    # One key in two shards, of which the first refuses its record and then the second.
    writing.server.add_fault(Fault("PutRecords", "throttle", shard_id=FIRST))
    options = {"aggregation": aggregation, "lingermillis": 10}
    options |= {"backoff_base": "300ms", "backoff_max": "300ms", "recordttlmillis": "20s"}
    for _ in range(5):
        async with writing.producer(
            ordering="key", writer=writing.slow(0.2), **options
        ) as producer:
            futures = [await producer.put(b"1", "k", "0")]
            await writing.clock.advance(0.25)
            futures.append(await producer.put(b"2", "k", str(2**128 - 1)))
            await writing.clock.advance(0.02)
            writing.server.add_fault(Fault("PutRecords", "throttle", shard_id=SECOND))
            await writing.until_done(futures, within=10)


async def test_what_was_refused_together_and_is_sent_in_parts_keeps_its_order(
    writing: Writing,
) -> None:
    class Slow(SlowWriter):
        async def put_records(self, stream_arn: str, records: PutColumns) -> PutAnswer:
            self.seconds = 1 if b"m" in records.payloads else 0.05
            return await super().put_records(stream_arn, records)

    options = {"aggregation": True, "aggregation_maxbytes": 300, "batch_maxrecords": 1}
    options |= {"maxinflight": 2, "lingermillis": 10}
    options |= {"backoff_base": "200ms", "backoff_max": "200ms"}
    other = next(key for key in "defghijk" if hash_key_of(key, None) < 2**127)
    for _ in range(10):
        writing.server.add_fault(Fault("PutRecords", "throttle", shard_id=FIRST, times=2))
        before = len(writing.data(FIRST))
        writer = Slow(writing.server, writing.clock, 0.05)
        async with writing.producer(ordering="key", writer=writer, **options) as producer:
            futures = [await producer.put(one * 100, KEYS[FIRST]) for one in (b"1", b"2")]
            await writing.clock.advance(0.02)
            futures.append(await producer.put(b"3" * 100, KEYS[FIRST]))
            futures.append(await producer.put(b"x" * 150, other))
            await writing.clock.advance(0.065)
            futures.append(await producer.put(b"m", KEYS[SECOND]))
            await writing.until_done(futures)
        stored = [one[:1] for one in writing.data(FIRST)[before:] if one[:1] != b"x"]
        assert stored == [b"1", b"2", b"3"]


async def test_of_records_that_were_refused_together_one_expires(writing: Writing) -> None:
    fault = Fault("PutRecords", "throttle", shard_id=FIRST, times=None, lasting_seconds=3.2)
    writing.server.add_fault(fault)
    options = {"aggregation": True, "lingermillis": 500, "recordttlmillis": "3s"}
    options |= {"backoff_base": "50ms", "backoff_max": "50ms"}
    async with writing.producer(ordering="key", writer=writing.slow(0.06), **options) as producer:
        futures = [await producer.put(b"1", KEYS[FIRST])]
        await writing.clock.advance(0.45)
        futures.append(await producer.put(b"2", KEYS[FIRST]))
        await writing.clock.advance(0.07)
        futures.append(await producer.put(b"3", KEYS[FIRST]))
        await writing.until_done(futures)
        stored = [int(one) for one in writing.data(FIRST)]
        assert stored == sorted(stored)
        with pytest.raises(RecordsNotWrittenError):
            await writing.run(producer.flush())
