"""Every option, declared once, one module per section of the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kinesis_publishers.config.options import (
    aws,
    checkpoints,
    custom,
    discovery,
    ending,
    fanout,
    metrics,
    pending,
    polling,
    publisher,
    registration,
    retries,
    spark,
    watermarks,
)

if TYPE_CHECKING:
    from kinesis_publishers.config.option import Option, OptionFamily

__all__ = ["ALL_OPTIONS", "ALL_FAMILIES", "all_declarations"]

ALL_OPTIONS: Final[tuple[Option[Any], ...]] = (
    *publisher.OPTIONS,
    *aws.OPTIONS,
    *polling.OPTIONS,
    *discovery.OPTIONS,
    *registration.OPTIONS,
    *fanout.OPTIONS,
    *retries.OPTIONS,
    *pending.OPTIONS,
    *watermarks.OPTIONS,
    *metrics.OPTIONS,
    *spark.OPTIONS,
    *ending.OPTIONS,
    *checkpoints.OPTIONS,
)
ALL_FAMILIES: Final[tuple[OptionFamily[Any], ...]] = (
    *registration.FAMILIES,
    *fanout.FAMILIES,
    *custom.FAMILIES,
)


def all_declarations() -> tuple[Option[Any], ...]:
    """Return every option, and one member of each family with its placeholder in the key."""
    return (*ALL_OPTIONS, *(family.member for family in ALL_FAMILIES))
