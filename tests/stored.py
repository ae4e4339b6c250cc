"""What a local Kinesis has stored, as readers that deaggregate see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesis_publishers.aggregation import decode_aggregate
from kinesis_publishers.model.records import AGGREGATE_MAGIC

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis


class StoredUserRecord(NamedTuple):
    """A record as a reader sees it."""

    shard_id: str
    sequence_number: str
    partition_key: str
    data: bytes
    marker: str | None = None


def user_records(server: LocalKinesis, stream: str) -> list[StoredUserRecord]:
    """Return what is in a stream, those inside aggregates included."""
    found: list[StoredUserRecord] = []
    for shard_id, records in server.records(stream).items():
        for one in records:
            place = (shard_id, str(one.sequence_number))
            inside = decode_aggregate(one.data) if one.data.startswith(AGGREGATE_MAGIC) else None
            if inside is None:
                found.append(StoredUserRecord(*place, one.partition_key, one.data))
            else:
                markers = inside.markers or [None] * len(inside)
                columns = zip(inside.partition_keys, inside.payloads, markers, strict=True)
                found += [StoredUserRecord(*place, *values) for values in columns]
    return found
