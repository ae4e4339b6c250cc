"""One local server per test, and planners that are closed in any case."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.testing.local_kinesis import Behaviour, Limits, LocalKinesis
from kinesis_publishers_spark import workers
from tests.integration.spark.planner.planner_harness import STREAM, Query, QueryOf, planner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_publishers_spark.micro_batches import MicroBatches


@pytest.fixture
def late_end() -> bool:
    """Whether closed shards say late that they have ended; see ``BOTH_ENDS``."""
    return False


@pytest.fixture
def server(late_end: bool) -> Iterator[LocalKinesis]:
    """A server without rates, whose stream ``orders`` has two shards."""
    behaviour = Behaviour(late_shard_end=late_end)
    with LocalKinesis.in_thread(Limits.off(), behaviour=behaviour) as server:
        server.create_stream(STREAM, 2)
        yield server


@pytest.fixture
def query_of() -> Iterator[QueryOf]:
    """Return a function that starts a query with the planners that it is given."""
    queries: list[Query] = []

    def start(make: Callable[[], MicroBatches]) -> Query:
        queries.append(Query(make))
        return queries[-1]

    yield start
    for query in queries:
        query.stop()


@pytest.fixture(params=["prefetch", "ranges"])
def kind(request: pytest.FixtureRequest) -> str:
    """The planner of the test's queries; a module about one of them replaces this fixture."""
    name: str = request.param
    return name


@pytest.fixture
def start_query(server: LocalKinesis, query_of: QueryOf, kind: str) -> Callable[..., Query]:
    """Return a function that starts a query; it takes what :func:`planner` takes."""

    def start(position: str = "TRIM_HORIZON", *, parallelism: int = 2, **more: str) -> Query:
        more = {"kind": kind, **more}
        return query_of(lambda: planner(server, position, parallelism=parallelism, **more))

    return start


@pytest.fixture(autouse=True)
def _workers_end() -> Iterator[None]:
    """End what a Python worker of Spark keeps for its next task: the test's process is one."""
    yield
    workers.READERS.close()


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the ranges planner look as often as the local server, which has no rates, allows."""
    name = "kinesis_publishers.readers.ranges.finder._LOOK_INTERVAL_SECONDS"
    monkeypatch.setattr(name, 0.02)


@pytest.fixture
def patient_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let AvailableNow wait for full micro-batches, however slow the machine is."""
    name = "kinesis_publishers_spark.prefetch._GATHER_SECONDS"
    monkeypatch.setattr(name, 25.0)
