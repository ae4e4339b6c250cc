"""The MultiLangDaemon's protocol: a line of JSON for each message. Pure.

The names and fields are those of the messages in the KCL 3.5's amazon-kinesis-client-multilang.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, Final

from kinesis_publishers.model import RecordBatch

INITIALIZE: Final = "initialize"
PROCESS_RECORDS: Final = "processRecords"
LEASE_LOST: Final = "leaseLost"
SHARD_ENDED: Final = "shardEnded"
SHUTDOWN_REQUESTED: Final = "shutdownRequested"
CHECKPOINT: Final = "checkpoint"
NUMBERS: Final = ("sequenceNumber", "subSequenceNumber")


def message(action: str, **fields: Any) -> bytes:
    """Return the line of an action."""
    return json.dumps({"action": action, **fields}).encode() + b"\n"


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


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the fields of a message that a processor wrote; ``None`` if it is something else.

    A processor's libraries write to its standard output, too: the KCL passes over such lines.
    """
    try:
        # Not by orjson, which would round a sequence number that comes as a number.
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_message = isinstance(found, dict) and found.get("action") in ("status", CHECKPOINT)
    return found if is_message else None
