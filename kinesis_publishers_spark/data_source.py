"""The entry point for Spark: the data source ``kinesis``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from kinesis_publishers.config import Planner, Properties, SparkConfig
from kinesis_publishers.errors import InvalidOptionError
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
        self._properties = Properties.from_spark_options(dict(options))
        self._config = SparkConfig.from_properties(self._properties)
        if self._config.planner is not Planner.PREFETCH:
            raise InvalidOptionError(
                "kinesis.spark.planner = ranges is not available in this version: use prefetch."
            )
        if self._config.include_metadata:
            raise InvalidOptionError(
                "kinesis.spark.includemetadata = true is not available in this version."
            )

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


def register(spark: SparkSession) -> None:
    """Make ``format("kinesis")`` known to ``spark``."""
    spark.dataSource.register(KinesisDataSource)
