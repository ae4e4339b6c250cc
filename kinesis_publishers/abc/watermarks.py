"""When what a record tells of has happened, by which watermarks advance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Self

from kinesis_publishers.config import Properties
from kinesis_publishers.model import Record, RecordBatch


class WatermarkAssigner(ABC):
    """Says the event times of records, by which watermarks advance.

    ``kinesis.watermark.assigner`` names one: ARRIVAL, an entry point, or ``module:Class``. One
    instance serves all streams of a reader, on its event loop; a record has the name of its stream.
    What it raises ends reading, before the record is processed.
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
        """Return when that has happened which ``record`` tells of, aware; ``None`` if never.

        It runs for every record, and must not block.
        """

    def latest_of(self, batch: RecordBatch) -> datetime | None:
        """Return the latest event time in a batch of one shard, ``None`` if it has none."""
        times = map(self.event_time_of, batch)
        return max((one for one in times if one is not None), default=None)

    def reached_by(self, arrived: datetime) -> datetime | None:
        """Return the event time that a shard has reached of which all until ``arrived`` was read.

        Asked after each answer, also without records. ``None`` where arrival says nothing.
        """
        return None
