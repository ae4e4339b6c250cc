"""Named fakes: services and publishers that behave in one known way, and remember what was asked.

They stand in for a :class:`~kinesis_publishers.abc.DataPlane`, a
:class:`~kinesis_publishers.abc.ControlPlane`, a publisher or what records are handed to, without a
network and, with a :class:`~kinesis_publishers.testing.manual_clock.ManualClock`, without waiting.
"""

from kinesis_publishers.testing.fakes.control_plane import (
    DescribeCall,
    FakeControlPlane,
    FakeStream,
    ListCall,
)
from kinesis_publishers.testing.fakes.data_plane import FakeDataPlane, IteratorCall, RecordsCall
from kinesis_publishers.testing.fakes.failing_shards import (
    ExpiringIterators,
    FailingCalls,
    ThrottledCalls,
)
from kinesis_publishers.testing.fakes.polling import (
    FeedItem,
    empty_shard,
    expired_iterator_after,
    live_feed,
    no_shards,
    records_in_calls,
    throttled,
)
from kinesis_publishers.testing.fakes.publishers import (
    ScriptedPublisher,
    ScriptedPublisherFactory,
    ScriptedRun,
)
from kinesis_publishers.testing.fakes.reading import ShardReader, assert_shard_is_read, finish
from kinesis_publishers.testing.fakes.recording import RecordingConsumer, RecordingSink
from kinesis_publishers.testing.fakes.samples import (
    STREAM_ARN,
    batch_of,
    sample_records,
    sample_shard,
    shard_name,
)
from kinesis_publishers.testing.fakes.shard_behaviour import Answer, ShardBehaviour, StoredShard

__all__ = [
    "no_shards",
    "empty_shard",
    "records_in_calls",
    "expired_iterator_after",
    "throttled",
    "live_feed",
    "FeedItem",
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
    "shard_name",
    "batch_of",
]
