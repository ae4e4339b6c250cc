"""What processors need of the leases: whose a shard is, and the writing of checkpoints."""

from __future__ import annotations

import logging
from typing import Final

from attrs import frozen

from kinesis_publishers.errors import (
    CheckpointError,
    KinesisPublishersError,
    LimitExceededError,
    RetriesExhaustedError,
    StaleCheckpointError,
    ThroughputExceededError,
)
from kinesis_publishers.model import ShardKey, ShardProgress
from kinesis_publishers.readers.fetcher import KinesisDataFetcher

_LOGGER = logging.getLogger(__name__)

# The names of the KCL's exceptions, which processors know.
SHUTDOWN: Final = "ShutdownException"
NO_CHECKPOINT: Final = "InvalidStateException"
ILLEGAL: Final = "IllegalArgumentException"
_THROTTLED: Final = "ThrottlingException"
_STORE_FAILED: Final = "KinesisClientLibDependencyException"


@frozen
class Leased:
    """The leases of this worker, over a fetcher with a checkpointer."""

    _fetcher: KinesisDataFetcher

    def stored(self, shard: ShardKey) -> ShardProgress | None:
        """Return the checkpoint of a shard; ``None`` if the lease on it is another worker's."""
        checkpointer = self._fetcher.checkpointer
        assert checkpointer is not None, "a daemon has an application"
        return checkpointer.stored.get(shard)

    def may_hand_over(self, shard: ShardKey) -> bool:
        """Return whether records of a shard may be processed now."""
        return self._fetcher.sharing.may_deliver(shard)

    async def write(self, shard: ShardKey, progress: ShardProgress) -> str | None:
        """Write a checkpoint; return the name of the KCL's exception if it is not written."""
        checkpointer = self._fetcher.checkpointer
        assert checkpointer is not None, "a daemon has an application"
        if self.stored(shard) is None:
            return SHUTDOWN
        try:
            checkpointer.record(shard, progress)
            await checkpointer.flush()
        except StaleCheckpointError:
            return SHUTDOWN
        except CheckpointError as error:
            _LOGGER.warning("A checkpoint of %s is refused: %s", shard, error)
            return ILLEGAL
        except KinesisPublishersError as error:
            # It stays recorded, and is written as soon as the store takes it.
            _LOGGER.warning("A checkpoint of %s is not written yet: %s", shard, error)
            return _THROTTLED if _is_throttled(error) else _STORE_FAILED
        return None if self._is_written(shard, progress) else SHUTDOWN

    def _is_written(self, shard: ShardKey, progress: ShardProgress) -> bool:
        if self.stored(shard) is not None:
            return True
        # The lease on an ended shard is given up with the same write.
        known = self._fetcher.sharing.known_progress().get(shard)
        return progress.is_ended and known is not None and known.is_ended


def _is_throttled(error: KinesisPublishersError) -> bool:
    cause = error.__cause__ if isinstance(error, RetriesExhaustedError) else error
    return isinstance(cause, ThroughputExceededError | LimitExceededError)
