"""One Spark session for all tests, and queries over a stream of a local server."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

# Spark starts its workers with "python3" otherwise, which need not be this interpreter.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from kinesis_publishers_spark import register
from tests.integration.spark.spark_harness import QueryRunner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis


@pytest.fixture(params=["prefetch", "ranges"])
def planner(request: pytest.FixtureRequest) -> str:
    """The planner of the test's queries."""
    name: str = request.param
    return name


@pytest.fixture(scope="session", autouse=True)
def _leases_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the leases of stream consumers apart from those of other processes."""
    with pytest.MonkeyPatch.context() as patch:
        # Before Spark's JVM starts, whose environment the Python processes have.
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("runtime")))
        yield


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, _leases_of_its_own: None
) -> Iterator[SparkSession]:
    """A local session of two cores that knows ``format("kinesis")``."""
    on_interrupt = signal.getsignal(signal.SIGINT)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("kinesis-publishers tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    # PySpark has installed its own, which would stay for later tests of the process.
    signal.signal(signal.SIGINT, on_interrupt)
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    yield session
    session.stop()


@pytest.fixture
def runner(spark: SparkSession, local_kinesis: LocalKinesis, tmp_path: Path) -> QueryRunner:
    return QueryRunner(spark, local_kinesis, tmp_path / "checkpoint")


@pytest.fixture
def flights(local_kinesis: LocalKinesis) -> str:
    """An empty stream of four shards."""
    local_kinesis.create_stream("flights", 4)
    return "flights"
