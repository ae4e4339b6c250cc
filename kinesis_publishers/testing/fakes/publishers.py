"""A publisher that follows a script, for tests of whatever runs publishers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Self

from attrs import frozen

from kinesis_publishers.abc import (
    PublisherContext,
    RecordBatchConsumer,
    RecordPublisher,
    RecordPublisherFactory,
)
from kinesis_publishers.model import PositionType, RunResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.config import Properties
    from kinesis_publishers.model import RecordBatch, SequenceNumber, Shard, StartingPosition

__all__ = ["ScriptedPublisher", "ScriptedPublisherFactory", "ScriptedRun"]


@frozen(kw_only=True)
class ScriptedRun:
    """What one ``run`` does: deliver, then return or fail.

    Attributes:
        batches: what is delivered, in order.
        result: what is returned.
        error: what is raised instead.
    """

    batches: Sequence[RecordBatch] = ()
    result: RunResult = RunResult.INCOMPLETE
    error: Exception | None = None


class ScriptedPublisher(RecordPublisher):
    """Does one :class:`ScriptedRun` after the other; after the last one the shard has ended.

    Attributes:
        processed: what the consumer answered to each batch.
    """

    def __init__(self, runs: Sequence[ScriptedRun]) -> None:
        self._runs = deque(runs)
        self.processed: list[SequenceNumber | None] = []

    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        if not self._runs:
            return RunResult.COMPLETE
        script = self._runs.popleft()
        for batch in script.batches:
            await consumer.wait_for_space(len(batch), batch.payload_bytes)
            self.processed.append(await consumer(batch))
        if script.error is not None:
            raise script.error
        return script.result


class ScriptedPublisherFactory(RecordPublisherFactory):
    """Makes one scripted publisher for each time that it is asked.

    Args:
        scripts: the runs of the first publisher, of the second one, and so on.

    Attributes:
        positions: where each publisher was told to begin.
        publishers: the publishers that were made.
        is_closed: whether :meth:`close` was called.
    """

    def __init__(self, *scripts: Sequence[ScriptedRun]) -> None:
        self._scripts = deque(scripts)
        self.positions: list[StartingPosition] = []
        self.publishers: list[ScriptedPublisher] = []
        self.is_closed = False

    @classmethod
    def from_properties(cls, properties: Properties, context: PublisherContext) -> Self:
        """Return a factory whose shards are empty: nothing in a configuration is a script."""
        return cls()

    async def create(self, starting_position: StartingPosition, shard: Shard) -> ScriptedPublisher:
        if starting_position.type is PositionType.LATEST:
            raise ValueError("LATEST must be pinned to an instant before it is read from")
        self.positions.append(starting_position)
        script = self._scripts.popleft() if self._scripts else ()
        self.publishers.append(ScriptedPublisher(script))
        return self.publishers[-1]

    async def close(self) -> None:
        self.is_closed = True
