"""Opens the fetcher that the simple API reads with."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kinesis_publishers.config import Properties
from kinesis_publishers.data_fetcher import KinesisDataFetcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.events import EventSink
    from kinesis_publishers.processing.feed import OpenFetcher

__all__ = ["fetcher_opener"]


def fetcher_opener(
    properties: Properties | Mapping[str, str | int | float | bool],
    *,
    events: EventSink | None,
    clock: Clock,
) -> OpenFetcher:
    """Return what opens a fetcher that delivers to a sink, and records nothing by itself.

    Raises:
        ConfigError: the properties cannot work; every problem is named.
    """
    if not isinstance(properties, Properties):
        properties = Properties.parse(properties)
    return partial(
        KinesisDataFetcher.from_properties,
        properties,
        records_deliveries=False,
        events=events,
        clock=clock,
    )
