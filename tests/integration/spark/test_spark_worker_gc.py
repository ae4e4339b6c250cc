"""What tasks cost in a Python worker besides their rows: collections and importers."""

from __future__ import annotations

import gc
import weakref
from threading import Event
from typing import TYPE_CHECKING
from zipfile import ZipFile
from zipimport import zipimporter

import pytest
from pyspark.sql.functions import udf

from kinesis_publishers import Properties
from kinesis_publishers_spark import processes
from kinesis_publishers_spark.partitions import PrefetchedPartition, RangePartition
from kinesis_publishers_spark.processes import prepare_worker
from tests.integration.spark.spark_harness import FROM_THE_START, numbered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from tests.integration.spark.spark_harness import QueryRunner, RunningQuery

pytestmark = pytest.mark.spark


def frozen_after(spark: SparkSession, steps: list[Callable[[], object]]) -> list[int]:
    """Run ``steps`` in one task; return how many objects are frozen after each of them."""

    def run(_: object) -> list[int]:
        import gc

        # Another test may have run in this worker.
        zipimporter.invalidate_caches = processes.read_directory_again  # type: ignore[assignment]
        gc.unfreeze()
        counts = []
        for step in steps:
            step()
            counts.append(gc.get_freeze_count())
        return counts

    return spark.sparkContext.parallelize([None], 1).map(run).collect()[0]


def test_the_first_partition_of_a_worker_freezes_what_is_loaded(spark: SparkSession) -> None:
    partition = PrefetchedPartition.of([])
    first, second = frozen_after(spark, [lambda: list(partition.read())] * 2)
    assert second == first > 10_000


def test_a_new_reader_freezes_what_it_has_loaded(
    spark: SparkSession, local_kinesis: LocalKinesis
) -> None:
    local_kinesis.create_stream("orders", 1)
    properties = Properties.parse(local_kinesis.properties("orders"))
    partition = RangePartition(properties, ())
    before, after = frozen_after(spark, [prepare_worker, lambda: list(partition.read())])
    assert after > before + 1000


def test_what_has_become_garbage_is_not_kept(spark: SparkSession) -> None:
    class Knot:
        def __init__(self) -> None:
            self.itself = self

    def run(_: object) -> list[bool]:
        knot = Knot()
        knots = weakref.WeakSet([knot])
        prepare_worker(again=True)
        del knot
        kept = len(knots)
        prepare_worker(again=True)
        return [kept == 1, len(knots) == 0]

    assert spark.sparkContext.parallelize([None], 1).map(run).collect() == [[True, True]]


def test_outside_of_a_task_nothing_is_frozen() -> None:
    before = gc.get_freeze_count()
    prepare_worker(again=True)
    list(PrefetchedPartition.of([]).read())
    assert gc.get_freeze_count() == before


@pytest.mark.long
def test_a_task_imports_files_that_were_added_after_the_first_micro_batch(
    spark: SparkSession, runner: QueryRunner, flights: str, tmp_path: Path
) -> None:
    name = f"added_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}_file.py").write_text("VALUE = 'file'")
    with ZipFile(tmp_path / f"{name}.zip", "w") as archive:
        archive.writestr(f"{name}_zip.py", "VALUE = 'zip'")

    def values(_: str) -> str:
        from importlib import import_module
        from zipimport import zipimporter

        added = [import_module(f"{name}_{kind}").VALUE for kind in ("file", "zip")]
        # The worker is one that has read a partition before.
        return "+".join([*added, zipimporter.invalidate_caches.__name__])

    is_added = Event()

    def sink(running: RunningQuery, frame: DataFrame, batch_id: int) -> None:
        if is_added.is_set():
            frame = frame.select(udf(values, useArrow=False)("partitionKey").alias("partitionKey"))
        if rows := frame.collect():
            running.batches[batch_id] = rows

    with runner.run(sink=sink, **FROM_THE_START) as running:
        runner.server.put_many(flights, numbered(0, 20))
        running.wait_for_rows(20)
        spark.sparkContext.addPyFile(str(tmp_path / f"{name}_file.py"))
        spark.sparkContext.addPyFile(str(tmp_path / f"{name}.zip"))
        is_added.set()
        runner.server.put_many(flights, numbered(20, 40))
        running.wait_for_rows(40)
    assert {row.partitionKey for row in running.rows[20:]} == {"file+zip+invalidate_if_changed"}
