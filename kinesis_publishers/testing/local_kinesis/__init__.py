"""A local Kinesis Data Streams service with the semantics that catch consumers out.

Shards end, split and merge; records are routed to open shards only and leave with the retention;
read limits hold; consumers subscribe to shards by enhanced fan-out; faults can be scripted. Nothing
is persisted.
"""

from kinesis_publishers.testing.local_kinesis.faults import Fault as Fault
from kinesis_publishers.testing.local_kinesis.faults import FaultKind as FaultKind
from kinesis_publishers.testing.local_kinesis.limits import Behaviour as Behaviour
from kinesis_publishers.testing.local_kinesis.limits import Limits as Limits
from kinesis_publishers.testing.local_kinesis.limits import Takeover as Takeover
from kinesis_publishers.testing.local_kinesis.limits import TrimmedIterator as TrimmedIterator
from kinesis_publishers.testing.local_kinesis.server import LocalKinesis as LocalKinesis
from kinesis_publishers.testing.local_kinesis.server import run_server as run_server
from kinesis_publishers.testing.local_kinesis.service import Call as Call
from kinesis_publishers.testing.local_kinesis.shard import StoredRecord as StoredRecord
