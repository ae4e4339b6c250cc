"""Checkpoints in the memory of this process, for tests and for work that may start over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from threading import Lock
from typing import Self

from attrs import define, field

from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.checkpoints.stored_form import instant_text
from kinesis_publishers.checkpoints.versions import Change, Refusal, Storage, VersionedStore
from kinesis_publishers.config import Properties
from kinesis_publishers.model import ShardKey, StoredCheckpoint


@define(eq=False)
class CheckpointMemory(Storage):
    """What stores of one process share: the checkpoints of each application."""

    applications: defaultdict[str, dict[ShardKey, tuple[StoredCheckpoint, str]]] = field(
        factory=lambda: defaultdict(dict), init=False
    )
    # Event loops of several threads may share it.
    lock: Lock = field(factory=Lock, init=False)

    def __str__(self) -> str:
        return "the memory of this process"


_OF_THIS_PROCESS = CheckpointMemory()


class MemoryCheckpointStore(VersionedStore):
    """Keeps checkpoints, from which later fetchers resume, until the process ends."""

    def __init__(
        self, context: CheckpointStoreContext, memory: CheckpointMemory = _OF_THIS_PROCESS
    ) -> None:
        super().__init__(context, memory)
        self._memory = memory

    @classmethod
    def from_properties(cls, properties: Properties, context: CheckpointStoreContext) -> Self:
        return cls(context)

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        with self._memory.lock:
            return {shard: stored for shard, (stored, _) in self._checkpoints().items()}

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        written_at = instant_text(self._context.clock.now())
        refusals = []
        with self._memory.lock:
            checkpoints = self._checkpoints()
            for attempt, checkpoint in changes:
                stored, when = checkpoints.get(attempt.shard, (None, None))
                if refusal := attempt.refusal(stored.version if stored else None, when):
                    refusals.append(refusal)
                elif checkpoint is None:
                    del checkpoints[attempt.shard]
                else:
                    new = StoredCheckpoint(checkpoint=checkpoint, version=attempt.version)
                    checkpoints[attempt.shard] = (new, written_at)
        return refusals

    def _checkpoints(self) -> dict[ShardKey, tuple[StoredCheckpoint, str]]:
        self._calls.check_open()
        return self._memory.applications[self._context.application]
