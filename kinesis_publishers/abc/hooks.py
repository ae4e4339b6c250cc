"""What an application adds: partition keys, the event times of records, a sink of events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from types import TracebackType
from typing import Self

from kinesis_publishers.clock import Clock
from kinesis_publishers.config import Properties
from kinesis_publishers.errors import EventTimeError
from kinesis_publishers.events import Event
from kinesis_publishers.model import Record, RecordBatch


class Partitioner(ABC):
    """Chooses the partition key, and so the shard, of each record that is put without one.

    ``kinesis.producer.partitioner`` names one: RANDOM, an entry point, or ``module:Class``. One
    instance serves a producer, on its event loop.
    """

    @classmethod
    def from_properties(cls, properties: Properties) -> Self:
        """Return a partitioner; unless overridden, made without arguments.

        Raises:
            ConfigError: the properties cannot work; no call is made to find out.
        """
        return cls()

    @abstractmethod
    def keys_of(self, data: bytes) -> tuple[str, str | None]:
        """Return the partition key for a record, and its explicit hash key or ``None``.

        It runs for every record that is put without a partition key, and must not block. What it
        raises is raised by ``put``, and so is an error for keys that Kinesis would refuse.
        """


class WatermarkAssigner(ABC):
    """Extracts the event times of records, which advance the watermark.

    ``kinesis.watermark.assigner`` names one: ARRIVAL, an entry point, or ``module:Class``. One
    instance serves all streams of a reader, on its event loop; a record has the name of its stream.
    A record that it raises for is not processed: the error policy takes it, or reading ends.
    """

    @classmethod
    def from_properties(cls, properties: Properties) -> Self:
        """Return an assigner; unless overridden, made without arguments.

        Raises:
            ConfigError: the properties cannot work; no call is made to find out.
        """
        return cls()

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
