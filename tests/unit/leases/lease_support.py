"""Workers of one application over one storage, each with a clock of its own, and a faulty store."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kinesis_publishers import ShardKey
from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.checkpoints import CheckpointMemory, MemoryCheckpointStore
from kinesis_publishers.config import LeaseConfig, LeaseFormat
from kinesis_publishers.errors import ConnectionFailedError
from kinesis_publishers.model import StoredCheckpoint
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.checkpoints.checkpoint_support import BEGINNING, IDENTITIES, POLICY, at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.checkpoints.versions import Change, Refusal
    from kinesis_publishers.model import CheckpointVersion, CheckpointWrite

__all__ = ["BEGINNING", "IDENTITIES", "at"]

APPLICATION = "billing"
FAILOVER = 10.0
HANDOVER = 30.0


def config(
    worker_id: str | None = None,
    *,
    max_leases: int | None = None,
    handover_seconds: float = HANDOVER,
) -> LeaseConfig:
    """Return the options of a worker."""
    return LeaseConfig(
        is_enabled=True,
        worker_id=worker_id,
        failover_seconds=FAILOVER,
        handover_seconds=handover_seconds,
        max_leases=max_leases,
        format=LeaseFormat.OWN,
    )


def down() -> ConnectionFailedError:
    return ConnectionFailedError("the store is down", operation="any", code="connection")


class CountingStore(MemoryCheckpointStore):
    """Counts its calls and the rows that they write; fails while ``error`` is set."""

    def __init__(self, clock: ManualClock, memory: CheckpointMemory) -> None:
        super().__init__(
            CheckpointStoreContext(application=APPLICATION, retry=POLICY, clock=clock), memory
        )
        self.calls: Counter[str] = Counter()
        self.error: Exception | None = None

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        self.calls["load"] += 1
        self._check()
        return await super().load()

    async def save(self, writes: Sequence[CheckpointWrite]) -> dict[ShardKey, CheckpointVersion]:
        self.calls["save"] += 1
        self.calls["rows"] += len(writes)
        return await super().save(writes)

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        self._check()
        return await super()._apply(changes)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error
