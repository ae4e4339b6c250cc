"""The typed view of the choices that concern a source as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.config.choices import AggregationMode, OnInvalidAggregate
from kinesis_publishers.config.options import publisher
from kinesis_publishers.errors import InvalidOptionError

if TYPE_CHECKING:
    from kinesis_publishers.config.properties import Properties

__all__ = ["AggregationMode", "SourceConfig"]


@frozen(kw_only=True)
class SourceConfig:
    """What becomes of aggregates and of lost data.

    Attributes:
        aggregation: what is done with aggregate records.
        fails_on_invalid_aggregate: whether one that is not valid is an error.
        fail_on_data_loss: whether lost data is an error.
    """

    aggregation: AggregationMode
    fails_on_invalid_aggregate: bool
    fail_on_data_loss: bool

    @classmethod
    def from_properties(cls, properties: Properties) -> SourceConfig:
        """Read the choices.

        Raises:
            InvalidOptionError: an invalid aggregate is for a dead letter: there is none here.
        """
        on_invalid = properties.get(publisher.ON_INVALID_AGGREGATE)
        if on_invalid is OnInvalidAggregate.DEAD_LETTER:
            raise InvalidOptionError(
                f"{properties.written_key(publisher.ON_INVALID_AGGREGATE)} is dead-letter, and "
                "only scan(properties, process, on_error=DeadLetter(put)) has one, with a process "
                "that takes single records: use plain or fail elsewhere"
            )
        return cls(
            aggregation=properties.get(publisher.AGGREGATION),
            fails_on_invalid_aggregate=on_invalid is OnInvalidAggregate.FAIL,
            fail_on_data_loss=properties.get(publisher.FAIL_ON_DATA_LOSS),
        )
