"""A stream on a local server, cut into ranges, and what reads them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from attrs import define, field

from kinesis_publishers import (
    Delivery,
    DeliverySink,
    SequenceNumber,
    ShardKey,
    ShardRange,
    StartingPosition,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_publishers.testing.local_kinesis import LocalKinesis, StoredRecord

__all__ = ["STREAM", "CollectingSink", "StoredStream", "fan_out_properties", "polling_properties"]

STREAM = "orders"


class CollectingSink(DeliverySink):
    """Keeps what comes, by shard, for as long as each delivery is held."""

    def __init__(self, held_seconds: float = 0.0) -> None:
        self._held_seconds = held_seconds
        self._held_bytes = 0
        self.most_held_bytes = 0
        self.rows: dict[str, list[tuple[str, bytes]]] = defaultdict(list)

    async def deliver(self, delivery: Delivery) -> None:
        batch = delivery.batch
        self._held_bytes += batch.payload_bytes
        self.most_held_bytes = max(self.most_held_bytes, self._held_bytes)
        rows = zip(batch.sequence_numbers, batch.payloads, strict=True)
        self.rows[delivery.shard.shard_id].extend(rows)
        asyncio.get_running_loop().call_later(self._held_seconds, self._release, delivery)

    def _release(self, delivery: Delivery) -> None:
        self._held_bytes -= delivery.batch.payload_bytes
        delivery.release()


@define(eq=False)
class StoredStream:
    """What each shard of a stream holds."""

    arn: str
    records: Mapping[str, list[StoredRecord]] = field(factory=dict)

    @classmethod
    def of(cls, server: LocalKinesis) -> StoredStream:
        behaviour = server.behaviour
        arn = f"arn:aws:kinesis:{behaviour.region}:{behaviour.account_id}:stream/{STREAM}"
        return cls(arn, server.records(STREAM))

    def range_of(self, shard_id: str, first: int, last: int | None) -> ShardRange:
        """Return the range of the records from ``first`` to ``last`` (both included)."""
        numbers = [SequenceNumber(one.sequence_number) for one in self.records[shard_id]]
        start = (
            StartingPosition.after(numbers[first - 1]) if first else StartingPosition.trim_horizon()
        )
        return ShardRange(
            shard=ShardKey(self.arn, shard_id),
            start=start,
            end=None if last is None else numbers[last],
        )

    def whole(self) -> list[ShardRange]:
        """Return one range per shard that holds anything: all of it."""
        return [
            self.range_of(shard_id, 0, len(held) - 1)
            for shard_id, held in self.records.items()
            if held
        ]

    def rows(self) -> dict[str, list[tuple[str, bytes]]]:
        """Return what reading everything must give."""
        return {
            shard_id: [(one.sequence_number, one.data) for one in held]
            for shard_id, held in self.records.items()
            if held
        }


def polling_properties(server: LocalKinesis, **more: str) -> dict[str, str]:
    """Return properties with short periods; ``more`` goes by the last parts of its keys."""
    return {
        **server.properties(STREAM),
        "kinesis.shard.getrecords.intervalmillis": "10",
        **{f"kinesis.{key.replace('_', '.')}": value for key, value in more.items()},
    }


def fan_out_properties(server: LocalKinesis, consumer_arn: str, **more: str) -> dict[str, str]:
    """Return what the driver gives its tasks under fan-out: the consumer, and no registration."""
    return {
        **polling_properties(server, **more),
        "kinesis.stream.recordpublisher": "EFO",
        "kinesis.stream.efo.registration": "NONE",
        f"kinesis.stream.efo.consumerarn.{STREAM}": consumer_arn,
    }
