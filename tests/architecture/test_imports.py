"""What an import loads: a program that reads its configuration does not wait for the SDK."""

from __future__ import annotations

import runpy
import subprocess
import sys
import typing
from typing import TYPE_CHECKING

import pytest

import kinesis_publishers

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

# The package itself knows its names, and loads what they need at their first use.
_NOTHING: frozenset[str] = frozenset()
_FRAMEWORK = frozenset({"attr", "attrs", "backoff", "orjson"})
# A server loads HTTP, CBOR and TLS when it listens.
_TEST_KIT = frozenset({"pybase64"})
_SPARK = frozenset({"py4j", "pyspark"})
# The SDK and one client of HTTP, with what they import.
_AWS = frozenset({"aioitertools", "aiobotocore", "boto3", "botocore", "certifi", "dateutil"})
_AWS |= {"jmespath", "s3transfer", "six", "urllib3", "wrapt"}
_HTTP = frozenset({"aiohttp", "aiohappyeyeballs", "aiosignal", "frozenlist", "idna"})
_HTTP |= {"multidict", "propcache", "typing_extensions", "yarl"}
# Clients of HTTP load what the extra zstd installs.
_HTTP |= {"backports"}
_COMMAND = frozenset({"click"})
_TABLES = frozenset({"markdown_it", "mdurl", "pygments", "rich"})
# What a Python worker does under the prefetch planner.
_FIRST_TASK = """
from kinesis_publishers_spark.partitions import PrefetchedPartition
list(PrefetchedPartition.of([]).read())
"""
# What the driver does with every record, and under the ranges planner every worker.
_FIRST_RECORDS = """
from datetime import UTC, datetime
from kinesis_publishers import RecordBatch, Shard, ShardProgress, StartingPosition
from kinesis_publishers_spark.chunks import Chunk, pack
from kinesis_publishers_spark.limits import BatchLimit
from kinesis_publishers_spark.schema import to_spark_arrow
from kinesis_publishers_spark.waiting import take
batch = RecordBatch(
    shard=Shard(stream_arn="arn:aws:kinesis:us-east-1:123456789012:stream/orders", shard_id="s"),
    requested_at=datetime.now(UTC),
    payloads=[b"x"] * 9,
    partition_keys=["k"] * 9,
    sequence_numbers=[str(number) for number in range(9)],
    arrival_epoch_seconds=[1.5] * 9,
)
progress = ShardProgress(position=StartingPosition.trim_horizon())
key, rows = batch.shard.key, to_spark_arrow(batch)
chunk = Chunk(shard=key, rows=rows, progress=progress, payload_bytes=9)
take([chunk], BatchLimit(), datetime(1970, 1, 1, tzinfo=UTC))
pack(take([chunk], BatchLimit(records=None, payload_bytes=5))[0], 1)
"""
# What the process of a query's source does until its first micro-batch is planned.
_FIRST_PLAN = """
from pyspark.sql.types import BinaryType, StringType, StructType, TimestampType
from kinesis_publishers_spark import KinesisDataSource
schema = StructType().add("data", BinaryType())
for name in ("streamName", "shardId", "sequenceNumber", "partitionKey"):
    schema.add(name, StringType())
schema.add("approximateArrivalTimestamp", TimestampType())
reader = KinesisDataSource(OPTIONS).streamReader(schema)
start = end = reader.initialOffset()
while end == start:
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
assert reader.partitions(start, end)
reader.stop()
"""
_LOADED = """
import sys
before = set(sys.modules)
{code}
# Its module that is a quarter of it.
kernels = "pyarrow.compute"
names = sys.modules.keys() - before
names = {{name if name == kernels else name.partition(".")[0] for name in names}}
own = {{"kinesis_publishers", "kinesis_publishers_native"}}
own |= {{"kinesis_publishers_spark", "pyspark_kinesis"}}
print(*sorted(name for name in names - sys.stdlib_module_names - own if name[0] != "_"))
"""


def _surplus(code: str, allowed: frozenset[str]) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-c", _LOADED.format(code=code)],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(run.stdout.split()) - allowed


def _call(arguments: str) -> str:
    return f"""
import contextlib, io, sys
from kinesis_publishers.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    main.main({arguments!r}.split(), standalone_mode=False)
"""


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import kinesis_publishers", _NOTHING),
        ("from kinesis_publishers import *", _FRAMEWORK),
        ("import kinesis_publishers.assembly", _FRAMEWORK),
        ("import kinesis_publishers.testing", _FRAMEWORK),
        ("from kinesis_publishers.testing import *", _FRAMEWORK | _TEST_KIT),
        ("import kinesis_publishers_spark", _SPARK),
        pytest.param(_call("--version"), _COMMAND | {"attr", "attrs"}, id="--version"),
        # The package of the command `demo` is one of Spark's.
        pytest.param(_call("--help"), _COMMAND | _SPARK, id="--help"),
        pytest.param(_call("config list"), _COMMAND | _FRAMEWORK | _TABLES, id="config list"),
    ],
)
def test_an_import_loads_no_package_before_something_needs_it(
    code: str, allowed: frozenset[str]
) -> None:
    assert _surplus(code, allowed) == set()


def test_the_names_of_the_package_are_there_and_listed() -> None:
    for name in kinesis_publishers.__all__:
        assert getattr(kinesis_publishers, name) is not None
    assert set(kinesis_publishers.__all__) <= set(dir(kinesis_publishers))


def test_a_submodule_is_an_attribute_without_an_import_of_its_own() -> None:
    code = "import kinesis_publishers; kinesis_publishers.errors.ConfigError"
    assert _surplus(code, _NOTHING) == set()


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'reads'"):
        kinesis_publishers.reads  # noqa: B018


def test_type_checkers_see_the_public_names_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {name: getattr(kinesis_publishers, name) for name in kinesis_publishers.__all__}
    monkeypatch.setattr(typing, "TYPE_CHECKING", True)
    seen = runpy.run_path(kinesis_publishers.__file__, run_name=kinesis_publishers.__name__)
    assert {name: seen.get(name) for name in expected} == expected
    assert seen.keys().isdisjoint({"__all__", "__getattr__"})


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import kinesis_publishers_spark", frozenset({"pyspark"})),
        (_FIRST_TASK, frozenset({"pyspark", "attr", "attrs"})),
        # Not pandas, which pyarrow would import: half a second of CPU.
        (_FIRST_RECORDS, _FRAMEWORK | {"pyarrow", "pyarrow.compute", "pyspark"}),
    ],
    ids=["import", "task", "records"],
)
def test_the_spark_source_loads_no_package_that_spark_has_not_loaded(
    code: str, allowed: frozenset[str]
) -> None:
    spark = "import pyarrow, pyspark.worker; before |= set(sys.modules)\n"
    assert _surplus(spark + code, allowed) == set()


@pytest.mark.parametrize(
    ("planner", "allowed"), [("ranges", frozenset()), ("prefetch", {"pyarrow.compute"})]
)
def test_a_query_begins_with_the_sdk_and_one_client_of_http(
    local_kinesis: LocalKinesis, planner: str, allowed: frozenset[str]
) -> None:
    local_kinesis.create_stream("orders", 1)
    local_kinesis.put_many("orders", [("key", b"value")])
    options = {
        **local_kinesis.properties("orders"),
        "kinesis.spark.planner": planner,
        "kinesis.stream.initpos": "TRIM_HORIZON",
    }
    spark = "import pyspark.sql.streaming.python_streaming_source_runner\n"
    # aiobotocore loads httpx where it is installed; no extra that people use does so.
    spark += "sys.modules['httpx'] = None\n"
    code = f"{spark}before |= set(sys.modules)\nOPTIONS = {options!r}\n{_FIRST_PLAN}"
    needed = _FRAMEWORK | _AWS | _HTTP | {"cbor2", "pyarrow", "pybase64", "pyspark"}
    assert _surplus(code, needed | allowed) == set()
