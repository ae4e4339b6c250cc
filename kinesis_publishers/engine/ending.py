"""The instant at which reading ends: what is delivered before it, and when a shard is there."""

from __future__ import annotations

import logging
import math
from datetime import datetime, timedelta
from typing import Final

from attrs import define, field

from kinesis_publishers.clock import Clock
from kinesis_publishers.engine.alignment import count_before
from kinesis_publishers.engine.delivery import ShardStatus
from kinesis_publishers.engine.discovery import ShardDiscovery
from kinesis_publishers.errors import ConfigError
from kinesis_publishers.model import RecordBatch, StartingPosition

_LOGGER = logging.getLogger(__name__)

VISIBLE_AFTER: Final = timedelta(seconds=1)
"""How long after its arrival a record can be read at the latest.

It is typically less than a second (AWS, Kinesis FAQs). An empty answer that is asked for later
proves that no earlier record is missing.
"""


@define(eq=False)
class ReadingEnd:
    """Ends reading before the first record of each shard that arrived at an instant or later.

    Attributes:
        until: the instant, once it is pinned; ``None`` if reading does not end.
    """

    _position: StartingPosition | None
    _clock: Clock
    _discovery: ShardDiscovery
    until: datetime | None = field(default=None, init=False)
    _listed_at: datetime | None = field(default=None, init=False)

    def note_listing(self, listed_at: datetime) -> None:
        """Update the time of the last listing; the first one fixes the instant."""
        self._listed_at = listed_at
        if self._position is not None and self.until is None:
            instant = self._position.pinned(next_millisecond(listed_at)).timestamp or listed_at
            # Rounded down as a start is, so that reading from there continues without a gap.
            self.until = instant - timedelta(microseconds=instant.microsecond % 1000)
            _LOGGER.info("Reading ends at %s.", self.until.isoformat())

    @property
    def seconds_to_listing(self) -> float:
        """In how many seconds the shards must be listed: once after the end.

        A listing may be late, like a record.
        """
        if self.until is None or self._listed_at is None:
            return math.inf
        settled_at = self.until + VISIBLE_AFTER
        is_settled = self._listed_at >= settled_at
        return math.inf if is_settled else (settled_at - self._clock.now()).total_seconds()

    def before(self, batch: RecordBatch) -> RecordBatch:
        """Return the records before the end, and nothing about the tip if others follow.

        Raises:
            ConfigError: the publisher does not know when they arrived.
        """
        if self.until is None:
            return batch
        if not batch.has_arrival_times:
            raise ConfigError(
                f"{batch.shard}: the publisher does not know when records arrived, so that reading "
                f"cannot end at {self.until.isoformat()}: leave the end out"
            )
        count = count_before(batch.arrival_epoch_seconds, self.until)
        return batch if count == len(batch) else batch.cut(count)

    def is_reached(self, status: ShardStatus) -> bool:
        """Return whether a shard has no record before the end that was not delivered.

        A shard that closed before the end is read to its own end: its children continue it. That
        it did not close shows only a listing after the end.
        """
        if self.until is None or self.seconds_to_listing < math.inf:
            return False
        is_closed = self._discovery.has_shown_closed(status.shard)
        return not is_closed and status.is_read_until(self.until + VISIBLE_AFTER)


def next_millisecond(instant: datetime) -> datetime:
    """Return ``instant`` as the service takes it, in milliseconds, rounded up.

    Records that arrived in this very millisecond precede it.
    """
    return instant + timedelta(microseconds=-instant.microsecond % 1000)
