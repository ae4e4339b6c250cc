"""Diagnostic events: facts about reading, as values, for logs, metrics and tests.

A component reports what happened to an :class:`EventSink`, which decides what to do with it.
"""

from kinesis_publishers.events.producing import ProducerStarted as ProducerStarted
from kinesis_publishers.events.producing import ProducerStopped as ProducerStopped
from kinesis_publishers.events.producing import PutRecordsAnswered as PutRecordsAnswered
from kinesis_publishers.events.producing import RecordsFailed as RecordsFailed
from kinesis_publishers.events.producing import RecordsPut as RecordsPut
from kinesis_publishers.events.producing import RecordsRefused as RecordsRefused
from kinesis_publishers.events.producing import ShardMispredicted as ShardMispredicted
from kinesis_publishers.events.reading import AggregatesExpanded as AggregatesExpanded
from kinesis_publishers.events.reading import CallbackDelayed as CallbackDelayed
from kinesis_publishers.events.reading import CheckpointsRefused as CheckpointsRefused
from kinesis_publishers.events.reading import CheckpointsSaved as CheckpointsSaved
from kinesis_publishers.events.reading import DataLossTolerated as DataLossTolerated
from kinesis_publishers.events.reading import EventReceived as EventReceived
from kinesis_publishers.events.reading import FetcherStarted as FetcherStarted
from kinesis_publishers.events.reading import FetcherStopped as FetcherStopped
from kinesis_publishers.events.reading import IteratorReplaced as IteratorReplaced
from kinesis_publishers.events.reading import LagMeasured as LagMeasured
from kinesis_publishers.events.reading import LeaseLost as LeaseLost
from kinesis_publishers.events.reading import LeaseReleased as LeaseReleased
from kinesis_publishers.events.reading import LeasesCounted as LeasesCounted
from kinesis_publishers.events.reading import LeaseTaken as LeaseTaken
from kinesis_publishers.events.reading import ProcessingFailed as ProcessingFailed
from kinesis_publishers.events.reading import RangeRead as RangeRead
from kinesis_publishers.events.reading import RecordsFetched as RecordsFetched
from kinesis_publishers.events.reading import RecordsProcessed as RecordsProcessed
from kinesis_publishers.events.reading import RecordsSkipped as RecordsSkipped
from kinesis_publishers.events.reading import ShardEnded as ShardEnded
from kinesis_publishers.events.reading import ShardsDiscovered as ShardsDiscovered
from kinesis_publishers.events.reading import ShardStarted as ShardStarted
from kinesis_publishers.events.reading import ShardStopped as ShardStopped
from kinesis_publishers.events.reading import StreamPrepared as StreamPrepared
from kinesis_publishers.events.reading import SubscriptionEnded as SubscriptionEnded
from kinesis_publishers.events.reading import SubscriptionStarted as SubscriptionStarted
from kinesis_publishers.events.service import BackpressureBegan as BackpressureBegan
from kinesis_publishers.events.service import BackpressureEnded as BackpressureEnded
from kinesis_publishers.events.service import CallRetried as CallRetried
from kinesis_publishers.events.service import ConsumerAwaited as ConsumerAwaited
from kinesis_publishers.events.service import ConsumerDeregistered as ConsumerDeregistered
from kinesis_publishers.events.service import ConsumerRegistered as ConsumerRegistered
from kinesis_publishers.events.service import PoolUsed as PoolUsed
from kinesis_publishers.events.service import Throttled as Throttled
from kinesis_publishers.events.sinks import EVENT_TYPES as EVENT_TYPES
from kinesis_publishers.events.sinks import Event as Event
from kinesis_publishers.events.sinks import EventSink as EventSink
from kinesis_publishers.events.sinks import fan_out_events as fan_out_events
from kinesis_publishers.events.sinks import guard_events as guard_events
from kinesis_publishers.events.sinks import ignore_event as ignore_event
from kinesis_publishers.events.sinks import level_of as level_of
from kinesis_publishers.events.sinks import log_event as log_event
