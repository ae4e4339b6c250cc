"""One local server per test, and planners that are closed whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from planner_harness import STREAM, Query, planner

from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def server() -> Iterator[LocalKinesis]:
    """A server without rates, whose stream ``orders`` has two shards."""
    with LocalKinesis.in_thread(Limits.off()) as server:
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
