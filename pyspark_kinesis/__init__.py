"""Where Spark finds ``format("kinesis")`` without ``register(spark)``.

Spark imports every installed module whose name begins with ``pyspark_``, once per application that
uses any Python data source. So nothing that takes time is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from kinesis_publishers_spark import KinesisDataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Stands for :class:`~kinesis_publishers_spark.KinesisDataSource`, and makes it when called."""

    def __new__(cls, options: dict[str, str]) -> KinesisDataSource:  # type: ignore[misc]
        """Return the data source itself."""
        from kinesis_publishers_spark import KinesisDataSource

        return KinesisDataSource(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "kinesis"
