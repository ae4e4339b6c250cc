"""How log records are written: as lines of text, or as JSON with the fields of events."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from typing import Final

from kinesis_publishers.errors import ConfigError

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
