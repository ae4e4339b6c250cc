"""All events, and what takes them: the log and its formats, several sinks, a guarded sink."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TypeAlias

from kinesis_publishers.errors import ConfigError
from kinesis_publishers.events import producing, reading, service
from kinesis_publishers.events.event import Event

EventSink: TypeAlias = Callable[[Event], None]
"""Receives events: called synchronously in the event loop, so it must not block."""

EVENT_TYPES: Final[tuple[type[Event], ...]] = tuple(
    one
    for module in (reading, service, producing)
    for one in vars(module).values()
    if isinstance(one, type) and issubclass(one, Event) and one.__module__ == module.__name__
)
"""The classes of all events, in the order of the documentation."""

_LOGGER = logging.getLogger("kinesis_publishers")


def level_of(event: Event) -> int:
    if isinstance(event, producing.RecordsFailed) and event.code == "BufferFullError":
        # One for each record, and kinesis.producer.buffer.whenfull has asked for it.
        return logging.DEBUG
    return event.level


def log_event(event: Event) -> None:
    """Write ``event`` to the logger ``kinesis_publishers``, with its fields as attributes."""
    level = level_of(event)
    if _LOGGER.isEnabledFor(level):
        _LOGGER.log(level, "%s", event, extra=event.fields())


def ignore_event(event: Event) -> None:
    """Do nothing with ``event``."""


def fan_out_events(*sinks: EventSink) -> EventSink:
    """Return a sink that hands every event to each of ``sinks``, in their order.

    If one raises, the later ones do not receive the event, and the caller gets the error: wrap
    sinks that may fail in :func:`guard_events`.
    """
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


LOG_FORMAT_VARIABLE: Final = "KINESIS_PUBLISHERS_LOG_FORMAT"
"""The environment variable that selects the format: ``text``, the default, or ``json``."""

# What every log record has; the rest was passed as ``extra``.
_OF_EVERY_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class JsonLogFormatter(logging.Formatter):
    """Writes each log record as a JSON object on one line, for the handler of a program.

    It has ``time``, ``level``, ``logger`` and ``message``, the fields of an event or what else was
    passed as ``extra``, and ``exception`` where there is one.
    """

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        extra = {key: one for key, one in vars(record).items() if key not in _OF_EVERY_RECORD}
        return json.dumps(extra | line if extra.keys() & line.keys() else line | extra, default=str)


def log_formatter(text: logging.Formatter) -> logging.Formatter:
    """Return a :class:`JsonLogFormatter` if the environment asks for it, ``text`` otherwise.

    Raises:
        ConfigError: ``KINESIS_PUBLISHERS_LOG_FORMAT`` has another value than ``text`` or ``json``.
    """
    chosen = os.environ.get(LOG_FORMAT_VARIABLE) or "text"
    if chosen not in ("text", "json"):
        raise ConfigError(f"{LOG_FORMAT_VARIABLE} must be text or json, not {chosen!r}")
    return JsonLogFormatter() if chosen == "json" else text
