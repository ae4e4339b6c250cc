"""Shows a user of Spark the errors of this package: the message first, and once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from kinesis_publishers.errors import KinesisPublishersError

#: The environment variable that names the level from which the driver writes logs.
LEVEL_VARIABLE: Final = "KINESIS_PUBLISHERS_LOG"
#: ``LOG_FORMAT_VARIABLE`` of the events, whose many classes most tasks do not need.
FORMAT_VARIABLE: Final = f"{LEVEL_VARIABLE}_FORMAT"
_P = ParamSpec("_P")
_T = TypeVar("_T")


def at_boundary(call: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let a method that Spark calls raise errors of this package without their history.

    Otherwise Spark shows the whole chain of tracebacks before the message, several times.
    """

    @wraps(call)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return call(*args, **kwargs)
        except KinesisPublishersError as error:
            if os.environ.get(LEVEL_VARIABLE, "").strip().upper() == "DEBUG":
                raise
            _hide_traceback()
            raise error.with_traceback(None) from None

    return wrapper


def _hide_traceback() -> None:
    """Let Spark show the message alone.

    It lasts as long as the process, which ends with the error.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    # Not in the user's own process.
    if main is not None and main.name.startswith("pyspark."):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
