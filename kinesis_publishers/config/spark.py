"""The typed view of the options that only the Spark source reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.config.choices import Planner
from kinesis_publishers.config.options import spark

if TYPE_CHECKING:
    from kinesis_publishers.config.properties import Properties

__all__ = ["Planner", "SparkConfig"]


@frozen(kw_only=True)
class SparkConfig:
    """How micro-batches are planned and what they contain.

    Attributes:
        planner: how the end of a micro-batch is found.
        parallelism: the largest number of partitions, None for the number of cores.
        max_records_per_trigger: the largest number of records in a micro-batch, None for no limit.
        max_bytes_per_trigger: the largest size of a micro-batch, None for no limit.
        include_metadata: whether the additional columns are in the schema.
    """

    planner: Planner
    parallelism: int | None
    max_records_per_trigger: int | None
    max_bytes_per_trigger: int | None
    include_metadata: bool

    @classmethod
    def from_properties(cls, properties: Properties) -> SparkConfig:
        """Read the options of the Spark source."""
        return cls(
            planner=properties.get(spark.PLANNER),
            parallelism=properties.get(spark.PARALLELISM),
            max_records_per_trigger=properties.get(spark.MAX_RECORDS_PER_TRIGGER),
            max_bytes_per_trigger=properties.get(spark.MAX_BYTES_PER_TRIGGER),
            include_metadata=properties.get(spark.INCLUDE_METADATA),
        )
