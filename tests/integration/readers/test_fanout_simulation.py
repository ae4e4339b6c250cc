"""Minutes of simulated time with everything that can go wrong: each record comes once, in order."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from attrs import frozen
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from kinesis_publishers import Delivery, DeliverySink, Event, KinesisDataFetcher, Properties
from kinesis_publishers.events import EventReceived
from kinesis_publishers.testing.local_kinesis import Behaviour, Fault
from tests.examples import examples
from tests.integration.readers.simulated_world import KEYS, STREAM, SimulatedWorld

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kinesis_publishers.testing.manual_clock import ManualClock

SECONDS = 240
# Of the JSON of a record with 100 bytes of data, at most.
_RECORD_BYTES = 256
PROPERTIES = Properties.parse(
    {
        "aws.region": "us-east-1",
        "kinesis.streams": STREAM,
        "kinesis.stream.recordpublisher": "EFO",
        "kinesis.stream.efo.consumername": "reports",
        "kinesis.stream.initpos": "TRIM_HORIZON",
    }
)


class SlowSink(DeliverySink):
    """Holds what it is given for as long as it is told to."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._resume_at = 0.0
        self.payloads: list[bytes] = []

    def block(self, seconds: float) -> None:
        self._resume_at = self._clock.monotonic() + seconds

    async def deliver(self, delivery: Delivery) -> None:
        while self._clock.monotonic() < self._resume_at:
            await self._clock.sleep(self._resume_at - self._clock.monotonic())
        self.payloads.extend(delivery.batch.payloads)
        delivery.release()


class World(SimulatedWorld):
    """A service with one stream, a fetcher that reads it, and what happens to both."""

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(behaviour)
        self.sink = SlowSink(self.clock)
        self.most_pending = self.largest_event = 0

    def note(self, event: Event) -> None:
        note(f"{self.clock.monotonic():8.2f} {event}")
        if isinstance(event, EventReceived):
            self.largest_event = max(self.largest_event, event.records)

    async def remove_consumer(self) -> None:
        """Deregister the consumer, as a person with a console might."""
        stream = await self.control_plane.describe_stream(STREAM)
        for consumer in await self.control_plane.list_stream_consumers(stream.identity.arn):
            if consumer.status == "ACTIVE":
                await self.control_plane.deregister_stream_consumer(consumer.arn)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[asyncio.Task[None]]:
        parts = self.parts(PROPERTIES, self.note)
        fetcher = KinesisDataFetcher(parts, self.sink)
        task = asyncio.create_task(fetcher.run())
        try:
            yield task
        finally:
            fetcher.stop()
            closing = asyncio.gather(task, parts.factory.close(), return_exceptions=True)
            while not closing.done():
                await self.clock.advance(1.0)

    async def advance(self, task: asyncio.Task[None], seconds: float) -> None:
        await self.clock.advance(seconds)
        self.most_pending = max(self.most_pending, self.pool.payload_bytes)
        if task.done():
            task.result()


@frozen
class Put:
    count: int

    async def __call__(self, world: World) -> None:
        world.put(self.count)


@frozen
class Break:
    fault: Fault

    async def __call__(self, world: World) -> None:
        with world.service.lock:
            world.service.state.faults.add(self.fault)


@frozen
class Block:
    seconds: float

    async def __call__(self, world: World) -> None:
        world.sink.block(self.seconds)


@frozen
class Reshard:
    shard_count: int

    async def __call__(self, world: World) -> None:
        world.reshard(self.shard_count)


@frozen
class RemoveConsumer:
    async def __call__(self, world: World) -> None:
        await world.remove_consumer()


def subscription_faults() -> st.SearchStrategy[Fault]:
    in_stream = st.builds(
        lambda kind, after, times: Fault("SubscribeToShard", kind, after_events=after, times=times),
        st.sampled_from(["reset_mid_event", "truncated_frame", "bad_crc", "silence", "end"]),
        st.integers(0, 3),
        st.integers(1, 3),
    )
    exceptions = st.builds(
        lambda code, after: Fault("SubscribeToShard", "exception", code=code, after_events=after),
        st.sampled_from(
            ["InternalFailureException", "ResourceInUseException", "ResourceNotFoundException"]
        ),
        st.integers(0, 3),
    )
    trickle = st.builds(
        lambda after, delay: Fault(
            "SubscribeToShard", "trickle", after_events=after, delay_seconds=delay
        ),
        st.integers(0, 2),
        st.floats(0.1, 20.0),
    )
    refusals = st.builds(
        lambda code, times: Fault("SubscribeToShard", "error", code=code, times=times),
        st.sampled_from(["ResourceInUseException", "LimitExceededException"]),
        st.integers(1, 20),
    )
    opening = st.builds(
        lambda kind, times: Fault("SubscribeToShard", kind, times=times),
        st.sampled_from(["reset", "internal_failure", "throttle"]),
        st.integers(1, 4),
    )
    return st.one_of(in_stream, exceptions, trickle, refusals, opening)


HAPPENINGS = st.one_of(
    st.builds(Put, st.integers(1, 150)),
    st.builds(Put, st.integers(1, 150)),
    st.builds(Break, subscription_faults()),
    st.builds(Break, subscription_faults()),
    st.builds(Block, st.floats(1.0, 90.0)),
    st.builds(Reshard, st.integers(1, 4)),
    st.builds(RemoveConsumer),
)
SCRIPTS = st.lists(st.tuples(st.floats(0.0, 20.0), HAPPENINGS), min_size=5, max_size=30)
BEHAVIOURS = st.builds(
    Behaviour,
    takeover=st.sampled_from(["close", "exception"]),
    late_shard_end=st.booleans(),
    consumer_creating_seconds=st.floats(0.0, 10.0),
    consumer_deleting_seconds=st.floats(0.0, 10.0),
)


@pytest.mark.deep
@settings(
    max_examples=examples(20, deep=True),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@example(
    script=[
        (1.0, Break(Fault("SubscribeToShard", "exception", code="InternalFailureException"))),
        *((0.0, one) for one in (Reshard(1), Put(1), Put(150), Put(150))),
        (0.0, Break(Fault("SubscribeToShard", "trickle", delay_seconds=1.0))),
    ],
    behaviour=Behaviour(),
)
@given(script=SCRIPTS, behaviour=BEHAVIOURS)
def test_each_record_comes_once_and_in_order_under_any_failures(
    script: list[tuple[float, Callable[[World], object]]], behaviour: Behaviour
):
    asyncio.run(_run(script, behaviour))


async def _run(script: list[tuple[float, Callable[[World], object]]], behaviour: Behaviour) -> None:
    world = World(behaviour)
    world.put(20)
    async with world.reading() as task:
        for pause, happening in script:
            await world.advance(task, pause)
            note(f"{world.clock.monotonic():8.2f} {happening}")
            await happening(world)
        await _read_to_the_tip(world, task)
    _check_payloads(world)
    # One event per shard may be larger than what was asked for: with each record's JSON.
    assert world.most_pending <= 6_000 + 4 * _RECORD_BYTES * world.largest_event
    assert (world.pool.payload_bytes, world.pool.records) == (0, 0)


async def _read_to_the_tip(world: World, task: asyncio.Task[None]) -> None:
    deadline = world.clock.monotonic() + SECONDS + 600
    while len(world.sink.payloads) < world.put_count and world.clock.monotonic() < deadline:
        await world.advance(task, 1.0)
    # What might still come is a repetition.
    await world.advance(task, 60.0)


def _check_payloads(world: World) -> None:
    of_key: dict[bytes, list[int]] = {}
    for payload in world.sink.payloads:
        key, _, rest = payload.partition(b":")
        of_key.setdefault(key, []).append(int(rest.rstrip(b".")))
    assert sum(map(len, of_key.values())) == world.put_count
    for key, found in of_key.items():
        assert found == list(range(int(key), world.put_count, KEYS)), f"key {key!r}"
