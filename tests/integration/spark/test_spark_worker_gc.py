"""What Spark's garbage collection after every task has to look at in a Python worker."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

from kinesis_publishers import Properties
from kinesis_publishers_spark.partitions import (
    PrefetchedPartition,
    RangePartition,
    freeze_in_task,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from kinesis_publishers.testing.local_kinesis import LocalKinesis


def frozen_after(spark: SparkSession, steps: list[Callable[[], object]]) -> list[int]:
    """Run ``steps`` in one task; return how many objects are frozen after each of them."""

    def run(_: object) -> list[int]:
        import gc

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
    before, after = frozen_after(spark, [freeze_in_task, lambda: list(partition.read())])
    assert after > before + 1000


def test_what_has_become_garbage_is_not_kept(spark: SparkSession) -> None:
    class Knot:
        def __init__(self) -> None:
            self.itself = self

    def run(_: object) -> list[bool]:
        knot = Knot()
        knots = weakref.WeakSet([knot])
        freeze_in_task(again=True)
        del knot
        kept = len(knots)
        freeze_in_task(again=True)
        return [kept == 1, len(knots) == 0]

    assert spark.sparkContext.parallelize([None], 1).map(run).collect() == [[True, True]]


def test_outside_of_a_task_nothing_is_frozen() -> None:
    before = gc.get_freeze_count()
    freeze_in_task(again=True)
    list(PrefetchedPartition.of([]).read())
    assert gc.get_freeze_count() == before
