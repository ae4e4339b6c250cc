"""The entry point for Spark: the data source ``kinesis``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from kinesis_publishers.assembly import publisher_factory_class, with_region
from kinesis_publishers.config import Planner, Properties, SourceConfig, SparkConfig
from kinesis_publishers.eager_registration import register_consumers
from kinesis_publishers.errors import ConfigError, ConfigErrors, InvalidOptionError
from kinesis_publishers_spark.schema import SPARK_SCHEMA
from kinesis_publishers_spark.stream_reader import KinesisStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["KinesisDataSource", "register"]


class KinesisDataSource(DataSource):
    """Amazon Kinesis Data Streams as a streaming source: ``spark.readStream.format("kinesis")``."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Checked here, so that a mistake shows at load() and not in the first micro-batch.
        properties = Properties.from_spark_options(dict(options))
        self._config = SparkConfig.from_properties(properties)
        _refuse_unavailable(properties, self._config)
        # Executors may have another environment than the driver: the region travels. So do the
        # ARNs of what EAGER registers here, the one place that runs once.
        self._properties = register_consumers(with_region(properties))

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "kinesis"

    def schema(self) -> str:
        """Return the columns in Spark's DDL."""
        return SPARK_SCHEMA

    def streamReader(self, schema: StructType) -> KinesisStreamReader:
        """Return a reader for one query; Spark calls this in several processes."""
        return KinesisStreamReader(self._properties, self._config)


def _refuse_unavailable(properties: Properties, config: SparkConfig) -> None:
    problems: list[ConfigError] = []
    if config.planner is not Planner.PREFETCH:
        problems.append(
            InvalidOptionError(
                "kinesis.spark.planner = ranges is not available in this version: use prefetch."
            )
        )
    if config.include_metadata:
        problems.append(
            InvalidOptionError(
                "kinesis.spark.includemetadata = true is not available in this version."
            )
        )
    try:
        publisher_factory_class(SourceConfig.from_properties(properties).record_publisher)
    except ConfigError as problem:
        problems.append(problem)
    if problems:
        raise ConfigErrors(problems)


def register(spark: SparkSession) -> None:
    """Make ``format("kinesis")`` known to ``spark``."""
    spark.dataSource.register(KinesisDataSource)
