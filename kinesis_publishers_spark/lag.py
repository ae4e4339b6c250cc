"""How far a query is behind its streams. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from attrs import field, frozen

if TYPE_CHECKING:
    from kinesis_publishers import ShardKey, ShardStatus

# How many shards Spark shows, the furthest behind first.
_SHARDS_SHOWN = 20


@frozen(kw_only=True)
class Lag:
    """How far a query is behind.

    The lag of a shard (``stream/shard``) is ``None`` until an answer has it.

    Attributes:
        lag_millis: the age of the oldest record that Spark has not committed, 0 without one.
        millis_behind_latest: how far the service's last answer was behind the tip; records that
            wait for Spark do not count.
        buffered_records: fetched and not yet in a micro-batch.
        buffered_bytes: the same, in payload bytes.
        late_records: how many records of this run arrived more than 15 s before the end of an
            earlier micro-batch.
        late_records_by_shard: the same, by shard.
        held_back_shards: the number of shards for which the others no longer wait.
        aligned_until: the latest arrival in any micro-batch, ``None`` before the first.
    """

    lag_millis: Mapping[str, int | None]
    millis_behind_latest: Mapping[str, int | None]
    buffered_records: int = 0
    buffered_bytes: int = 0
    late_records: int = 0
    late_records_by_shard: Mapping[str, int] = field(factory=dict)
    held_back_shards: int = 0
    aligned_until: datetime | None = None

    @classmethod
    def of(
        cls,
        statuses: Iterable[ShardStatus],
        oldest: Mapping[ShardKey, datetime],
        now: datetime,
        *,
        late: Mapping[ShardKey, int] | None = None,
        **others: Any,
    ) -> Self:
        """Measure the lag.

        Args:
            statuses: how far each shard is read, or looked at.
            oldest: the arrival of the first record of each shard that was read and is not
                committed.
            now: by the service's clock.
            late: the late records of each shard.
            others: the other attributes.
        """
        # Only waiting records count for a shard that has ended.
        by_name = {str(one.shard): one for one in statuses if not one.progress.is_ended}
        seconds = {name: one.lag_seconds(now) for name, one in by_name.items()}
        waiting = {str(key): max(0.0, (now - at).total_seconds()) for key, at in oldest.items()}
        return cls(
            lag_millis={
                name: None if one is None else round(one * 1000)
                for name, one in (seconds | waiting).items()
            },
            millis_behind_latest={name: one.millis_behind_latest for name, one in by_name.items()},
            late_records=sum((late or {}).values()),
            late_records_by_shard={str(key): count for key, count in (late or {}).items()},
            **others,
        )

    @property
    def max_lag_millis(self) -> int | None:
        """The lag of the shard that is furthest behind, ``None`` until a lag is known."""
        return max(_known(self.lag_millis).values(), default=None)

    @property
    def max_millis_behind_latest(self) -> int | None:
        """The same, by the service's answers."""
        return max(_known(self.millis_behind_latest).values(), default=None)

    def report(self) -> dict[str, Any]:
        """Return what Spark shows: text and numbers only, without unknown values."""
        until = self.aligned_until
        numbers = {
            "maxLagMillis": self.max_lag_millis,
            "maxMillisBehindLatest": self.max_millis_behind_latest,
            "alignedUntil": None if until is None else round(until.timestamp() * 1000),
        }
        late = {shard: count for shard, count in self.late_records_by_shard.items() if count}
        return {
            **_known(numbers),
            "shards": len(self.lag_millis),
            "shardsWithoutAnswer": list(self.lag_millis.values()).count(None),
            "bufferedRecords": self.buffered_records,
            "bufferedBytes": self.buffered_bytes,
            "lateRecords": self.late_records,
            "heldBackShards": self.held_back_shards,
            "lagMillis": _furthest(self.lag_millis),
            "millisBehindLatest": _furthest(self.millis_behind_latest),
            "lateRecordsByShard": _furthest(late),
        }


def _known(millis: Mapping[str, int | None]) -> dict[str, int]:
    return {name: ms for name, ms in millis.items() if ms is not None}


def _furthest(millis: Mapping[str, int | None]) -> dict[str, int]:
    ordered = sorted(_known(millis).items(), key=lambda item: (-item[1], item[0]))
    return dict(ordered[:_SHARDS_SHOWN])
