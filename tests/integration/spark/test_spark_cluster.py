"""On a cluster each action has the rows of its batch, also when tasks and executors fail."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.integration.spark.cluster_queries import ClusterDriver, ClusterQuery
from tests.integration.spark.spark_cluster import SparkCluster
from tests.integration.spark.spark_harness import FROM_THE_START, numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from tests.integration.spark.cluster_driver import Rows

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

_COUNT = 600
# What happens to tasks differs little between the planners: the other one has its turn in soak.
_RANGES_FIRST, _PREFETCH_FIRST = (
    pytest.mark.parametrize("planner", [first, pytest.param(second, marks=pytest.mark.soak)])
    for first, second in (("ranges", "prefetch"), ("prefetch", "ranges"))
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterDriver]:
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"))
    try:
        one = ClusterDriver(cluster, tmp_path_factory.mktemp("driver"))
        yield one
        one.kill()
    finally:
        cluster.stop()


@pytest.fixture
def query(
    driver: ClusterDriver, local_kinesis: LocalKinesis, tmp_path: Path, planner: str
) -> Iterator[Callable[..., ClusterQuery]]:
    """Return a function that starts a query whose sink has a name, over 600 records."""
    local_kinesis.create_stream("flights", 4)
    local_kinesis.put_many("flights", numbered(0, _COUNT))
    properties = {
        **local_kinesis.properties("flights"),
        **FROM_THE_START,
        "kinesis.spark.planner": planner,
    }
    one = ClusterQuery(driver, tmp_path)

    def start(sink: str) -> ClusterQuery:
        one.start(properties, sink=sink, rows=_COUNT)
        return one

    yield start
    # The driver takes the next command only when it is done with this one.
    one.give("go")
    one.give("never")


def by_shard(rows: Rows) -> Rows:
    """Return rows sorted by shard only: the order within a shard stays, and counts."""
    return sorted(rows, key=lambda row: row[0])


def assert_each_action_has_the_rows_of_its_batch(batches: list[list[Rows]]) -> None:
    for first, *others in batches:
        numbers = [(shard, int(number)) for shard, number, _ in by_shard(first)]
        assert numbers == sorted(numbers), "a shard is out of order"
        for rows in others:
            assert by_shard(rows) == by_shard(first)
    payloads = [int(data) for first, *_ in batches for _, _, data in first]
    assert sorted(payloads) == list(range(_COUNT))


@_RANGES_FIRST
def test_an_executor_that_is_killed_in_the_middle_of_a_task(
    query: Callable[..., ClusterQuery],
) -> None:
    running = query("with_a_held_task")
    os.kill(int(running.wait_for("holding")), signal.SIGKILL)
    assert_each_action_has_the_rows_of_its_batch(running.actions())


@_PREFETCH_FIRST
def test_a_speculative_copy_of_a_slow_task(query: Callable[..., ClusterQuery]) -> None:
    running = query("with_a_held_task")
    batches = running.actions()
    assert running.attempts >= {0, 1}, "the first attempt never ended: its copy did"
    assert_each_action_has_the_rows_of_its_batch(batches)


@_RANGES_FIRST
def test_a_task_that_failed_in_the_middle(query: Callable[..., ClusterQuery]) -> None:
    running = query("with_a_failing_task")
    batches = running.actions()
    assert running.wait_for("failed") == ""
    # A loaded machine is slow enough for a speculative copy besides.
    assert running.attempts >= {0, 1}, "the first attempt failed: another one ended"
    assert_each_action_has_the_rows_of_its_batch(batches)


@_RANGES_FIRST
def test_a_cache_that_is_lost_with_all_executors(
    query: Callable[..., ClusterQuery], driver: ClusterDriver
) -> None:
    running = query("with_a_cache")
    running.wait_for("between")
    executors = driver.cluster.executors()
    assert executors
    for executor in executors:
        executor.kill()
    running.give("go")
    assert_each_action_has_the_rows_of_its_batch(running.actions())
