"""The operations of the service by name: a request in, the members of the answer out."""

from __future__ import annotations

from kinesis_publishers.testing.local_kinesis.operations import (
    consumers,
    reading,
    settings,
    shards,
    streams,
    writing,
)
from kinesis_publishers.testing.local_kinesis.state import Operation

OPERATIONS: dict[str, Operation] = {
    **streams.OPERATIONS,
    **settings.OPERATIONS,
    **shards.OPERATIONS,
    **writing.OPERATIONS,
    **reading.OPERATIONS,
    **consumers.OPERATIONS,
}
