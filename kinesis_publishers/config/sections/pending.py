"""How much may be read and not yet handed on."""

from __future__ import annotations

from kinesis_publishers.config.option import Namespace, Option, Section
from kinesis_publishers.config.parsers import Size, WholeNumber

__all__ = ["PendingConfig"]


class PendingConfig(Section, section="Backpressure"):
    """How much may be read and not yet handed on, over all shards."""

    max_records: Option[int] = Option(
        key="pending.maxrecords",
        parser=WholeNumber(minimum=1),
        default=200_000,
        namespace=Namespace.OURS,
        doc="How many records of all shards may wait in memory.",
    )
    max_bytes: Option[int] = Option(
        key="pending.maxbytes",
        parser=Size(),
        default=64 * 1024**2,
        namespace=Namespace.OURS,
        doc="How many bytes of all shards may wait in memory.",
    )
