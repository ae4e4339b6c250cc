"""Amazon Kinesis Data Streams as a source for Spark Structured Streaming; no jar is needed."""

from kinesis_publishers_spark.data_source import KinesisDataSource, register

__all__ = ["KinesisDataSource", "register"]
