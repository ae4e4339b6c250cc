"""However a shard is written and a subscription interrupted, each record comes once, in order."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers.testing.local_kinesis import Behaviour, Fault, Limits
from tests.examples import examples
from tests.unit.testing.subscribing_harness import HALF, SHARD, STREAM, FanOut

EVENT_KINDS = ["end", "reset", "reset_mid_event", "truncated_frame", "bad_crc", "exception"]

puts = st.tuples(st.just("put"), st.integers(1, 12))
waits = st.tuples(st.just("wait"), st.floats(0, 20))
restarts = st.tuples(st.just("restart"), st.none())
faults = st.tuples(st.just("fault"), st.tuples(st.sampled_from(EVENT_KINDS), st.integers(0, 3)))
steps = st.lists(st.one_of(puts, waits, restarts, faults), max_size=25)


class RestartingReader:
    """Keeps one subscription going: from the last continuation whenever it has ended."""

    def __init__(self, fan_out: FanOut, start: dict[str, Any]) -> None:
        self.fan_out = fan_out
        self.texts: list[str] = []
        self._position = start
        self._reader: Any = None

    async def read(self) -> None:
        """Subscribe, unless it is subscribed, and take what has come."""
        if self._reader is None:
            position = dict(self._position)
            self._reader = await self.fan_out.subscribe(position.pop("Type"), **position)
        await self.fan_out.clock.settle()

    async def leave(self) -> None:
        """Close the subscription and remember where the next one begins."""
        if self._reader is None:
            return
        await self._reader.close()
        self.texts += self._reader.texts
        if self._reader.events:
            number = self._reader.continuation
            self._position = {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": number}
        self._reader = None

    @property
    def has_failed(self) -> bool:
        reader = self._reader
        return reader is not None and (reader.ending is not None or reader.checksum_errors > 0)


async def run(script: list[tuple[str, Any]], behaviour: Behaviour, start: str, most: int) -> None:
    limits = Limits(
        event_max_records=most,
        subscription_seconds=60,
        resubscribe_seconds=None,
        subscribe_calls_per_second=None,
    )
    fan_out = FanOut(limits, behaviour)
    position: dict[str, Any] = {"Type": start}
    if start == "AT_TIMESTAMP":
        position["Timestamp"] = fan_out.clock.now().timestamp()
    reader = RestartingReader(fan_out, position)
    put: list[str] = []
    for kind, value in script:
        if kind == "put":
            new = [str(len(put) + number) for number in range(value)]
            fan_out.put(*new)
            put += new
        elif kind == "wait":
            await fan_out.clock.advance(value)
        elif kind == "restart":
            await reader.leave()
        else:
            fault, after = value
            fan_out.service.state.faults.add(
                Fault("SubscribeToShard", fault, after_events=after, code="InternalFailure")
            )
        if reader.has_failed:
            await reader.leave()
        await reader.read()
    fan_out.service.state.faults.clear()
    await reader.leave()
    await fan_out.call(
        "SplitShard", StreamName=STREAM, ShardToSplit=SHARD(0), NewStartingHashKey=HALF
    )
    await reader.read()
    await reader.leave()
    assert reader.texts == put
    assert fan_out.open_count() == 0


@settings(max_examples=examples(80))
@given(
    script=steps,
    start=st.sampled_from(["TRIM_HORIZON", "AT_TIMESTAMP"]),
    most=st.integers(1, 5),
    late=st.booleans(),
)
def test_each_record_comes_once_and_in_order(
    script: list[tuple[str, Any]], start: str, most: int, late: bool
) -> None:
    asyncio.run(run(script, Behaviour(late_shard_end=late), start, most))
