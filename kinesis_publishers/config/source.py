"""The typed view of the choices that concern a source as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.config.choices import AggregationMode
from kinesis_publishers.config.options import publisher

if TYPE_CHECKING:
    from kinesis_publishers.config.properties import Properties

__all__ = ["AggregationMode", "SourceConfig"]


@frozen(kw_only=True)
class SourceConfig:
    """Which publisher reads, and what becomes of aggregates and of lost data.

    Attributes:
        record_publisher: ``POLLING``, ``EFO``, ``module:Class`` or the name of an entry point.
        aggregation: what is done with aggregate records.
        fail_on_data_loss: whether lost data is an error.
    """

    record_publisher: str
    aggregation: AggregationMode
    fail_on_data_loss: bool

    @classmethod
    def from_properties(cls, properties: Properties) -> SourceConfig:
        """Read the choices."""
        return cls(
            record_publisher=properties.get(publisher.RECORD_PUBLISHER),
            aggregation=properties.get(publisher.AGGREGATION),
            fail_on_data_loss=properties.get(publisher.FAIL_ON_DATA_LOSS),
        )
