"""Contract suites: the duties of replaceable parts, as pytest classes with a fixture to override.

A test module subclasses one, with a name that begins with ``Test``, and returns its own part from
the fixture ``subject`` (``new_store`` for a store of checkpoints); pytest runs the tests of the
class. They are coroutines: mark the subclass with ``@pytest.mark.asyncio`` unless pytest-asyncio
runs in its mode "auto".
"""

from kinesis_publishers.testing.contracts.checkpoint_store import (
    CheckpointStoreContract as CheckpointStoreContract,
)
from kinesis_publishers.testing.contracts.checkpoint_store import store_context as store_context
from kinesis_publishers.testing.contracts.partitioner import (
    PartitionerContract as PartitionerContract,
)
from kinesis_publishers.testing.contracts.partitioner import (
    PartitionerSubject as PartitionerSubject,
)
from kinesis_publishers.testing.contracts.record_publisher import (
    RecordPublisherContract as RecordPublisherContract,
)
from kinesis_publishers.testing.contracts.record_publisher_factory import (
    RecordPublisherFactoryContract as RecordPublisherFactoryContract,
)
from kinesis_publishers.testing.contracts.shard_assigner import (
    AssignerSubject as AssignerSubject,
)
from kinesis_publishers.testing.contracts.shard_assigner import (
    ShardAssignerContract as ShardAssignerContract,
)
from kinesis_publishers.testing.contracts.stream_consumer_registrar import (
    RegistrarSubject as RegistrarSubject,
)
from kinesis_publishers.testing.contracts.stream_consumer_registrar import (
    StreamConsumerRegistrarContract as StreamConsumerRegistrarContract,
)
from kinesis_publishers.testing.contracts.subjects import FactorySubject as FactorySubject
from kinesis_publishers.testing.contracts.subjects import HeldShard as HeldShard
from kinesis_publishers.testing.contracts.subjects import PublisherSubject as PublisherSubject
