"""Spark finds the source by itself where the package is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyspark_kinesis
from kinesis_publishers_spark import KinesisDataSource
from kinesis_publishers_spark.schema import ARROW_SCHEMA
from pyspark_kinesis import DefaultSource
from tests.integration.spark.processes import run_python

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_OPTIONS = {"streamName": "orders", "region": "eu-west-1"}
_DRIVER = Path(__file__).with_name("discovering_driver.py")
# Spark looks through the folders of sys.path.
_FOUND = {"PYTHONPATH": str(Path(pyspark_kinesis.__file__).parents[1])}
_HEAVY = ("kinesis_publishers", "kinesis_publishers_spark", "aiohttp", "boto3", "botocore")


def test_what_spark_finds_makes_the_data_source() -> None:
    source = DefaultSource(options=_OPTIONS)
    assert isinstance(source, KinesisDataSource)
    assert source.options == _OPTIONS
    assert DefaultSource.name() == KinesisDataSource.name()


def test_looking_for_data_sources_imports_nothing_that_takes_time() -> None:
    code = f"import sys, pyspark_kinesis; print([m for m in {_HEAVY} if m in sys.modules])"
    assert run_python("-c", code, **_FOUND) == "[]\n"


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_format_is_known_without_register_and_after_it(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    local_kinesis.create_stream("orders")
    options = json.dumps(local_kinesis.properties("orders"))
    printed = run_python(str(_DRIVER), options, cwd=tmp_path, **_FOUND)
    assert json.loads(printed) == [ARROW_SCHEMA.names, ARROW_SCHEMA.names]
