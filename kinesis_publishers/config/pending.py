"""The typed view of the limits of what waits in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.config.options import pending

if TYPE_CHECKING:
    from kinesis_publishers.config.properties import Properties

__all__ = ["PendingConfig"]


@frozen(kw_only=True)
class PendingConfig:
    """How much may be read and not yet handed on, over all shards.

    Attributes:
        max_records: the limit in records.
        max_bytes: the limit in bytes of payload.
    """

    max_records: int
    max_bytes: int

    @classmethod
    def from_properties(cls, properties: Properties) -> PendingConfig:
        """Read the limits."""
        return cls(
            max_records=properties.get(pending.MAX_PENDING_RECORDS),
            max_bytes=properties.get(pending.MAX_PENDING_BYTES),
        )
