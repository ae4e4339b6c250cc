"""All events there are, and what takes them: the log, several sinks at once, a guarded sink."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias, get_args

from kinesis_publishers.events import producing, reading, service

Event: TypeAlias = (
    reading.FetcherStarted
    | reading.FetcherStopped
    | reading.StreamPrepared
    | reading.ShardsDiscovered
    | reading.ShardStarted
    | reading.ShardEnded
    | reading.ShardStopped
    | reading.RangeRead
    | reading.RecordsFetched
    | reading.IteratorReplaced
    | reading.SubscriptionStarted
    | reading.SubscriptionEnded
    | reading.EventReceived
    | reading.RecordsSkipped
    | reading.AggregatesExpanded
    | reading.RecordsProcessed
    | reading.CallbackDelayed
    | reading.LagMeasured
    | reading.ProcessingFailed
    | reading.CheckpointsSaved
    | reading.CheckpointsRefused
    | reading.LeaseTaken
    | reading.LeaseReleased
    | reading.LeaseLost
    | reading.LeasesCounted
    | service.BackpressureBegan
    | service.BackpressureEnded
    | service.PoolUsed
    | service.Throttled
    | service.CallRetried
    | service.ConsumerRegistered
    | service.ConsumerAwaited
    | service.ConsumerDeregistered
    | reading.DataLossTolerated
    | producing.ProducerStarted
    | producing.ProducerStopped
    | producing.RecordsPut
    | producing.RecordsRefused
    | producing.PutRecordsAnswered
    | producing.RecordsFailed
    | producing.ShardMispredicted
)
"""One of the facts above."""

EventSink: TypeAlias = Callable[[Event], None]
"""Receives events: called synchronously in the event loop, so it must not block."""

EVENT_TYPES: Final[tuple[type, ...]] = get_args(Event)
"""The classes of all events, in the order of the documentation."""

_LOGGER = logging.getLogger("kinesis_publishers")

# Everything else is a step in the life of a fetcher: INFO.
_LEVELS: Final[dict[type, int]] = {
    reading.DataLossTolerated: logging.ERROR,
    reading.ProcessingFailed: logging.WARNING,
    reading.CheckpointsRefused: logging.WARNING,
    reading.LeaseLost: logging.WARNING,
    reading.LeasesCounted: logging.DEBUG,
    reading.RecordsFetched: logging.DEBUG,
    reading.SubscriptionStarted: logging.DEBUG,
    reading.SubscriptionEnded: logging.DEBUG,
    reading.EventReceived: logging.DEBUG,
    reading.RecordsSkipped: logging.DEBUG,
    reading.AggregatesExpanded: logging.DEBUG,
    reading.RecordsProcessed: logging.DEBUG,
    # kinesis_publishers.engine.slow_calls warns about it in words.
    reading.CallbackDelayed: logging.DEBUG,
    reading.LagMeasured: logging.DEBUG,
    reading.CheckpointsSaved: logging.DEBUG,
    reading.IteratorReplaced: logging.DEBUG,
    service.BackpressureBegan: logging.DEBUG,
    service.BackpressureEnded: logging.DEBUG,
    service.PoolUsed: logging.DEBUG,
    service.Throttled: logging.DEBUG,
    # kinesis_publishers.retry warns about what keeps failing.
    service.CallRetried: logging.DEBUG,
    producing.RecordsPut: logging.DEBUG,
    producing.RecordsRefused: logging.DEBUG,
    producing.PutRecordsAnswered: logging.DEBUG,
    producing.RecordsFailed: logging.WARNING,
}


def level_of(event: Event) -> int:
    """Return the level of ``event`` in the log."""
    if isinstance(event, producing.RecordsFailed) and event.code == "BufferFullError":
        # One for each record, and kinesis.producer.buffer.whenfull has asked for it.
        return logging.DEBUG
    return _LEVELS.get(type(event), logging.INFO)


def log_event(event: Event) -> None:
    """Write ``event`` to the logger ``kinesis_publishers``.

    The lifecycle of a fetcher is INFO, each answer and delivery DEBUG, and what needs attention
    WARNING or higher.
    """
    level = level_of(event)
    if _LOGGER.isEnabledFor(level):
        _LOGGER.log(level, "%s", event)


def ignore_event(event: Event) -> None:
    """Do nothing with ``event``."""


def fan_out_events(*sinks: EventSink) -> EventSink:
    """Return a sink that hands every event to each of ``sinks``, in their order.

    If one raises, the sinks after it do not receive the event, and the error reaches the caller:
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
    """Return a sink that does what ``sink`` does, and logs its failures instead of raising them.

    A broken metrics exporter must not stop a pipeline. Each kind of failure, a type of exception on
    a type of event, is logged once with its traceback: events come thousands of times a second.
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
                    "Reading continues, and this kind of failure is not logged again. Fix the "
                    "sink, or remove it from kinesis.metrics.sinks or the argument events.",
                    sink,
                    type(event).__name__,
                )

    return hand_on
