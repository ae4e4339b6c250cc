"""What an application adds: its choice of shards and keys, event times, a sink of events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from kinesis_publishers.clock import Clock
from kinesis_publishers.config import Properties
from kinesis_publishers.config.plugins import with_overrides
from kinesis_publishers.errors import EventTimeError
from kinesis_publishers.events import Event
from kinesis_publishers.model import ChildShard, Record, RecordBatch, Shard, ShardKey, ShardProgress


class MadeOfProperties:
    """Is named by an option, and made of the properties."""

    @classmethod
    def from_properties(cls, properties: Properties) -> Self:
        """Return an instance; unless overridden, made without arguments.

        Raises:
            ConfigError: the properties cannot work; no call is made to find out.
        """
        return cls()


class ShardAssigner(MadeOfProperties):
    """Decides which shards this process reads.

    ``kinesis.shard.assigner`` names one: ALL, MANUAL, LEASES, an entry point, or ``module:Class``.
    A subclass overrides :meth:`reads` if the choice never changes, or else :meth:`mine`. All are
    called from the event loop, and none may block.
    """

    def check_listing(self, listed: Sequence[Shard]) -> None:
        """Check the first listing of a stream.

        Raises:
            ConfigError: the configuration names shards that are not there.
        """

    def reads(self, shard: Shard) -> bool:
        """Return whether a shard exists for this process; the answer never changes.

        The children of one that does not exist for it do not wait for their parent.
        """
        return True

    def mine(self, startable: Sequence[Shard]) -> Collection[ShardKey]:
        """Return which shards may be read now, of those whose parents were read to their ends.

        It is asked whenever a listing has come, a shard has ended, or the function that
        :meth:`on_change` was given is called. What it no longer returns is read no further.
        """
        return {shard.key for shard in startable}

    def on_change(self, wake: Callable[[], None]) -> None:
        """Keep a function to call when :meth:`mine` would give another answer."""


class SharedReading:
    """The optional methods of a ``ShardAssigner``, called like the others; these do nothing."""

    @classmethod
    def of(cls, assigner: ShardAssigner) -> SharedReading:
        """Return the methods that ``assigner`` has, which must fit."""
        return with_overrides(cls(), assigner)

    def known_progress(self) -> Mapping[ShardKey, ShardProgress]:
        """Return the progress of the shards that other processes read."""
        return {}

    def leaving(self) -> Collection[ShardKey]:
        """Return the shards that other processes wait for; finish their delivered records."""
        return ()

    async def release(self, shards: Collection[ShardKey]) -> None:
        """Release ``shards`` to other processes: their delivered records are finished."""

    def may_deliver(self, shard: ShardKey) -> bool:
        """Return whether records of a shard may be delivered now."""
        return True

    async def permission(self, shard: ShardKey) -> None:
        """Wait until records of a shard may be delivered; cancelled if the shard is taken away."""

    def note_delivery(self, shard: ShardKey, payload_bytes: int) -> None:
        """Count the payload bytes that were read from a shard."""

    def note_children(self, shard: ShardKey, children: Sequence[ChildShard]) -> None:
        """Receive the children of an ended shard before its end is recorded."""


class Partitioner(MadeOfProperties, ABC):
    """Chooses the partition key, and so the shard, of each record that is put without one.

    ``kinesis.producer.partitioner`` names one: RANDOM, an entry point, or ``module:Class``. One
    instance serves a producer, on its event loop.
    """

    @abstractmethod
    def keys_of(self, data: bytes) -> tuple[str, str | None]:
        """Return the partition key for a record, and its explicit hash key or ``None``.

        It runs for every record that is put without a partition key, and must not block. What it
        raises is raised by ``put``, and so is an error for keys that Kinesis would refuse.
        """


class WatermarkAssigner(MadeOfProperties, ABC):
    """Extracts the event times of records, which advance the watermark.

    ``kinesis.watermark.assigner`` names one: ARRIVAL, an entry point, or ``module:Class``. One
    instance serves all streams of a reader, on its event loop; a record has the name of its stream.
    A record that it raises for is not processed: the error policy takes it, or reading ends.
    """

    @abstractmethod
    def event_time_of(self, record: Record) -> datetime | None:
        """Return the event time of ``record``, with a time zone; ``None`` if it has none.

        It runs once for every record, before that is processed, and must not block.
        """

    def latest_of(self, batch: RecordBatch) -> datetime | None:
        """Return the latest event time in a batch of one shard, ``None`` if it has none.

        Raises:
            EventTimeError: a record has none because of an error that no policy takes.
        """
        times = (self._checked_time(record, batch) for record in batch)
        return max((one for one in times if one is not None), default=None)

    def _checked_time(self, record: Record, batch: RecordBatch) -> datetime | None:
        cause: Exception | None = None
        try:
            time: object = self.event_time_of(record)
            if time is None or (isinstance(time, datetime) and time.utcoffset() is not None):
                return time
            problem = (
                f"returned {time!r:.100} for record {record.id}: return a datetime with a time "
                "zone, or None"
            )
        except Exception as error:  # noqa: BLE001 - the policy decides what follows
            cause, problem = error, f"raised {error!r:.1000} for record {record.id}"
        failure = EventTimeError(f"{type(self).__module__}:{type(self).__qualname__} {problem}")
        failure.__cause__ = cause
        if batch.failures is None:
            raise failure
        batch.failures[record.id] = failure
        return None

    def reached_by(self, arrived: datetime) -> datetime | None:
        """Return the event time of a shard whose records have been read up to ``arrived``.

        It runs after each answer, with or without records. ``None`` if the time of arrival says
        nothing about event time.
        """
        return None


class EventReporter(ABC):
    """Takes every diagnostic event of a reader.

    ``metrics.sinks`` names one: a built-in one by its name, any other as ``module:Class``. It is
    made and entered before anything is read, called with each event, and left after everything else
    is closed.
    """

    @classmethod
    @abstractmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        """Return a reporter configured by ``properties``, which name the region.

        Raises:
            ConfigError: the properties cannot work; no call is made to find out.
        """

    @abstractmethod
    def __call__(self, event: Event) -> None:
        """Take an event.

        It runs many times a second on the event loop that reads, and must not block. Its exceptions
        are logged once for each kind, and reading continues.
        """

    async def __aenter__(self) -> Self:
        """Begin to report."""
        return self

    async def __aexit__(  # noqa: B027 - most have nothing to close
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Report the remaining events in bounded time; an exception is logged."""
