"""Batches planned over a local server: exact ranges, and what they cost."""

from __future__ import annotations

import asyncio
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers import SequenceNumber, StartingPosition
from kinesis_publishers.errors import DataLossError, InvalidOptionError, PositionTrimmedError
from kinesis_publishers.readers.bounded_read import Narrowing
from kinesis_publishers.readers.ranges.shard_probe import ShardProbe
from kinesis_publishers.testing.local_kinesis import Behaviour, Fault, Limits, LocalKinesis
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.examples import examples
from tests.integration.readers.batch_planning import FIRST, NOON, OWN_PUBLISHER, BatchServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime


@pytest.fixture
def kinesis() -> Iterator[BatchServer]:
    clock = ManualClock(start=NOON)
    behaviour = Behaviour(trimmed_iterator="invalid_argument")
    with LocalKinesis.in_thread(Limits.off(), clock, behaviour) as server:
        server.create_stream("orders")
        yield BatchServer(server, clock)


async def test_a_batch_ends_before_an_instant(kinesis: BatchServer) -> None:
    kinesis.put(10, every=1)
    for instant, last in ((5, 4), (5.001, 5), (4.999, 4)):
        planned = await kinesis.plan(
            stream_endpos="AT_TIMESTAMP", stream_endpos_timestamp=kinesis.at(instant).timestamp()
        )
        assert kinesis.ends(planned) == {FIRST: kinesis.stored()[last].sequence_number}


async def test_a_batch_without_records_is_empty(kinesis: BatchServer) -> None:
    assert kinesis.ends(await kinesis.plan()) == {}
    kinesis.put(3, every=1)
    until = kinesis.at(0).timestamp()
    planned = await kinesis.plan(stream_endpos="AT_TIMESTAMP", stream_endpos_timestamp=until)
    assert kinesis.ends(planned) == {}


async def test_a_batch_can_end_before_and_after_a_record(kinesis: BatchServer) -> None:
    kinesis.put(10, every=1)
    numbers = [one.sequence_number for one in kinesis.stored()]
    for kind, last in (("AT_SEQUENCE_NUMBER", 4), ("AFTER_SEQUENCE_NUMBER", 5)):
        shards = f'{{"{FIRST}": {{"iteratorType": "{kind}", "iteratorPosition": "{numbers[5]}"}}}}'
        assert kinesis.ends(await kinesis.plan(stream_endpos_shards=shards)) == {
            FIRST: numbers[last]
        }
        (one,) = await kinesis.plan(stream_initpos_shards=shards)
        assert one.start.sequence_number == SequenceNumber(numbers[5])


async def test_closed_shards_are_read_to_their_end_and_later_children_left_out(
    kinesis: BatchServer,
) -> None:
    kinesis.put(4, every=1)
    kinesis.server.reshard("orders", 2)
    kinesis.wait(1)
    until = kinesis.at(4.5).timestamp()
    kinesis.put(20, every=1)
    assert kinesis.ends(await kinesis.plan()) == {
        shard_id: kinesis.stored(shard_id)[-1].sequence_number
        for shard_id in (FIRST, "shardId-000000000001", "shardId-000000000002")
    }
    earlier = await kinesis.plan(stream_endpos="AT_TIMESTAMP", stream_endpos_timestamp=until)
    assert kinesis.ends(earlier) == {FIRST: kinesis.stored()[-1].sequence_number}
    begin = await kinesis.plan(stream_initpos="AT_TIMESTAMP", stream_initpos_timestamp=until)
    assert FIRST not in {one.shard.shard_id for one in begin}


async def test_a_closed_shard_may_go_on_beyond_the_end(kinesis: BatchServer) -> None:
    kinesis.put(4, every=1)
    kinesis.server.reshard("orders", 2)
    until = kinesis.at(1.5).timestamp()
    planned = await kinesis.plan(stream_endpos="AT_TIMESTAMP", stream_endpos_timestamp=until)
    assert kinesis.ends(planned) == {FIRST: kinesis.stored()[1].sequence_number}


async def test_a_shard_that_begins_while_the_end_is_waited_for_is_in_the_batch(
    kinesis: BatchServer,
) -> None:
    def reshard_once() -> None:
        if not kinesis.stored()[4:]:
            kinesis.put(1, every=0.1)
            kinesis.server.reshard("orders", 2)
            kinesis.put(8, every=0.1)
            kinesis.wait(5)
            kinesis.put(8, every=0.1)

    kinesis.put(4, every=1)
    # Less than a second: answers name the time in whole seconds.
    kinesis.wait(0.05)
    planned = await kinesis.plan(machine_ahead=0.9, on_wait=reshard_once)
    until = kinesis.at(4.95)
    shards = [FIRST, "shardId-000000000001", "shardId-000000000002"]
    assert kinesis.ends(planned) == {
        shard_id: [
            one.sequence_number for one in kinesis.stored(shard_id) if one.arrival_time < until
        ][-1]
        for shard_id in shards
    }


async def test_planning_costs_two_calls_a_shard_however_much_there_is(kinesis: BatchServer) -> None:
    kinesis.put(3600, every=1)
    kinesis.wait(600)
    until = {"stream_endpos": "AT_TIMESTAMP", "stream_endpos_timestamp": NOON.timestamp() + 1800}
    for options, last in (({}, 3599), (until, 1799)):
        before = len(kinesis.server.calls(shard_id=FIRST))
        planned = await kinesis.plan(**options)
        assert len(kinesis.server.calls(shard_id=FIRST)) - before == 2
        assert kinesis.ends(planned) == {FIRST: kinesis.stored()[last].sequence_number}


async def test_a_publisher_that_may_not_show_the_tip_is_given_a_last_record(
    kinesis: BatchServer,
) -> None:
    assert await kinesis.plan(stream_recordpublisher=OWN_PUBLISHER) == []
    kinesis.put(300, every=1)
    kinesis.wait(600)
    (one,) = await kinesis.plan(stream_recordpublisher=OWN_PUBLISHER)
    assert one.end == SequenceNumber(kinesis.stored()[-1].sequence_number)


@pytest.mark.parametrize("operation", ["GetShardIterator", "GetRecords"])
async def test_a_shard_that_is_not_found_for_a_moment_is_asked_again(
    kinesis: BatchServer, operation: str
) -> None:
    kinesis.put(300, every=1)
    kinesis.wait(600)
    missing = {"code": "ResourceNotFoundException", "message": "not found"}
    for every in (1, 2):
        kinesis.server.add_fault(Fault(operation, "error", every=every, times=2, **missing))
    (one,) = await kinesis.plan(stream_recordpublisher=OWN_PUBLISHER)
    assert one.end == SequenceNumber(kinesis.stored()[-1].sequence_number)


async def test_what_arrives_while_the_last_record_is_sought_is_not_in_the_batch(
    kinesis: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach_tip = ShardProbe.reach_tip

    async def put_and_reach_tip(probe: ShardProbe, since: datetime) -> None:
        kinesis.put(2, every=0.1)
        await reach_tip(probe, since)

    monkeypatch.setattr(ShardProbe, "reach_tip", put_and_reach_tip)
    kinesis.put(300, every=1)
    kinesis.wait(600)
    planned = await kinesis.plan(stream_recordpublisher=OWN_PUBLISHER)
    assert kinesis.ends(planned) == {FIRST: kinesis.stored()[-3].sequence_number}


async def test_shards_and_streams_that_are_not_needed_are_not_touched(kinesis: BatchServer) -> None:
    kinesis.server.create_stream("flights", 4)
    kinesis.put(40, every=1, stream="flights")
    needed = "shardId-000000000002"
    narrowing = Narrowing(
        shard_ids=frozenset({needed, "other"}), stream_names=frozenset({"flights"})
    )
    planned = await kinesis.plan(narrowing, streams="orders,flights")
    assert [one.shard.shard_id for one in planned] == [needed]
    assert not kinesis.server.calls(stream="orders")
    assert {call.shard_id for call in kinesis.server.calls("GetRecords")} == {needed}


async def test_arrival_times_narrow_the_range_with_a_minute_to_spare(kinesis: BatchServer) -> None:
    kinesis.put(360, every=1)
    narrowing = Narrowing(arrived_since=kinesis.at(120), arrived_until=kinesis.at(180))
    (one,) = await kinesis.plan(narrowing)
    assert one.start == StartingPosition.at_timestamp(kinesis.at(60))
    assert kinesis.ends([one]) == {FIRST: kinesis.stored()[239].sequence_number}
    assert await kinesis.plan(Narrowing(arrived_since=kinesis.at(1000))) == []


async def test_a_trimmed_start_is_data_loss(kinesis: BatchServer) -> None:
    kinesis.put(10, every=1)
    numbers = [one.sequence_number for one in kinesis.stored()]
    kinesis.server.trim("orders", through=numbers[5])
    shards = (
        f'{{"{FIRST}": {{"iteratorType": "AFTER_SEQUENCE_NUMBER", '
        f'"iteratorPosition": "{numbers[2]}"}}}}'
    )
    with pytest.raises(PositionTrimmedError, match=rf"{FIRST}.*no longer available"):
        await kinesis.plan(stream_initpos_shards=shards)
    (one,) = await kinesis.plan(stream_initpos_shards=shards, failondataloss=False)
    assert one.start == StartingPosition.trim_horizon()
    assert kinesis.rows_of([one]) == numbers[6:]


async def test_a_shard_that_is_not_listed_is_data_loss_or_a_slip(kinesis: BatchServer) -> None:
    kinesis.put(1, every=1)
    shards = '{"shardId-000000000007": {"iteratorType": "TRIM_HORIZON"}}'
    with pytest.raises(DataLossError, match=r"shardId-000000000007.*misspelt"):
        await kinesis.plan(stream_initpos_shards=shards)
    assert len(await kinesis.plan(stream_initpos_shards=shards, failondataloss=False)) == 1
    # Whatever is pushed down, the same query fails or goes through.
    with pytest.raises(DataLossError, match="misspelt"):
        await kinesis.plan(
            Narrowing(stream_names=frozenset({"orders"})), stream_initpos_shards=shards
        )


async def test_an_open_shard_has_no_end(kinesis: BatchServer) -> None:
    shards = f'{{"{FIRST}": {{"iteratorType": "SHARD_END"}}}}'
    with pytest.raises(InvalidOptionError, match="it is open"):
        await kinesis.plan(stream_endpos_shards=shards)
    assert await kinesis.plan(stream_initpos_shards=shards) == []


pytestmark = pytest.mark.timeout(900)

_writes = st.tuples(st.just("put"), st.integers(1, 150), st.sampled_from([0.0, 0.001, 0.25, 30.0]))
_pauses = st.tuples(st.just("wait"), st.just(0), st.sampled_from([0.001, 1.0, 7200.0]))
_reshards = st.tuples(st.just("reshard"), st.integers(1, 4), st.sampled_from([0.0, 1.0]))
_histories = st.lists(st.one_of(_writes, _writes, _pauses, _reshards), min_size=1, max_size=8)


def play(kinesis: BatchServer, history: list[tuple[str, int, float]]) -> None:
    for action, count, seconds in history:
        if action == "put":
            kinesis.put(count, every=seconds)
        else:
            if action == "reshard":
                kinesis.server.reshard("orders", count)
            kinesis.wait(seconds)


def between(cut: float | None, later: float | None) -> dict[str, object]:
    options: dict[str, object] = {}
    if cut is not None:
        options |= {"stream_initpos": "AT_TIMESTAMP", "stream_initpos_timestamp": cut}
    if later is not None:
        options |= {"stream_endpos": "AT_TIMESTAMP", "stream_endpos_timestamp": later}
    return options


@pytest.mark.deep
@settings(max_examples=examples(3, deep=True))
@given(
    _histories,
    _histories,
    st.lists(st.floats(0, 1), min_size=1, max_size=2),
    st.sampled_from([{}, {"stream_recordpublisher": OWN_PUBLISHER}]),
)
def test_batches_that_touch_have_every_record_once_and_the_same_later(
    history: list[tuple[str, int, float]],
    more: list[tuple[str, int, float]],
    fractions: list[float],
    publisher: dict[str, object],
) -> None:
    clock = ManualClock(start=NOON)
    with LocalKinesis.in_thread(Limits.off(), clock) as server:
        server.create_stream("orders", 2)
        kinesis = BatchServer(server, clock)
        play(kinesis, history)
        kinesis.wait(0.001)
        now, begin = clock.now().timestamp(), NOON.timestamp()
        cuts = sorted(round(begin + one * (now - begin), 3) for one in fractions)
        batches = [between(*pair) | publisher for pair in pairwise([None, *cuts, now])]
        expected = [
            one.sequence_number for shard in server.records("orders").values() for one in shard
        ]
        first = [kinesis.rows_of(asyncio.run(kinesis.plan(**one))) for one in batches]
        assert sorted(chain.from_iterable(first)) == sorted(expected)
        play(kinesis, more)
        kinesis.wait(0.001)
        again = [kinesis.rows_of(asyncio.run(kinesis.plan(**one))) for one in batches]
        assert again == first
