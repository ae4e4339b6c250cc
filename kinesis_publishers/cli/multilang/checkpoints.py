"""The checkpoints of a processor, by the rules of the KCL's ShardRecordProcessorCheckpointer."""

from __future__ import annotations

import logging
from typing import Any, Final

from attrs import define, field

from kinesis_publishers.abc import SharedReading
from kinesis_publishers.errors import (
    CheckpointError,
    KinesisPublishersError,
    LimitExceededError,
    ThroughputExceededError,
)
from kinesis_publishers.model import SequenceNumber, ShardKey, ShardProgress, StartingPosition
from kinesis_publishers.progress.checkpointer import Checkpointer

_LOGGER = logging.getLogger(__name__)

# The names of the KCL's exceptions, which processors know.
NO_CHECKPOINT: Final = "InvalidStateException"
_LOST: Final = "ShutdownException"
_ILLEGAL: Final = "IllegalArgumentException"
_THROTTLED: Final = "ThrottlingException"
_STORE_FAILED: Final = "KinesisClientLibDependencyException"


@define
class ShardCheckpoints:
    """What was handed to the processor of a shard, and what it has checkpointed.

    Attributes:
        is_lost: set once another worker has the shard.
        is_end_written: whether the processor has checkpointed the end of the shard.
    """

    _key: ShardKey
    _checkpointer: Checkpointer
    _sharing: SharedReading
    # The last record that was handed over, and the progress of the shard behind it.
    _largest: SequenceNumber | None = field(default=None, init=False)
    _reached: ShardProgress | None = field(default=None, init=False)
    is_lost: bool = field(default=False, init=False)
    is_end_written: bool = field(default=False, init=False)

    @property
    def stored(self) -> ShardProgress | None:
        """The checkpoint of the shard; ``None`` if the lease on it is another worker's."""
        return None if self.is_lost else self._checkpointer.stored.get(self._key)

    def has_stored_end(self, shard: ShardKey) -> bool:
        """Return whether the end of a shard is stored, by any worker, or the shard is gone."""
        # The lease on an ended shard is given up with the write of its end.
        known = self._sharing.known_progress()
        progress = self._checkpointer.stored.get(shard) or known.get(shard)
        return progress is None or progress.is_ended

    @property
    def may_hand_over(self) -> bool:
        """Whether records of the shard may be processed now."""
        return self._sharing.may_deliver(self._key)

    def note(self, progress: ShardProgress, last: SequenceNumber | None = None) -> None:
        """Let the ``progress`` after a delivery up to ``last``, or at the end, be the farthest."""
        if last is not None:
            # A record outside of an aggregate has the number 0 in the KCL.
            self._largest = SequenceNumber(last.sequence_number, last.sub_sequence_number or 0)
        self._reached = progress

    async def write(self, number: Any, sub: Any) -> str | None:
        """Write a checkpoint; return the name of the KCL's exception if it is not written.

        Without a number it is everything that was handed over. A number without one inside of its
        record means the first record of an aggregate, as in the KCL.
        """
        if (stored := self.stored) is None:
            return _LOST
        try:
            progress = self._reached if number is None else self._progress_at(number, sub, stored)
        except (TypeError, ValueError, OverflowError):
            return _ILLEGAL
        return None if progress is None else await self._write(progress)

    def _progress_at(self, number: Any, sub: Any, stored: ShardProgress) -> ShardProgress | None:
        """Return the progress behind a record, ``None`` if it is stored; ``ValueError`` if not."""
        wanted, last = SequenceNumber(str(number), int(sub or 0)), stored.processed
        if int(sub or 0) < 0:
            raise ValueError("no record has a negative number")
        if wanted == self._largest:
            return self._reached
        if last is not None and last in (wanted, wanted.whole):
            return None
        if self._largest is None or wanted > self._largest or (last is not None and wanted < last):
            raise ValueError("it was not handed over, or is before the last checkpoint")
        return ShardProgress(position=StartingPosition.at(wanted))

    async def _write(self, progress: ShardProgress) -> str | None:
        try:
            self._checkpointer.record(self._key, progress)
            await self._checkpointer.flush()
        except CheckpointError as error:
            _LOGGER.warning("A checkpoint of %s is refused: %s", self._key, error)
            return _ILLEGAL
        except KinesisPublishersError as error:
            # It stays recorded, and is written as soon as the store takes it.
            _LOGGER.warning("A checkpoint of %s is not written yet: %s", self._key, error)
            causes = (ThroughputExceededError, LimitExceededError)
            is_throttled = isinstance(error, causes) or isinstance(error.__cause__, causes)
            return _THROTTLED if is_throttled else _STORE_FAILED
        self.is_end_written = progress.is_ended and self.has_stored_end(self._key)
        return None if self.is_end_written or self.stored is not None else _LOST
