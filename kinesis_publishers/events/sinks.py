"""What takes events: the log, several sinks at once, and a sink whose failures do not count."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kinesis_publishers.events.lifecycle import DataLossTolerated, FetcherStopped, ShardStopped
from kinesis_publishers.events.reading import (
    AggregatesExpanded,
    CheckpointsRefused,
    CheckpointsSaved,
    EventReceived,
    IteratorReplaced,
    ProcessingFailed,
    RecordsFetched,
    RecordsProcessed,
    RecordsSkipped,
    SubscriptionEnded,
    SubscriptionStarted,
)
from kinesis_publishers.events.service import (
    BackpressureBegan,
    BackpressureEnded,
    CallRetried,
    PoolUsed,
    Throttled,
)

if TYPE_CHECKING:
    from kinesis_publishers.events.catalogue import Event, EventSink

__all__ = ["fan_out_events", "guard_events", "ignore_event", "level_of", "log_event"]

_LOGGER = logging.getLogger("kinesis_publishers")

# Everything else is a step in the life of a fetcher: INFO.
_LEVELS: Final[dict[type, int]] = {
    DataLossTolerated: logging.ERROR,
    ProcessingFailed: logging.WARNING,
    CheckpointsRefused: logging.WARNING,
    RecordsFetched: logging.DEBUG,
    SubscriptionStarted: logging.DEBUG,
    SubscriptionEnded: logging.DEBUG,
    EventReceived: logging.DEBUG,
    RecordsSkipped: logging.DEBUG,
    AggregatesExpanded: logging.DEBUG,
    RecordsProcessed: logging.DEBUG,
    CheckpointsSaved: logging.DEBUG,
    IteratorReplaced: logging.DEBUG,
    BackpressureBegan: logging.DEBUG,
    BackpressureEnded: logging.DEBUG,
    PoolUsed: logging.DEBUG,
    Throttled: logging.DEBUG,
    # What fails again and again is a warning of kinesis_publishers.retry.
    CallRetried: logging.DEBUG,
}


def level_of(event: Event) -> int:
    """Return the level of ``event`` in the log."""
    if isinstance(event, FetcherStopped | ShardStopped) and event.error is not None:
        return logging.WARNING
    return _LEVELS.get(type(event), logging.INFO)


def log_event(event: Event) -> None:
    """Write ``event`` to the logger ``kinesis_publishers``.

    A fetcher's life is INFO, each answer and delivery DEBUG, and what somebody should look at
    WARNING or more.
    """
    level = level_of(event)
    if _LOGGER.isEnabledFor(level):
        _LOGGER.log(level, "%s", event)


def ignore_event(event: Event) -> None:
    """Do nothing with ``event``."""


def fan_out_events(*sinks: EventSink) -> EventSink:
    """Return a sink that hands every event to each of ``sinks``, in their order.

    The first one that raises keeps the event from those behind it, and its error is the caller's:
    wrap sinks that may fail in :func:`guard_events`.
    """
    if not sinks:
        return ignore_event
    if len(sinks) == 1:
        return sinks[0]

    def hand_on(event: Event) -> None:
        for sink in sinks:
            sink(event)

    return hand_on


def guard_events(sink: EventSink) -> EventSink:
    """Return a sink that does what ``sink`` does, and logs instead of raising.

    A broken exporter of metrics must not stop a pipeline. Each kind of failure, a type of exception
    on a type of event, is logged once with its traceback: at thousands of events a second it would
    drown everything else.
    """
    reported: set[tuple[type, type]] = set()

    def hand_on(event: Event) -> None:
        try:
            sink(event)
        except Exception as error:
            kind = (type(event), type(error))
            if kind not in reported:
                reported.add(kind)
                _LOGGER.exception(
                    "The event sink %r failed on %s: such events are missing where it reports to. "
                    "Reading goes on, and this kind of failure is not logged again. Mend the sink, "
                    "or remove it from kinesis.metrics.sinks or the argument events.",
                    sink,
                    type(event).__name__,
                )

    return hand_on
