"""The contract of every :class:`~kinesis_publishers.RecordPublisherFactory`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from kinesis_publishers.abc import RecordPublisher, RecordPublisherFactory
from kinesis_publishers.config import Properties
from kinesis_publishers.config.parsers import Scalar
from kinesis_publishers.config.plugins import check_fit
from kinesis_publishers.errors import ConfigError
from kinesis_publishers.model import SequenceNumber, StartingPosition
from kinesis_publishers.testing.contracts.checking_consumer import (
    TRIM_HORIZON,
    CheckingConsumer,
    assert_same_records,
    run_to_end,
)
from kinesis_publishers.testing.contracts.subjects import (
    FactorySubject,
    HeldShard,
    closes_subject,
    missing_fixture,
    no_task_is_left,
    outcome_of,
)
from kinesis_publishers.testing.fakes.planes import (
    FakeControlPlane,
    FakeDataPlane,
    publisher_context,
)
from kinesis_publishers.testing.fakes.recording import assert_shard_is_read
from kinesis_publishers.testing.fakes.samples import sample_records


@closes_subject
class RecordPublisherFactoryContract:
    """The duties of every factory, with any source. Override the fixture ``subject``."""

    subject = missing_fixture("FactorySubject")

    async def test_its_class_can_be_named_in_the_properties(self, subject: FactorySubject) -> None:
        kind = subject.factory_class
        check_fit(kind, RecordPublisherFactory, reference=f"{kind.__module__}:{kind.__qualname__}")

    async def test_good_properties_need_no_call(self, subject: FactorySubject) -> None:
        await subject.hold(sample_records(3))
        factory, calls = _made_of(subject.properties, subject)
        assert isinstance(factory, subject.factory_class), (
            f"from_properties() led to {factory!r}: return an instance of the class"
        )
        assert calls == [], (
            f"from_properties() called {calls}: it only reads the properties; calls are made by "
            "prepare(), create() and the publishers"
        )
        await subject.finish(factory.close())

    async def test_bad_properties_are_refused_at_once(self, subject: FactorySubject) -> None:
        await subject.hold(sample_records(3))
        if not subject.bad_properties:
            pytest.skip(f"{type(subject).__name__}.bad_properties names none")
        for bad in subject.bad_properties:
            error, calls = _made_of(bad, subject)
            assert isinstance(error, ConfigError), (
                f"{bad} was accepted: raise a ConfigError that names the key, what was given and "
                "what is expected"
            )
            assert calls == [], f"{bad} was refused, but only after the calls {calls}"

    async def test_it_reads_many_shards_at_once(self, subject: FactorySubject) -> None:
        shards = [await subject.hold(sample_records(count)) for count in (3, 0, 5, 1)]
        factory = subject.factory()
        await factory.prepare(sorted({held.shard.stream_arn for held in shards}))
        publishers = [await factory.create(TRIM_HORIZON, held.shard) for held in shards]
        assert all(isinstance(one, RecordPublisher) for one in publishers), (
            f"create() returned {publishers}: return instances of a subclass of RecordPublisher"
        )
        assert len(set(map(id, publishers))) == len(shards), (
            "create() returned the same publisher for several shards: each reads one shard"
        )
        consumers = [CheckingConsumer(held.shard) for held in shards]
        await subject.finish(asyncio.gather(*map(run_to_end, publishers, consumers)))
        for held, consumer in zip(shards, consumers, strict=True):
            assert_same_records(
                consumer.records,
                held.records,
                advice=f"{held.shard} was read together with {len(shards) - 1} others",
            )

    async def test_it_can_be_prepared_for_no_streams(self, subject: FactorySubject) -> None:
        await subject.hold(sample_records(3))
        factory = subject.factory()
        error = await outcome_of(subject.finish(factory.prepare([])))
        assert error is None, (
            f"prepare([]) raised {error!r}: with no streams there is nothing to do"
        )

    async def test_publishers_begin_where_they_are_told_to(self, subject: FactorySubject) -> None:
        held = await subject.hold(sample_records(6))
        factory = subject.factory()
        for first in (2, 5):
            await _assert_reads(subject, factory, held, first)

    async def test_a_shard_consumer_reads_a_shard_to_its_end(self, subject: FactorySubject) -> None:
        if subject.clock is None:
            pytest.skip(f"{type(subject).__name__}.clock is None: it runs in real time")
        held = await subject.hold(sample_records(6))
        factory = subject.factory()
        await assert_shard_is_read(factory, held.records, clock=subject.clock, shard=held.shard)

    async def test_it_reads_unprepared_and_closes(self, subject: FactorySubject) -> None:
        # Only a fetcher of whole shards prepares; a reader of a range does not.
        held = await subject.hold(sample_records(3))
        with no_task_is_left():
            factory = subject.factory()
            await _assert_reads(subject, factory, held)
            await subject.finish(factory.close())

    async def test_it_can_be_closed_unused_and_twice(self, subject: FactorySubject) -> None:
        await subject.hold(sample_records(3))
        with no_task_is_left():
            factory = subject.factory()
            for times in ("once, unused", "twice"):
                error = await outcome_of(subject.finish(factory.close()))
                assert error is None, (
                    f"close() raised {error!r} when it was called {times}: it runs while other "
                    "errors are on their way, and must not hide them"
                )


def _made_of(
    given: Mapping[str, Scalar], subject: FactorySubject
) -> tuple[RecordPublisherFactory | ConfigError, list[object]]:
    """Return a factory, or what refuses the properties; and the calls that were made."""
    data_plane, control_plane = FakeDataPlane({}), FakeControlPlane()
    context = publisher_context(data_plane, control_plane=control_plane, clock=subject.clock)
    made: RecordPublisherFactory | ConfigError
    try:
        properties = Properties.parse(given, complete=False)
        made = subject.factory_class.from_properties(properties, context)
    except ConfigError as error:
        made = error
    return made, [*data_plane.calls, *control_plane.calls]


async def _assert_reads(
    subject: FactorySubject, factory: RecordPublisherFactory, held: HeldShard, first: int = 0
) -> None:
    start = TRIM_HORIZON
    if first:
        start = StartingPosition.after(SequenceNumber(held.records[first - 1].sequence_number))
    consumer = CheckingConsumer(held.shard)
    publisher = await factory.create(start, held.shard)
    await subject.finish(run_to_end(publisher, consumer))
    advice = f"{held.shard} was not read from {start} on: create() passes that on to the publisher"
    assert_same_records(consumer.records, held.records[first:], advice=advice)
