"""``spark-submit`` with the package in an archive, as docs/production.md prints it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pyspark
import pytest

from tests.docs.doc_pages import ROOT, blocks_of
from tests.integration.spark.spark_cluster import SparkCluster
from tests.integration.spark.spark_harness import FROM_THE_START, numbered

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

_COUNT = 2000
_DEFAULTS = """
spark.cores.max 2
spark.driver.bindAddress 127.0.0.1
spark.driver.host 127.0.0.1
spark.executor.memory 512m
# A loaded machine takes its time to accept a connection.
spark.python.authenticate.socketTimeout 120s
# So that both workers have tasks.
spark.scheduler.maxRegisteredResourcesWaitingTime 300s
spark.scheduler.minRegisteredResourcesRatio 1.0
spark.ui.enabled false
"""


def commands_of_the_page(**replaced: str) -> str:
    page = ROOT / "docs" / "production.md"
    block = next(one for one in blocks_of(page) if "--archives environment" in one.code)
    code = block.code
    for printed, value in replaced.items():
        assert printed in code
        code = code.replace(printed, value)
    return code


def test_executors_on_two_workers_read_with_the_package_of_the_archive(
    local_kinesis: LocalKinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing of this checkout, or of its environment, may be found on the way.
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    local_kinesis.create_stream("orders", 4)
    places = local_kinesis.put_many("orders", numbered(0, _COUNT))
    properties = local_kinesis.properties("orders") | FROM_THE_START
    # More tasks than one executor has cores.
    properties |= {"kinesis.spark.planner": "ranges", "kinesis.spark.maxrecordsperpartition": "100"}
    lines = [f"{key} = {value}\n" for key, value in properties.items()]
    (tmp_path / "orders.properties").write_text("".join(lines))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(_DEFAULTS)
    home = Path(pyspark.__file__).parent

    cluster = SparkCluster(tmp_path)
    try:
        done = subprocess.run(
            [
                "bash",
                "-euc",
                commands_of_the_page(
                    CHECKOUT=str(ROOT),
                    MASTER=cluster.url,
                    FOLDER=f"{tmp_path / 'output'} --once",
                ),
            ],
            cwd=tmp_path,
            env=os.environ
            | {
                "PATH": f"{Path(sys.executable).parent}:{home / 'bin'}:{os.environ['PATH']}",
                "SPARK_HOME": str(home),
                "SPARK_CONF_DIR": str(tmp_path / "conf"),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
    finally:
        cluster.stop()
    assert done.returncode == 0, done.stderr[-20_000:]

    rows = pq.read_table(tmp_path / "output" / "records").to_pylist()
    expected = sorted((*place, b"%d" % number) for number, place in enumerate(places))
    assert sorted((r["shardId"], r["sequenceNumber"], r["data"]) for r in rows) == expected
    # The master may begin others, for those that end before it has learned that all is done.
    found = tmp_path.glob("on-*/app-*/*/stderr")
    logs = [log for log in found if "Running task" in log.read_text()]
    assert {log.parts[-4] for log in logs} == {"on-127.0.0.1", "on-localhost"}
    for log in logs:
        (module,) = log.parent.glob(
            "environment/lib/python*/site-packages/kinesis_publishers_spark"
        )
        assert module.is_dir()
