"""How much a micro-batch may have: the configured limits, and Spark's objects for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kinesis_publishers.errors import ConfigError
from kinesis_publishers_spark.planning.chunks import BatchLimit

if TYPE_CHECKING:
    from kinesis_publishers.config import SparkConfig

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark before 4.2 has neither admission control nor AvailableNow for Python

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for what this version of Spark does not have."""


__all__ = ["SupportsTriggerAvailableNow", "batch_limit", "configured_limit", "default_read_limit"]

# Not ReadAllAvailable when nothing is configured: that is what Spark asks for under Trigger.Once,
# whatever the default is, and so the only sign by which Once can be told from the other triggers.
# It is what a long of the JVM can hold.
_UNLIMITED_ROWS: Final = 2**63 - 1


def configured_limit(config: SparkConfig) -> BatchLimit:
    """Return what the options allow."""
    return BatchLimit(
        records=config.max_records_per_trigger, payload_bytes=config.max_bytes_per_trigger
    )


def default_read_limit(config: SparkConfig) -> ReadLimit:
    """Return the configured limit for Spark, which can carry only one; never ReadAllAvailable."""
    if config.max_records_per_trigger is None and config.max_bytes_per_trigger is not None:
        return ReadMaxBytes(config.max_bytes_per_trigger)
    return ReadMaxRows(config.max_records_per_trigger or _UNLIMITED_ROWS)


def batch_limit(config: SparkConfig, asked: ReadLimit | None) -> BatchLimit | None:
    """Return the most that a micro-batch may have; ``None`` for everything there is, in one.

    Args:
        config: its limits hold beside what is asked for, except under Trigger.Once.
        asked: what Spark passes, ``None`` before 4.2.

    Raises:
        ConfigError: Spark asks for a limit of a kind that has no meaning here.
    """
    configured = configured_limit(config)
    if asked is None:
        return configured
    if isinstance(asked, ReadAllAvailable):
        return None
    if isinstance(asked, ReadMaxRows):
        if asked.max_rows == _UNLIMITED_ROWS:
            return configured
        return configured.tightened(BatchLimit(records=asked.max_rows))
    if isinstance(asked, ReadMaxBytes):
        return configured.tightened(BatchLimit(payload_bytes=asked.max_bytes))
    raise ConfigError(
        f"Spark asks for a micro-batch with the limit {asked!r}, but this source knows only "
        "ReadAllAvailable, ReadMaxRows and ReadMaxBytes: limit it by maxRecordsPerTrigger or "
        "maxBytesPerTrigger."
    )
