"""Read Amazon Kinesis Data Streams: pluggable record publishers, from one properties dict.

Each name is imported from its module at its first use: importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kinesis_publishers.abc import (
        CheckpointStore,
        CheckpointStoreContext,
        ControlPlane,
        DataPlane,
        EventReporter,
        PublisherContext,
        RecordBatchConsumer,
        RecordPublisher,
        RecordPublisherFactory,
    )
    from kinesis_publishers.checkpoints.checkpointer import Checkpointer
    from kinesis_publishers.clock import Clock, SystemClock
    from kinesis_publishers.config import Properties
    from kinesis_publishers.engine.delivery import Delivery, DeliverySink, ShardStatus
    from kinesis_publishers.engine.pool import Reservation
    from kinesis_publishers.events import Event, EventSink, fan_out_events, log_event
    from kinesis_publishers.model import (
        Checkpoint,
        CheckpointVersion,
        CheckpointWrite,
        Record,
        RecordBatch,
        RecordPage,
        RunResult,
        SequenceNumber,
        Shard,
        ShardKey,
        ShardProgress,
        ShardRange,
        StartingPosition,
        StoredCheckpoint,
        StreamIdentity,
        StreamProgress,
        UserRecord,
    )
    from kinesis_publishers.processing import (
        DeadLetter,
        ErrorPolicy,
        RecordStream,
        RetryOnError,
        ScanResult,
        StopOnError,
        read,
        scan,
        with_error_policy,
    )
    from kinesis_publishers.readers.fetcher import KinesisDataFetcher, OnBatch

__all__ = [
    "read",
    "scan",
    "RecordStream",
    "ScanResult",
    "ErrorPolicy",
    "StopOnError",
    "RetryOnError",
    "DeadLetter",
    "with_error_policy",
    "KinesisDataFetcher",
    "OnBatch",
    "Properties",
    "Record",
    "RecordBatch",
    "RecordPage",
    "UserRecord",
    "Shard",
    "ShardKey",
    "ShardProgress",
    "ShardRange",
    "ShardStatus",
    "SequenceNumber",
    "StartingPosition",
    "StreamIdentity",
    "StreamProgress",
    "Delivery",
    "DeliverySink",
    "Reservation",
    "RecordPublisher",
    "RecordPublisherFactory",
    "RecordBatchConsumer",
    "PublisherContext",
    "RunResult",
    "Checkpointer",
    "CheckpointStore",
    "CheckpointStoreContext",
    "Checkpoint",
    "CheckpointVersion",
    "CheckpointWrite",
    "StoredCheckpoint",
    "DataPlane",
    "ControlPlane",
    "Clock",
    "SystemClock",
    "Event",
    "EventSink",
    "EventReporter",
    "fan_out_events",
    "log_event",
]

# By module, relative to this package.
_NAMES: Final = {
    "abc": (
        "CheckpointStore",
        "CheckpointStoreContext",
        "ControlPlane",
        "DataPlane",
        "EventReporter",
        "PublisherContext",
        "RecordBatchConsumer",
        "RecordPublisher",
        "RecordPublisherFactory",
    ),
    "checkpoints.checkpointer": ("Checkpointer",),
    "clock": ("Clock", "SystemClock"),
    "config": ("Properties",),
    "engine.delivery": ("Delivery", "DeliverySink", "ShardStatus"),
    "engine.pool": ("Reservation",),
    "events": ("Event", "EventSink", "fan_out_events", "log_event"),
    "model": (
        "Checkpoint",
        "CheckpointVersion",
        "CheckpointWrite",
        "Record",
        "RecordBatch",
        "RecordPage",
        "RunResult",
        "SequenceNumber",
        "Shard",
        "ShardKey",
        "ShardProgress",
        "ShardRange",
        "StartingPosition",
        "StoredCheckpoint",
        "StreamIdentity",
        "StreamProgress",
        "UserRecord",
    ),
    "processing": (
        "DeadLetter",
        "ErrorPolicy",
        "RecordStream",
        "RetryOnError",
        "ScanResult",
        "StopOnError",
        "read",
        "scan",
        "with_error_policy",
    ),
    "readers.fetcher": ("KinesisDataFetcher", "OnBatch"),
}

_MODULE_OF: Final = {name: module for module, names in _NAMES.items() for name in names}


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
