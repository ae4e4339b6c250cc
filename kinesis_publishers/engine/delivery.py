"""Records on their way to the application: deliveries, what is known of shards, and sinks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from datetime import datetime

from attrs import frozen

from kinesis_publishers.engine.pool import Reservation
from kinesis_publishers.model import ChildShard, RecordBatch, Shard, ShardKey, ShardProgress

# Longer than the pause between two answers of an idle shard, by any publisher.
_TIP_LASTS_SECONDS = 30.0


@frozen(eq=False)
class Delivery:
    """Records on their way to the application, with their share of the pending pool.

    Attributes:
        batch: at least one record.
        progress: the progress of the shard after this delivery.
        reservation: its share of the pool.
    """

    batch: RecordBatch
    progress: ShardProgress
    reservation: Reservation

    @property
    def shard(self) -> Shard:
        return self.batch.shard

    def release(self) -> None:
        """Release the share of the pool once the records are no longer held."""
        self.reservation.release()


@frozen(kw_only=True)
class ShardStatus:
    """The state of reading one shard.

    Attributes:
        progress: where reading continues.
        millis_behind_latest: the lag in the last answer; ``None`` if unknown.
        read_until: records that arrived earlier, by the reader's clock, have been read; ``None``
            while the lag is unknown. For a subscription it is the time of its start.
        answered_at: the time of the last answer, if known.
        is_delivering: whether the application is processing records of the shard.
        child_shards: the children in the last answer.
        is_polled: whether each answer has its own call, and so can be timed.
    """

    shard: Shard
    progress: ShardProgress
    millis_behind_latest: int | None = None
    read_until: datetime | None = None
    answered_at: datetime | None = None
    is_delivering: bool = False
    child_shards: tuple[ChildShard, ...] = ()
    is_polled: bool = False

    def lag_seconds(self, now: datetime) -> float | None:
        """Return how long records may have waited to be processed; ``None`` if unknown.

        It is 0 at the tip, however old the last record is, and grows while no answer comes.
        """
        if self.read_until is None:
            return None
        seen = max(self.read_until, self.progress.as_of or self.read_until)
        age = (now - max(seen, self.answered_at or seen)).total_seconds()
        is_idle = self.millis_behind_latest == 0 and not self.is_delivering
        if is_idle and age < _TIP_LASTS_SECONDS:
            return 0.0
        return max(0.0, (now - seen).total_seconds())

    def is_read_until(self, instant: datetime) -> bool:
        """Return whether an open shard has been read up to ``instant``.

        The answers of a closed shard may reach it before the shard's end and children are known.
        """
        seen = self.read_until
        return seen is not None and seen >= instant and not self.shard.is_closed


@frozen(kw_only=True)
class Gathering:
    """Records of a shard wait until there are enough of them, or the time is over.

    Attributes:
        max_records: ``None`` for any number.
        max_bytes: of payload; ``None`` for any number.
    """

    max_wait_seconds: float
    max_records: int | None = None
    max_bytes: int | None = None

    def is_complete(self, batch: RecordBatch) -> bool:
        """Return whether a batch needs to wait no longer."""
        return len(batch) >= (self.max_records or math.inf) or batch.payload_bytes >= (
            self.max_bytes or math.inf
        )


class DeliverySink(ABC):
    """Receives records, and reports about their shards."""

    takes_failures = False  # Whether an error policy takes the ``failures`` of a batch.
    packs_columns = False  # As of a DataPlane.
    # Whether the next delivery of a shard may begin before the one before it is processed: the
    # sink returns from them in their order.
    overlaps = False
    gathering: Gathering | None = None  # How long the records of a shard wait for further ones.

    @abstractmethod
    async def deliver(self, delivery: Delivery) -> None:
        """Process a delivery and release it; it counts as processed when this returns."""

    def observe(self, status: ShardStatus) -> None:  # noqa: B027 - optional to override
        """Receive the state of a shard; called after each answer, even an empty one.

        Updates during a delivery are merged and reported after it. Readers of ranges report none:
        a range has its own end.
        """

    async def wait_until_wanted(self, shard: ShardKey) -> None:  # noqa: B027 - optional
        """Wait until more records of a shard are wanted; called before each poll and event."""

    def withdraw(self, shard: ShardKey, *, is_lost: bool) -> None:  # noqa: B027 - optional
        """Finish the deliveries of a shard, because another worker will read it.

        It delivers nothing more unless this worker gets it back. If it ``is_lost``, the other
        worker has already begun, and repeats what was not recorded. Otherwise that worker waits for
        the end of the delivery in progress.
        """

    async def let_go(self, shard: ShardKey) -> None:  # noqa: B027 - optional to override
        """Finish with a shard that was withdrawn and not lost, before its lease is released."""

    def observe_discovery(self) -> None:  # noqa: B027 - optional to override
        """Called after a listing, when new shards have started."""


class ForwardingSink(DeliverySink):
    """Forwards everything to another sink; a subclass overrides what it changes."""

    def __init__(self, inner: DeliverySink) -> None:
        self._inner = inner
        self.takes_failures = inner.takes_failures
        self.overlaps, self.gathering = inner.overlaps, inner.gathering

    async def deliver(self, delivery: Delivery) -> None:
        await self._inner.deliver(delivery)

    def observe(self, status: ShardStatus) -> None:
        self._inner.observe(status)

    async def wait_until_wanted(self, shard: ShardKey) -> None:
        await self._inner.wait_until_wanted(shard)

    def withdraw(self, shard: ShardKey, *, is_lost: bool) -> None:
        self._inner.withdraw(shard, is_lost=is_lost)

    async def let_go(self, shard: ShardKey) -> None:
        await self._inner.let_go(shard)

    def observe_discovery(self) -> None:
        self._inner.observe_discovery()
