"""What both planners do with a micro-batch that they did not plan themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.config import StreamsConfig
from kinesis_publishers.errors import CheckpointError

if TYPE_CHECKING:
    from kinesis_publishers import Properties
    from kinesis_publishers_spark.offsets import Offset

__all__ = ["check_streams"]


def check_streams(properties: Properties, offset: Offset) -> None:
    """Refuse a checkpoint that has nothing to do with the configured streams.

    Raises:
        CheckpointError: none of its streams is configured.
    """
    configured = {one.name for one in StreamsConfig.from_properties(properties).streams}
    stored = {identity.name for identity in offset.streams.values()}
    if stored and not stored & configured:
        raise CheckpointError(
            f"The checkpoint belongs to other streams ({', '.join(sorted(stored))}) than those "
            f"that are configured ({', '.join(sorted(configured))}): use a checkpoint location "
            "of its own for each set of streams."
        )
