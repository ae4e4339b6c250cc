"""A shard with aggregated records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_kinesis_agg.aggregator import RecordAggregator

from tests.integration.leases.kcl.kcl_application import STREAM

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis


def put_two_aggregates(server: LocalKinesis) -> list[tuple[str, int]]:
    """Write a record, an aggregate of five, a record, one of three; return their positions."""
    server.create_stream(STREAM)
    client = server.client()
    positions = []
    for count in (1, 5, 1, 3):
        key, data = "key", b"alone"
        if count > 1:
            aggregator = RecordAggregator()
            for number in range(count):
                aggregator.add_user_record("key", f"part {number}".encode())
            key, _, data = aggregator.clear_and_get().get_contents()
        answer = client.put_record(StreamName=STREAM, PartitionKey=key, Data=data)
        positions += [(answer["SequenceNumber"], sub) for sub in range(count)]
    client.close()
    return positions
