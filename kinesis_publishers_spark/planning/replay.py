"""What both planners do with a micro-batch that they did not plan themselves."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from kinesis_publishers_spark.planning.range_session import RangeSession

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_publishers import Clock, Properties, ShardRange
    from kinesis_publishers_spark.offsets import Offset

__all__ = ["check_beginnings"]

# Below the shortest retention, which is 24 hours (AWS service limits): nothing has been removed.
_SURELY_KEPT = timedelta(hours=23)


def check_beginnings(
    properties: Properties, start: Offset, ranges: Iterable[ShardRange], clock: Clock
) -> None:
    """Report ranges whose first records may be gone, where reading them would not show it.

    A range that names its first record shows it. Any other begins after one that the retention may
    have removed with what followed; how long that one has been read tells. The service is asked
    only when it has been long.

    Raises:
        PositionTrimmedError: records may be gone, and loss is not tolerated.
    """
    recent = clock.now() - _SURELY_KEPT
    old = {}
    for one in ranges:
        begin = start.shards.get(one.shard)
        if begin is None or begin.progress.position != one.start:
            continue
        if begin.progress.as_of is not None and begin.progress.as_of < recent:
            old[one.shard] = begin.progress
    if not old:
        return
    session = RangeSession(properties, {}, clock=clock)
    try:
        session.check_retention(old)
    finally:
        session.close()
