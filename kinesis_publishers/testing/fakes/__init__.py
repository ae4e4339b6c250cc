"""Named fakes: services and publishers that behave in one known way, and remember what was asked.

They stand in for a :class:`~kinesis_publishers.abc.DataPlane`, a
:class:`~kinesis_publishers.abc.ControlPlane`, a publisher or what records are handed to, without a
network and, with a :class:`~kinesis_publishers.testing.manual_clock.ManualClock`, without waiting.
"""

from kinesis_publishers.testing.fakes.consumers import (
    ConsumerCall,
    DeregisterConsumerCall,
    DescribeConsumerCall,
    FakeConsumers,
    ListConsumersCall,
    RegisterConsumerCall,
)
from kinesis_publishers.testing.fakes.context import publisher_context
from kinesis_publishers.testing.fakes.control_plane import (
    DescribeCall,
    FakeControlPlane,
    FakeStream,
    ListCall,
)
from kinesis_publishers.testing.fakes.data_plane import (
    FakeDataPlane,
    IteratorCall,
    RecordsCall,
    SubscribeCall,
)
from kinesis_publishers.testing.fakes.failing_shards import (
    ExpiringIterators,
    FailingCalls,
    ThrottledCalls,
)
from kinesis_publishers.testing.fakes.fan_out import (
    alternating_success_and_error,
    bounded_shard,
    empty_event_then_record,
    error_during_subscription,
    events,
    never_answers,
    pushes_without_demand,
    rnf_when_subscribing,
)
from kinesis_publishers.testing.fakes.polling import (
    FeedItem,
    aggregated,
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
from kinesis_publishers.testing.fakes.registration import (
    CONSUMER_NAME,
    active_consumer,
    consumer_not_found,
    creating_until,
    deleting_until,
    limit_exceeded,
    stream_not_found,
)
from kinesis_publishers.testing.fakes.samples import (
    STREAM_ARN,
    SUCCESSOR,
    batch_of,
    sample_aggregates,
    sample_records,
    sample_shard,
    shard_name,
    taken_apart,
)
from kinesis_publishers.testing.fakes.shard_behaviour import Answer, ShardBehaviour, StoredShard
from kinesis_publishers.testing.fakes.subscriptions import FakeSubscription, event_of

__all__ = [
    "no_shards",
    "empty_shard",
    "records_in_calls",
    "expired_iterator_after",
    "throttled",
    "aggregated",
    "live_feed",
    "FeedItem",
    "bounded_shard",
    "events",
    "rnf_when_subscribing",
    "error_during_subscription",
    "alternating_success_and_error",
    "never_answers",
    "pushes_without_demand",
    "empty_event_then_record",
    "event_of",
    "SUCCESSOR",
    "stream_not_found",
    "consumer_not_found",
    "active_consumer",
    "creating_until",
    "deleting_until",
    "limit_exceeded",
    "CONSUMER_NAME",
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
    "FakeConsumers",
    "ConsumerCall",
    "DescribeConsumerCall",
    "ListConsumersCall",
    "RegisterConsumerCall",
    "DeregisterConsumerCall",
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
    "taken_apart",
    "shard_name",
    "batch_of",
]
