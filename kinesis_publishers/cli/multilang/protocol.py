"""The MultiLangDaemon's protocol: a line of JSON for each message. Pure.

The names and fields are those of the messages in the KCL 3.5's amazon-kinesis-client-multilang.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, Final, TypeAlias

from attrs import frozen

from kinesis_publishers.checkpoints.kcl_rows import checkpoint_of
from kinesis_publishers.model import RecordBatch, ShardProgress

INITIALIZE: Final = "initialize"
PROCESS_RECORDS: Final = "processRecords"
LEASE_LOST: Final = "leaseLost"
SHARD_ENDED: Final = "shardEnded"
SHUTDOWN_REQUESTED: Final = "shutdownRequested"
_CHECKPOINT: Final = "checkpoint"


@frozen
class Status:
    """What a processor says when it has done what ``response_for`` names."""

    response_for: Any


@frozen
class CheckpointRequest:
    """What a processor asks for; both numbers are as it wrote them."""

    sequence_number: Any
    sub_sequence_number: Any

    def answer(self, error: str | None) -> bytes:
        """Return the line that says the checkpoint is written, or the name of the error."""
        fields = {
            "sequenceNumber": self.sequence_number,
            "subSequenceNumber": self.sub_sequence_number,
            "error": error,
        }
        return message(_CHECKPOINT, **fields)


Answer: TypeAlias = "Status | CheckpointRequest"


def message(action: str, **fields: Any) -> bytes:
    """Return the line of an action."""
    return json.dumps({"action": action, **fields}).encode() + b"\n"


def initialize(shard_id: str, progress: ShardProgress) -> bytes:
    """Return the line that begins a shard, with its checkpoint as the KCL writes it."""
    number, sub = checkpoint_of(progress, None)
    return message(INITIALIZE, shardId=shard_id, sequenceNumber=number, subSequenceNumber=sub)


def process_records(batch: RecordBatch | None, millis_behind_latest: int | None) -> bytes:
    """Return the line with the records of a batch; ``None`` is no record."""
    records = [
        {
            "action": "record",
            "data": b64encode(one.data).decode(),
            "partitionKey": one.partition_key,
            "sequenceNumber": one.sequence_number,
            # The KCL has no other number for a record outside of an aggregate.
            "subSequenceNumber": one.sub_sequence_number or 0,
            "approximateArrivalTimestamp": round(one.arrival_epoch_seconds * 1000),
        }
        for one in batch or ()
    ]
    return message(PROCESS_RECORDS, records=records, millisBehindLatest=millis_behind_latest)


def parse(line: bytes) -> Answer | None:
    """Return the message in a line that a processor wrote; ``None`` if it is something else.

    A processor's libraries write to its standard output, too: the KCL passes over such lines.
    """
    try:
        # Not by orjson: a sequence number may come as a number, which that would round.
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    if found.get("action") == "status":
        return Status(found.get("responseFor"))
    if found.get("action") == _CHECKPOINT:
        return CheckpointRequest(found.get("sequenceNumber"), found.get("subSequenceNumber"))
    return None
