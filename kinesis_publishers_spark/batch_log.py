"""One log line per planned and per committed micro-batch, for people and for programs.

Spark runs a source in a Python process of its own, in which nobody configures logging: without a
handler there only warnings are written. The environment variable names the level from which on
everything of this package goes to the standard error of that process, which is the driver's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kinesis_publishers.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_publishers_spark.offsets import Offset
    from kinesis_publishers_spark.planning.planner import Lag
    from kinesis_publishers_spark.triggers import TriggeredPlanner

__all__ = ["LEVEL_VARIABLE", "log_commit", "log_plan", "max_millis_behind", "write_logs"]

LEVEL_VARIABLE: Final = "KINESIS_PUBLISHERS_LOG"

_LOGGER = logging.getLogger("kinesis_publishers_spark.batches")
_PACKAGES = ("kinesis_publishers", "kinesis_publishers_spark")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def write_logs(environ: Mapping[str, str]) -> None:
    """Write the packages' logs to standard error from the level on that the environment names.

    Called in the process that Spark keeps for the source. Handlers that exist already are left
    alone.

    Raises:
        InvalidOptionError: there is no such level.
    """
    level = environ.get(LEVEL_VARIABLE, "").strip().upper()
    if not level:
        return
    if level not in logging.getLevelNamesMapping():
        raise InvalidOptionError(
            f"The environment variable {LEVEL_VARIABLE} is {level!r}: use DEBUG, INFO, WARNING or "
            "ERROR."
        )
    for name in _PACKAGES:
        logger = logging.getLogger(name)
        logger.setLevel(level)
        if not logger.hasHandlers():
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter(_FORMAT))
            logger.addHandler(handler)


def log_plan(start: Offset, end: Offset, planner: TriggeredPlanner, *, seconds: float) -> None:
    """Say what the micro-batch between two offsets has; a no-op below level INFO."""
    if _LOGGER.isEnabledFor(logging.INFO):
        size, lag = planner.planned_size(), planner.lag()
        _log(
            "planned",
            streams=_stream_names(end),
            planner=planner.name,
            shards=len(end.ranges_since(start)),
            records=None if size is None else size.records,
            payload_bytes=None if size is None else size.payload_bytes,
            max_millis_behind_latest=None if lag is None else max_millis_behind(lag),
            buffered_records=None if lag is None else lag.buffered_records,
            plan_seconds=round(seconds, 3),
        )


def log_commit(end: Offset, *, planner: str) -> None:
    """Say that Spark is done with the micro-batch that ends at ``end``."""
    if _LOGGER.isEnabledFor(logging.INFO):
        _log("committed", streams=_stream_names(end), planner=planner)


def max_millis_behind(lag: Lag) -> int | None:
    """Return the lag of the shard that is furthest behind, ``None`` until one is known."""
    return max((ms for ms in lag.millis_behind_latest.values() if ms is not None), default=None)


def _stream_names(offset: Offset) -> str:
    return ",".join(sorted(identity.name for identity in offset.streams.values()))


def _log(event: str, **fields: str | float | None) -> None:
    text = " ".join(
        f"{name}={'unknown' if value is None else value}" for name, value in fields.items()
    )
    extra = {f"kinesis_{name}": value for name, value in {"event": event, **fields}.items()}
    _LOGGER.info("micro-batch %s %s", event, text, extra=extra)
