"""Read and write Amazon Kinesis Data Streams, as one properties dict says.

Each name is imported from its module at its first use: importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kinesis_publishers.abc import CheckpointStore as CheckpointStore
    from kinesis_publishers.abc import CheckpointStoreContext as CheckpointStoreContext
    from kinesis_publishers.abc import ControlPlane as ControlPlane
    from kinesis_publishers.abc import DataPlane as DataPlane
    from kinesis_publishers.abc import EventReporter as EventReporter
    from kinesis_publishers.abc import Partitioner as Partitioner
    from kinesis_publishers.abc import PublisherContext as PublisherContext
    from kinesis_publishers.abc import RecordBatchConsumer as RecordBatchConsumer
    from kinesis_publishers.abc import RecordPublisher as RecordPublisher
    from kinesis_publishers.abc import RecordPublisherFactory as RecordPublisherFactory
    from kinesis_publishers.abc import ShardAssigner as ShardAssigner
    from kinesis_publishers.abc import WatermarkAssigner as WatermarkAssigner
    from kinesis_publishers.clock import Clock as Clock
    from kinesis_publishers.clock import SystemClock as SystemClock
    from kinesis_publishers.config import Options as Options
    from kinesis_publishers.config import Properties as Properties
    from kinesis_publishers.engine.delivery import Delivery as Delivery
    from kinesis_publishers.engine.delivery import DeliverySink as DeliverySink
    from kinesis_publishers.engine.delivery import ShardStatus as ShardStatus
    from kinesis_publishers.engine.pool import Reservation as Reservation
    from kinesis_publishers.events import Event as Event
    from kinesis_publishers.events import EventSink as EventSink
    from kinesis_publishers.events import fan_out_events as fan_out_events
    from kinesis_publishers.events import log_event as log_event
    from kinesis_publishers.formats import CloudEvent as CloudEvent
    from kinesis_publishers.formats import Format as Format
    from kinesis_publishers.model import Checkpoint as Checkpoint
    from kinesis_publishers.model import CheckpointVersion as CheckpointVersion
    from kinesis_publishers.model import CheckpointWrite as CheckpointWrite
    from kinesis_publishers.model import Lease as Lease
    from kinesis_publishers.model import Record as Record
    from kinesis_publishers.model import RecordBatch as RecordBatch
    from kinesis_publishers.model import RecordPage as RecordPage
    from kinesis_publishers.model import RunResult as RunResult
    from kinesis_publishers.model import SequenceNumber as SequenceNumber
    from kinesis_publishers.model import Shard as Shard
    from kinesis_publishers.model import ShardKey as ShardKey
    from kinesis_publishers.model import ShardProgress as ShardProgress
    from kinesis_publishers.model import ShardRange as ShardRange
    from kinesis_publishers.model import StartingPosition as StartingPosition
    from kinesis_publishers.model import StoredCheckpoint as StoredCheckpoint
    from kinesis_publishers.model import StreamIdentity as StreamIdentity
    from kinesis_publishers.model import StreamProgress as StreamProgress
    from kinesis_publishers.model import UserRecord as UserRecord
    from kinesis_publishers.processing import AsyncCheckpointing as AsyncCheckpointing
    from kinesis_publishers.processing import Checkpointing as Checkpointing
    from kinesis_publishers.processing import DeadLetter as DeadLetter
    from kinesis_publishers.processing import ErrorPolicy as ErrorPolicy
    from kinesis_publishers.processing import RecordIterator as RecordIterator
    from kinesis_publishers.processing import RecordStream as RecordStream
    from kinesis_publishers.processing import RetryOnError as RetryOnError
    from kinesis_publishers.processing import ScanResult as ScanResult
    from kinesis_publishers.processing import ShardStream as ShardStream
    from kinesis_publishers.processing import ShardStreams as ShardStreams
    from kinesis_publishers.processing import StopOnError as StopOnError
    from kinesis_publishers.processing import read as read
    from kinesis_publishers.processing import read_table as read_table
    from kinesis_publishers.processing import records as records
    from kinesis_publishers.processing import scan as scan
    from kinesis_publishers.processing import shards as shards
    from kinesis_publishers.producing import BlockingProducer as BlockingProducer
    from kinesis_publishers.producing import KinesisProducer as KinesisProducer
    from kinesis_publishers.producing import PutResult as PutResult
    from kinesis_publishers.progress.checkpointer import Checkpointer as Checkpointer
    from kinesis_publishers.publishers.iterated import (
        IteratedPublisherFactory as IteratedPublisherFactory,
    )
    from kinesis_publishers.publishers.iterated import SourceRecord as SourceRecord
    from kinesis_publishers.readers.consumers import OnBatch as OnBatch
    from kinesis_publishers.readers.fetcher import KinesisDataFetcher as KinesisDataFetcher

# By module, relative to this package; the imports above tell type checkers the same.
_NAMES: Final = {
    "abc": (
        "CheckpointStore CheckpointStoreContext ControlPlane DataPlane EventReporter "
        "Partitioner PublisherContext RecordBatchConsumer RecordPublisher "
        "RecordPublisherFactory ShardAssigner WatermarkAssigner"
    ),
    "clock": "Clock SystemClock",
    "config": "Options Properties",
    "engine.delivery": "Delivery DeliverySink ShardStatus",
    "engine.pool": "Reservation",
    "events": "Event EventSink fan_out_events log_event",
    "formats": "CloudEvent Format",
    "model": (
        "Checkpoint CheckpointVersion CheckpointWrite Lease Record RecordBatch RecordPage "
        "RunResult SequenceNumber Shard ShardKey ShardProgress ShardRange StartingPosition "
        "StoredCheckpoint StreamIdentity StreamProgress UserRecord"
    ),
    "processing": (
        "AsyncCheckpointing Checkpointing DeadLetter ErrorPolicy RecordIterator RecordStream "
        "RetryOnError ScanResult ShardStream ShardStreams StopOnError read read_table records scan "
        "shards"
    ),
    "producing": "BlockingProducer KinesisProducer PutResult",
    "progress.checkpointer": "Checkpointer",
    "publishers.iterated": "IteratedPublisherFactory SourceRecord",
    "readers.consumers": "OnBatch",
    "readers.fetcher": "KinesisDataFetcher",
}

_MODULE_OF: Final = {name: module for module, names in _NAMES.items() for name in names.split()}

# For type checkers, ``__getattr__`` would make every name exist, and ``import *`` would find none.
if not TYPE_CHECKING:
    __all__ = list(_MODULE_OF)

    def __getattr__(name: str) -> Any:
        """Import a public name, or a submodule, when it is first used (PEP 562)."""
        if name in _MODULE_OF:
            value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
            globals()[name] = value
            return value
        if not name.startswith("_") and find_spec(f"{__name__}.{name}"):
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
