"""One local server per test, and planners that are closed whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from planner_harness import STREAM, Query, planner

from kinesis_publishers.testing.local_kinesis import Behaviour, Limits, LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
def start_query(server: LocalKinesis) -> Iterator[Callable[..., Query]]:
    """Return a function that starts a query; it takes what :func:`planner` takes."""
    queries: list[Query] = []

    def start(position: str = "TRIM_HORIZON", *, parallelism: int = 2, **more: str) -> Query:
        query = Query(lambda: planner(server, position, parallelism=parallelism, **more))
        queries.append(query)
        return query

    yield start
    for query in queries:
        query.stop()
