"""Shortens tracebacks to the user's code."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
from pathlib import Path
from types import TracebackType
from typing import Final

from kinesis_publishers.errors import KinesisPublishersError, RetriesExhaustedError, ServiceError

_LOGGER = logging.getLogger(__name__)

# The folders and files whose frames are left out: this package, and the code that calls it back.
_INNER: Final = (
    f"{Path(__file__).parent}/",
    f"{Path(asyncio.__file__).parent}/",
    f"{Path(concurrent.futures.__file__).parent}/",
    contextlib.__file__,
)


class ShortTraceback:
    """Shortens the traceback of an exception that leaves the body of ``with ShortTraceback():``.

    Frames of this package are left out of its own errors, whose messages say what to do, and of
    exceptions of the user's code, whose frames remain. Any other exception may be a fault of this
    package and stays whole. The logger of this module gets whole tracebacks at DEBUG.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, Exception | KeyboardInterrupt):
            return
        if error.__traceback__ is not _from_the_user(error):
            _LOGGER.debug("Raised to the program:", exc_info=error)
            _shorten(error)


def _shorten(error: BaseException | None) -> None:
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = _from_the_user(error)
        if isinstance(error, ServiceError | RetriesExhaustedError):
            # Its message contains that of the cause, which remains as __context__.
            error.__cause__ = None
        error = error.__cause__


def _from_the_user(error: BaseException) -> TracebackType | None:
    """Return the traceback from the first frame of the user's code, ``None`` if it has none."""
    found = entry = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename.startswith(_INNER):
        found = found.tb_next
    if found is not None or isinstance(error, KinesisPublishersError | KeyboardInterrupt):
        return found
    return entry
