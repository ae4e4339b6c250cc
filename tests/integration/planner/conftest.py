"""One local server per test, and planners that are closed whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from planner_harness import STREAM, Query, planner

from kinesis_publishers.testing.local_kinesis import Behaviour, Limits, LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_publishers_spark.planning.prefetch import PrefetchPlanner


@pytest.fixture(params=[False, True], ids=["end with records", "late end"])
def server(request: pytest.FixtureRequest) -> Iterator[LocalKinesis]:
    """A server without rates, whose stream ``orders`` has two shards.

    A closed shard says that it has ended with its last records, or only with the answer after them:
    whoever reads must not rely on either.
    """
    behaviour = Behaviour(late_shard_end=request.param)
    with LocalKinesis.in_thread(Limits.off(), behaviour=behaviour) as server:
        server.create_stream(STREAM, 2)
        yield server


@pytest.fixture
def query_of() -> Iterator[Callable[[Callable[[], PrefetchPlanner]], Query]]:
    """Return a function that starts a query with the planners that it is given."""
    queries: list[Query] = []

    def start(make: Callable[[], PrefetchPlanner]) -> Query:
        queries.append(Query(make))
        return queries[-1]

    yield start
    for query in queries:
        query.stop()


@pytest.fixture
def start_query(
    server: LocalKinesis, query_of: Callable[[Callable[[], PrefetchPlanner]], Query]
) -> Callable[..., Query]:
    """Return a function that starts a query; it takes what :func:`planner` takes."""

    def start(position: str = "TRIM_HORIZON", *, parallelism: int = 2, **more: str) -> Query:
        return query_of(lambda: planner(server, position, parallelism=parallelism, **more))

    return start


@pytest.fixture
def patient_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let AvailableNow wait for full micro-batches, however slow the machine is."""
    name = "kinesis_publishers_spark.planning.fetch_session._GATHER_SECONDS"
    monkeypatch.setattr(name, 25.0)
