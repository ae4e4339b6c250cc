"""What options may have the driver load, in SQL and in programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from kinesis_publishers_spark import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

_VIEW = """
    CREATE OR REPLACE TEMPORARY VIEW orders USING {format} OPTIONS (
        streamName 'orders', region 'eu-west-1', `stream.recordpublisher` '{publisher}:Factory'
    )"""


def test_sql_cannot_have_the_driver_import_a_module(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="KINESIS_PUBLISHERS_ALLOW"):
        spark.sql(_VIEW.format(format="kinesis", publisher="no_such_module"))


def test_sql_names_what_the_application_permits(spark: SparkSession) -> None:
    register(spark, name="permitting", allow=["no_such_module:*"])
    with pytest.raises(PySparkException, match="there is no module 'no_such_module'"):
        spark.sql(_VIEW.format(format="permitting", publisher="no_such_module"))
    with pytest.raises(PySparkException, match="permitted"):
        spark.sql(_VIEW.format(format="permitting", publisher="other_module"))
