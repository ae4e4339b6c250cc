"""The scripted publisher, which stands in for real ones in tests, keeps the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from kinesis_publishers import Properties, RunResult, StartingPosition
from kinesis_publishers.testing.contracts import (
    HeldShard,
    RecordPublisherContract,
    RecordPublisherFactoryContract,
)
from kinesis_publishers.testing.fakes import ScriptedPublisherFactory, ScriptedRun, batch_of
from tests.contract.list_publisher import ListPublisher, ListSubject

if TYPE_CHECKING:
    from kinesis_publishers import PublisherContext, RecordPublisher, Shard


def script_from(held: HeldShard, start: StartingPosition, context: PublisherContext) -> list:
    """Return runs that deliver what a shard holds from a position on."""
    first = ListPublisher(held.shard, StartingPosition.trim_horizon(), context)
    first.position = start
    records = held.records[first.locate() :]
    pages = [records[at : at + 5] for at in range(0, len(records), 5)]
    runs = [
        ScriptedRun(batches=[batch_of(page, shard=held.shard, millis_behind_latest=None)])
        for page in pages[:-1]
    ]
    last = [batch_of(page, shard=held.shard) for page in pages[-1:]]
    return [*runs, ScriptedRun(batches=last, result=RunResult.COMPLETE)]


class ScriptedFactory(ScriptedPublisherFactory):
    """Writes the script of each publisher when it is told where that begins."""

    context: PublisherContext

    @classmethod
    def from_properties(cls, properties: Properties, context: PublisherContext) -> ScriptedFactory:
        factory = cls()
        factory.context = context
        return factory

    async def create(self, starting_position: StartingPosition, shard: Shard) -> RecordPublisher:
        records = ListPublisher(shard, StartingPosition.trim_horizon(), self.context).records
        held = HeldShard(shard=shard, records=records)
        self._scripts.append(script_from(held, starting_position, self.context))
        return await super().create(starting_position, shard)


class ScriptedSubject(ListSubject):
    factory_class: ClassVar = ScriptedFactory
    can_hold_open = can_be_interrupted = can_be_throttled = False
    bad_properties = ()


class TestScriptedPublisher(RecordPublisherContract):
    @pytest.fixture
    def subject(self) -> ScriptedSubject:
        return ScriptedSubject()


class TestScriptedFactory(RecordPublisherFactoryContract):
    @pytest.fixture
    def subject(self) -> ScriptedSubject:
        return ScriptedSubject()
