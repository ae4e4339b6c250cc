"""Batches that touch have every record once, across any reshards: over random histories."""

from __future__ import annotations

import asyncio
from itertools import chain, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.examples import examples
from tests.integration.readers.batch_planning import NOON, OWN_PUBLISHER, BatchServer

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
