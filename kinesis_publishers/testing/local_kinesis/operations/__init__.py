"""The operations of the service by name: a request in, the members of the answer out.

A change that adds operations adds a module with an ``OPERATIONS`` table and one
line here.
"""

from __future__ import annotations

from kinesis_publishers.testing.local_kinesis.operations import (
    consumers,
    listing,
    reading,
    reshards,
    streams,
    subscribing,
    tags,
    writing,
)
from kinesis_publishers.testing.local_kinesis.operations.types import Members, Operation

__all__ = ["OPERATIONS", "Members", "Operation"]

OPERATIONS: dict[str, Operation] = {
    **streams.OPERATIONS,
    **listing.OPERATIONS,
    **reshards.OPERATIONS,
    **tags.OPERATIONS,
    **writing.OPERATIONS,
    **reading.OPERATIONS,
    **consumers.OPERATIONS,
    **subscribing.OPERATIONS,
}
