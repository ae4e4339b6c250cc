"""Amazon Kinesis Data Streams as a source for Spark Structured Streaming; no jar is needed."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinesis_publishers_spark.data_source import KinesisDataSource as KinesisDataSource
    from kinesis_publishers_spark.data_source import register as register

__all__ = ["KinesisDataSource", "register"]

# At their first use: the list of commands, which has the demo, needs no pyspark.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from kinesis_publishers_spark import data_source

        return getattr(data_source, name)
