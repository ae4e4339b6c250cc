"""What reads streams: whole shards, exact ranges, and the ends of ranges; built by the assembly.

Each reader is imported at its first use: the guard process starts without any of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kinesis_publishers.assembly import open_events as open_events
from kinesis_publishers.assembly import open_services as open_services
from kinesis_publishers.assembly import publisher_factory_class as publisher_factory_class
from kinesis_publishers.assembly import with_region as with_region
from kinesis_publishers.clock import ServiceClock as ServiceClock
from kinesis_publishers.engine.alignment import LATE_AFTER as LATE_AFTER
from kinesis_publishers.engine.alignment import Front as Front
from kinesis_publishers.engine.alignment import Lane as Lane
from kinesis_publishers.engine.alignment import Patience as Patience
from kinesis_publishers.engine.alignment import ReadLimit as ReadLimit
from kinesis_publishers.engine.alignment import Weight as Weight
from kinesis_publishers.engine.alignment import admit as admit
from kinesis_publishers.engine.pool import PendingPool as PendingPool
from kinesis_publishers.events import ShardLeftBehind as ShardLeftBehind
from kinesis_publishers.model import PositionType as PositionType
from kinesis_publishers.model import is_after as is_after
from kinesis_publishers.model import is_refresh_due as is_refresh_due
from kinesis_publishers.model.native import find_native as find_native
from kinesis_publishers.model.sources import source_of as source_of
from kinesis_publishers.model.sources import stream_name_of as stream_name_of
from kinesis_publishers.tasks import TaskScope as TaskScope

if TYPE_CHECKING:
    from kinesis_publishers.readers.bounded_read import BatchBounds as BatchBounds
    from kinesis_publishers.readers.bounded_read import Narrowing as Narrowing
    from kinesis_publishers.readers.bounded_read import plan_batch as plan_batch
    from kinesis_publishers.readers.fetcher import KinesisDataFetcher as KinesisDataFetcher
    from kinesis_publishers.readers.guard import ConsumerGuard as ConsumerGuard
    from kinesis_publishers.readers.ranges.finder import Ends as Ends
    from kinesis_publishers.readers.ranges.finder import KinesisRangeFinder as KinesisRangeFinder
    from kinesis_publishers.readers.ranges.reader import KinesisRangeReader as KinesisRangeReader
    from kinesis_publishers.readers.ranges.reader import as_polling as as_polling
    from kinesis_publishers.readers.ranges.rules import Portion as Portion
    from kinesis_publishers.readers.stream_consumers import check_streams as check_streams
    from kinesis_publishers.readers.stream_consumers import (
        register_consumers as register_consumers,
    )

_NAMES: Final = {
    "bounded_read": "BatchBounds Narrowing plan_batch",
    "stream_consumers": "check_streams register_consumers",
    "fetcher": "KinesisDataFetcher",
    "guard": "ConsumerGuard",
    "ranges.finder": "Ends KinesisRangeFinder",
    "ranges.reader": "KinesisRangeReader as_polling",
    "ranges.rules": "Portion",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used (PEP 562)."""
    for module, names in _NAMES.items():
        if name in names.split():
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
