"""The replaceable parts of the framework, as interfaces."""

from kinesis_publishers.abc.checkpoint_store import CheckpointStore as CheckpointStore
from kinesis_publishers.abc.checkpoint_store import CheckpointStoreContext as CheckpointStoreContext
from kinesis_publishers.abc.checkpoint_store import ForeignTable as ForeignTable
from kinesis_publishers.abc.checkpoint_store import JoinedWrite as JoinedWrite
from kinesis_publishers.abc.checkpoint_store import OpenTransaction as OpenTransaction
from kinesis_publishers.abc.hooks import EventReporter as EventReporter
from kinesis_publishers.abc.hooks import Partitioner as Partitioner
from kinesis_publishers.abc.hooks import ShardAssigner as ShardAssigner
from kinesis_publishers.abc.hooks import SharedReading as SharedReading
from kinesis_publishers.abc.hooks import WatermarkAssigner as WatermarkAssigner
from kinesis_publishers.abc.planes import ControlContext as ControlContext
from kinesis_publishers.abc.planes import ControlPlane as ControlPlane
from kinesis_publishers.abc.planes import DataPlane as DataPlane
from kinesis_publishers.abc.planes import PutAnswer as PutAnswer
from kinesis_publishers.abc.planes import PutColumns as PutColumns
from kinesis_publishers.abc.planes import RecordWriter as RecordWriter
from kinesis_publishers.abc.planes import ShardSubscription as ShardSubscription
from kinesis_publishers.abc.publisher import PublisherContext as PublisherContext
from kinesis_publishers.abc.publisher import RecordBatchConsumer as RecordBatchConsumer
from kinesis_publishers.abc.publisher import RecordPublisher as RecordPublisher
from kinesis_publishers.abc.publisher import RecordPublisherFactory as RecordPublisherFactory
from kinesis_publishers.abc.publisher import StreamConsumerRegistrar as StreamConsumerRegistrar
