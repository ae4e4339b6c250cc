"""What reads streams: whole shards, exact ranges, and the ends of ranges; built by the assembly.

Each reader is imported at its first use: the guard process starts without any of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kinesis_publishers.assembly import publisher_factory_class, with_region
from kinesis_publishers.clock import ServiceClock
from kinesis_publishers.model import PositionType, is_refresh_due

if TYPE_CHECKING:
    from kinesis_publishers.readers.bounded_read import BatchBounds, Narrowing, is_after, plan_batch
    from kinesis_publishers.readers.eager_registration import check_streams, register_consumers
    from kinesis_publishers.readers.fetcher import KinesisDataFetcher
    from kinesis_publishers.readers.guard import ConsumerGuard
    from kinesis_publishers.readers.range_ends import (
        Ends,
        KinesisRangeFinder,
        Portion,
        ReadLimit,
    )
    from kinesis_publishers.readers.range_reader import KinesisRangeReader, as_polling

__all__ = [
    "BatchBounds",
    "ConsumerGuard",
    "Ends",
    "KinesisDataFetcher",
    "KinesisRangeFinder",
    "KinesisRangeReader",
    "Narrowing",
    "PositionType",
    "Portion",
    "ReadLimit",
    "ServiceClock",
    "as_polling",
    "check_streams",
    "is_after",
    "is_refresh_due",
    "plan_batch",
    "publisher_factory_class",
    "register_consumers",
    "with_region",
]

_NAMES: Final = {
    "bounded_read": "BatchBounds Narrowing is_after plan_batch",
    "eager_registration": "check_streams register_consumers",
    "fetcher": "KinesisDataFetcher",
    "guard": "ConsumerGuard",
    "range_ends": "Ends KinesisRangeFinder Portion ReadLimit",
    "range_reader": "KinesisRangeReader as_polling",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used (PEP 562)."""
    for module, names in _NAMES.items():
        if name in names.split():
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
