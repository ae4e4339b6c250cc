"""A local Kinesis Data Streams service with the semantics that consumers trip over.

Shards end, split and merge; records are routed to open shards only and leave with the retention;
read limits hold; consumers subscribe to shards by enhanced fan-out; faults can be scripted. Nothing
is persisted.
"""

from kinesis_publishers.testing.local_kinesis.faults import Fault, FaultKind
from kinesis_publishers.testing.local_kinesis.limits import (
    Behaviour,
    Limits,
    Takeover,
    TrimmedIterator,
)
from kinesis_publishers.testing.local_kinesis.server import LocalKinesis, run_server
from kinesis_publishers.testing.local_kinesis.service import Call
from kinesis_publishers.testing.local_kinesis.shard import StoredRecord

__all__ = [
    "LocalKinesis",
    "Limits",
    "Behaviour",
    "TrimmedIterator",
    "Takeover",
    "Fault",
    "FaultKind",
    "Call",
    "StoredRecord",
    "run_server",
]
