"""What commands log: warnings, a line each on standard error; with ``--debug`` everything."""

from __future__ import annotations

import logging
from typing import Final

from kinesis_publishers.cli.shared.console import say

__all__ = ["log_everything", "set_up_logging"]

_OWN: Final = "kinesis_publishers"
_DETAILED: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _CommandHandler(logging.Handler):
    """Writes what is logged to where messages go at that time: a live table moves them."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            say(self.format(record))
        except Exception:  # noqa: BLE001 - what cannot be logged must not stop the work
            self.handleError(record)


class _LineFormatter(logging.Formatter):
    """Renders records as the command line's errors look: ``Warning: ...``."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.capitalize()}: {_words_of(record)}"


def set_up_logging() -> None:
    """Log to standard error from now on; for the process of a command, not for a library."""
    handler = _CommandHandler()
    handler.setFormatter(_LineFormatter())
    handler.addFilter(_says_more_than_the_error)
    logging.getLogger().addHandler(handler)


def log_everything() -> None:
    """Show what the framework does as well; does nothing without :func:`set_up_logging`.

    Only the framework: botocore's log has session tokens.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _CommandHandler):
            handler.setFormatter(logging.Formatter(_DETAILED))
            handler.removeFilter(_says_more_than_the_error)
            logging.getLogger(_OWN).setLevel(logging.DEBUG)


def _says_more_than_the_error(record: logging.LogRecord) -> bool:
    """Leave out what ends the command, and is the error with which it ends."""
    # Imported with the first record: `--version` logs none.
    from kinesis_publishers.events import FetcherStopped, ProcessingFailed, ShardStopped

    return not isinstance(_event_of(record), FetcherStopped | ShardStopped | ProcessingFailed)


def _words_of(record: logging.LogRecord) -> str:
    from kinesis_publishers.events import CheckpointsRefused, DataLossTolerated

    event = _event_of(record)
    if isinstance(event, DataLossTolerated | CheckpointsRefused):
        return event.message
    return record.message


def _event_of(record: logging.LogRecord) -> object:
    """Return the event that was logged; ``None`` if it is something else."""
    if record.msg == "%s" and isinstance(record.args, tuple) and len(record.args) == 1:
        return record.args[0]
    return None
