"""The source and the sink over Spark Connect."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from kinesis_publishers_spark.schema import Columns
from tests.integration.spark.processes import run_python
from tests.integration.spark.spark_harness import FROM_THE_START, numbered
from tests.stored import user_records

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

_CLIENT = Path(__file__).with_name("connect_client.py")


def test_every_record_arrives_and_is_copied_over_spark_connect(
    local_kinesis: LocalKinesis, flights: str, tmp_path: Path
) -> None:
    places = local_kinesis.put_many(flights, numbered(0, 400))
    expected = sorted((*place, b"%d" % number) for number, place in enumerate(places))
    local_kinesis.create_stream("copies", 2)
    properties = local_kinesis.properties(flights) | FROM_THE_START
    # With SPARK_TESTING the server chooses a free port and the client finds it.
    run_python(str(_CLIENT), json.dumps(properties), str(tmp_path), cwd=tmp_path, SPARK_TESTING="1")

    assert json.loads((tmp_path / "session.json").read_text()) == "pyspark.sql.connect.session"
    assert json.loads((tmp_path / "count.json").read_text()) == len(expected)
    copied = sorted(record.data for record in user_records(local_kinesis, "copies"))
    assert copied == sorted([*(data for *_, data in expected), b"once"])
    logged = json.loads((tmp_path / "logged.json").read_text())
    written = re.findall(r"Query copied wrote (\d+) rows?\.", "\n".join(logged))
    assert sum(map(int, written)) == len(expected)
    registered = pq.read_table(tmp_path / "registered")
    assert registered.column_names == Columns(metadata=False).arrow.names
    renamed = pq.read_table(tmp_path / "renamed")
    assert renamed.column_names == Columns(metadata=True).arrow.names
    for table in (registered, renamed):
        rows = table.select(["shardId", "sequenceNumber", "data"]).to_pydict().values()
        assert sorted(zip(*rows, strict=True)) == expected
