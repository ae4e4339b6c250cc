"""The declarative pipeline of docs/spark-pipelines.md, as printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.docs.doc_pages import ROOT
from tests.integration.spark.spark_harness import numbered
from tests.stored import user_records

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1200)]

pytest.importorskip("pyspark.pipelines", reason="Spark 4.0 has no declarative pipelines")

_PAGE = (ROOT / "docs" / "spark-pipelines.md").read_text(encoding="utf-8")
_FILES = re.findall(r"^```\w+\n(?:#|--) (\S+)\n(.*?)^```$", _PAGE, re.DOTALL | re.MULTILINE)
_RUN = re.findall(r"^spark-pipelines (.* run)$", _PAGE, re.MULTILINE)


class Pipeline:
    """The files of the page in a folder, over a local server."""

    def __init__(self, server: LocalKinesis, folder: Path) -> None:
        self._server, self._folder = server, folder
        for name, text in _FILES:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text.replace("/tmp/", f"{folder}/"))

    def run(self) -> None:
        (command,) = _RUN
        environ = {
            "AWS_ENDPOINT_URL_KINESIS": self._server.endpoint_url,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            # The server chooses a free port.
            "SPARK_TESTING": "1",
        }
        done = subprocess.run(
            [Path(sys.executable).with_name("spark-pipelines"), *shlex.split(command)],
            cwd=self._folder,
            env=os.environ | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=550,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-50_000:]

    def table(self, name: str) -> dict[str, list[object]]:
        """Return the columns of a table."""
        columns: dict[str, list[object]] = pq.read_table(
            self._folder / "spark-warehouse" / name
        ).to_pydict()
        return columns


def test_the_pipeline_of_the_page_goes_on_with_each_run(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    for stream in ("orders", "orders-copy"):
        local_kinesis.create_stream(stream, 2)
    pipeline = Pipeline(local_kinesis, tmp_path)
    for start, stop in ((0, 50), (50, 60)):
        local_kinesis.put_many("orders", numbered(start, stop, keys=3))
        pipeline.run()
        copied = user_records(local_kinesis, "orders-copy")
        assert sorted(int(record.data) for record in copied) == list(range(stop))
        assert sorted(map(int, pipeline.table("orders")["data"])) == list(range(stop))
        assert sum(pipeline.table("orders_by_key")["orders"]) == stop
        assert sum(pipeline.table("retained_by_shard")["count"]) == stop
