"""Where the event times of records come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Self

from kinesis_publishers.config import Properties
from kinesis_publishers.model import Record, RecordBatch


class WatermarkAssigner(ABC):
    """Extracts the event times of records, which advance the watermark.

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
        """Return the event time of ``record``, with a time zone; ``None`` if it has none.

        It runs for every record, and must not block.
        """

    def latest_of(self, batch: RecordBatch) -> datetime | None:
        """Return the latest event time in a batch of one shard, ``None`` if it has none."""
        latest = None
        for record in batch:
            try:
                happened = self.event_time_of(record)
                if happened is not None and (latest is None or happened > latest):
                    latest = happened
            except Exception as error:
                error.add_note(
                    f"It was raised by {type(self).__name__} for the event time of record "
                    f"{record.id}. Return None for a record that has none."
                )
                raise
        return latest

    def reached_by(self, arrived: datetime) -> datetime | None:
        """Return the event time of a shard whose records have been read up to ``arrived``.

        It runs after each answer, with or without records. ``None`` if the time of arrival says
        nothing about event time.
        """
        return None
