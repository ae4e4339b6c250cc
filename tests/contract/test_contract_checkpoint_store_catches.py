"""The contract of stores is one: a store that breaks it in one way fails a test that says so."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from attrs import evolve

from kinesis_publishers.checkpoints import CheckpointMemory, MemoryCheckpointStore, WriteBook
from kinesis_publishers.errors import StaleCheckpointError
from kinesis_publishers.model import (
    CheckpointVersion,
    CheckpointWrite,
    SequenceNumber,
    ShardKey,
    StartingPosition,
    StoredCheckpoint,
)
from kinesis_publishers.testing.contracts.checkpoint_store import (
    CheckpointStoreContract,
    store_context,
)

Versions = Mapping[ShardKey, CheckpointVersion]
Writes = Sequence[CheckpointWrite]


class _Broken(MemoryCheckpointStore):
    def __init__(self, application: str, memory: CheckpointMemory) -> None:
        super().__init__(store_context(application), memory)


class OverwritesAll(_Broken):
    async def save(self, writes: Writes) -> Any:
        found = await self.load()
        known = {key: one.version for key, one in found.items()}
        return await super().save([evolve(one, expected=known.get(one.shard)) for one in writes])


class RemovesAll(_Broken):
    async def remove(self, versions: Versions) -> None:
        found = await self.load()
        await super().remove({key: found[key].version for key in versions if key in found})


class SharesApplications(_Broken):
    def __init__(self, application: str, memory: CheckpointMemory) -> None:
        super().__init__("everybody", memory)


class ForgetsSubRecords(_Broken):
    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        return {key: _without_sub_record(one) for key, one in (await super().load()).items()}


def _without_sub_record(stored: StoredCheckpoint) -> StoredCheckpoint:
    progress = stored.checkpoint.progress
    if progress.processed is None or progress.processed.sub_sequence_number is None:
        return stored
    number = SequenceNumber(progress.processed.sequence_number)
    progress = evolve(progress, position=StartingPosition.after(number))
    return evolve(stored, checkpoint=evolve(stored.checkpoint, progress=progress))


class WritesAllOrNothing(_Broken):
    async def save(self, writes: Writes) -> Any:
        found = await self.load()
        for one in writes:
            stored = found.get(one.shard)
            if (None if stored is None else stored.version) != one.expected:
                raise StaleCheckpointError(f"{one.shard.shard_id} is stale")
        return await super().save(writes)


class TakesItselfForAnotherWriter(_Broken):
    async def save(self, writes: Writes) -> Any:
        self._book = WriteBook()
        versions = await super().save(writes)
        for _ in range(3):
            await asyncio.sleep(0)
        return versions


class ForcesAfterUnknown(_Broken):
    """Writes over any version if it does not know what became of its write before."""

    def __init__(self, application: str, memory: CheckpointMemory) -> None:
        super().__init__(application, memory)
        self.unknown: set[ShardKey] = set()

    async def save(self, writes: Writes) -> Any:
        found = await self.load()
        known = {key: one.version for key, one in found.items()}
        shards = {one.shard for one in writes}
        forced = [
            evolve(one, expected=known.get(one.shard)) if one.shard in self.unknown else one
            for one in writes
        ]
        self.unknown |= shards
        # A call that is cancelled here may have happened or not.
        await asyncio.sleep(0)
        versions = await super().save(forced)
        await asyncio.sleep(0)
        self.unknown -= shards
        return versions


class CountsFromOneAgain(_Broken):
    async def save(self, writes: Writes) -> Any:
        self._book = WriteBook(writer="me")
        return await super().save(writes)


class SwallowsRefusals(_Broken):
    async def save(self, writes: Writes) -> Any:
        try:
            return await super().save(writes)
        except StaleCheckpointError:
            return {one.shard: one.expected for one in writes}


class NeverCloses(_Broken):
    async def close(self) -> None:
        pass


class ForgetsTheStreamItself(_Broken):
    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        return {key: one for key, one in (await super().load()).items() if key.shard_id != "*"}


async def failing_tests(make: Callable[[str, CheckpointMemory], Any]) -> set[str]:
    """Run the contract against stores that ``make`` makes; return the tests that fail."""
    failing = set()
    for name, test in inspect.getmembers(CheckpointStoreContract, inspect.iscoroutinefunction):
        wants_flag = "is_first" in inspect.signature(test).parameters
        for more in ({"is_first": True}, {"is_first": False}) if wants_flag else ({},):
            memory = CheckpointMemory()
            try:
                await test(CheckpointStoreContract(), lambda app, m=memory: make(app, m), **more)
            except (Exception, pytest.fail.Exception):  # noqa: BLE001 - however it fails
                failing.add(name)
    return failing


async def test_a_store_that_keeps_the_contract_fails_nothing() -> None:
    assert await failing_tests(_Broken) == set()


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (OverwritesAll, "test_a_stale_writer_is_refused_and_told_what_to_do"),
        (OverwritesAll, "test_of_writers_that_race_exactly_one_succeeds"),
        (SwallowsRefusals, "test_a_second_writer_does_not_begin_again"),
        (RemovesAll, "test_a_checkpoint_that_has_moved_on_is_not_removed"),
        (SharesApplications, "test_applications_do_not_see_each_other"),
        (ForgetsSubRecords, "test_the_next_store_loads_what_was_written"),
        (WritesAllOrNothing, "test_one_stale_write_fails_alone"),
        (
            TakesItselfForAnotherWriter,
            "test_a_write_of_unknown_outcome_may_be_repeated_unless_overtaken",
        ),
        (ForcesAfterUnknown, "test_a_write_of_unknown_outcome_may_be_repeated_unless_overtaken"),
        (CountsFromOneAgain, "test_a_removal_makes_old_versions_stale"),
        (NeverCloses, "test_a_closed_store_is_not_used"),
        (ForgetsTheStreamItself, "test_equal_shard_ids_of_streams_are_told_apart"),
    ],
)
async def test_a_broken_store_is_caught(broken: type[_Broken], test: str) -> None:
    assert test in await failing_tests(broken)
