"""Named fakes: planes and publishers that follow a script, and recorders of what they are asked.

A script knows no rules of the service. What has rules (stream consumers and their phases, limits,
reshards, faults) is :class:`~kinesis_publishers.testing.local_kinesis.LocalKinesis`, whose
``data_plane()`` and ``control_plane()`` need no network either.
"""

from kinesis_publishers.testing.fakes.fan_out import (
    bounded_shard,
    events,
    pushes_without_demand,
)
from kinesis_publishers.testing.fakes.planes import (
    DescribeCall,
    FakeControlPlane,
    FakeDataPlane,
    FakeStream,
    FakeSubscription,
    IteratorCall,
    ListCall,
    RecordsCall,
    SubscribeCall,
    publisher_context,
)
from kinesis_publishers.testing.fakes.polling import (
    empty_shard,
    expired_iterator_after,
    records_in_calls,
    throttled,
)
from kinesis_publishers.testing.fakes.reading import ShardReader, assert_shard_is_read, finish
from kinesis_publishers.testing.fakes.recording import (
    RecordingConsumer,
    RecordingSink,
    ScriptedPublisher,
    ScriptedPublisherFactory,
    ScriptedRun,
)
from kinesis_publishers.testing.fakes.samples import (
    STREAM_ARN,
    SUCCESSOR,
    batch_of,
    deaggregated,
    sample_aggregates,
    sample_records,
    sample_shard,
    shard_name,
)
from kinesis_publishers.testing.fakes.shards import (
    Answer,
    ExpiringIterators,
    FailingCalls,
    ShardBehaviour,
    StoredShard,
    ThrottledCalls,
    event_of,
)

__all__ = [
    "empty_shard",
    "records_in_calls",
    "expired_iterator_after",
    "throttled",
    "bounded_shard",
    "events",
    "pushes_without_demand",
    "event_of",
    "SUCCESSOR",
    "publisher_context",
    "assert_shard_is_read",
    "ShardReader",
    "finish",
    "RecordingConsumer",
    "RecordingSink",
    "ScriptedPublisher",
    "ScriptedPublisherFactory",
    "ScriptedRun",
    "FakeDataPlane",
    "IteratorCall",
    "RecordsCall",
    "SubscribeCall",
    "FakeSubscription",
    "FakeControlPlane",
    "FakeStream",
    "DescribeCall",
    "ListCall",
    "ShardBehaviour",
    "StoredShard",
    "Answer",
    "FailingCalls",
    "ThrottledCalls",
    "ExpiringIterators",
    "STREAM_ARN",
    "sample_shard",
    "sample_records",
    "sample_aggregates",
    "deaggregated",
    "shard_name",
    "batch_of",
]
