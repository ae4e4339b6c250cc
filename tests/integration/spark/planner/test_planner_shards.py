"""Shards that ``kinesis.shards`` leaves out for some runs: where they stand is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.errors import InvalidOptionError
from tests.integration.spark.planner.planner_harness import (
    FIRST_SHARD,
    STREAM,
    QueryOf,
    pass_a_moment,
    planner,
    put,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from kinesis_publishers_spark.micro_batches import MicroBatches
    from tests.integration.spark.planner.planner_harness import Query, Row


BEGINNINGS = pytest.mark.parametrize("position", ["TRIM_HORIZON", "LATEST"])
BOTH, ONE = "", f"{STREAM}:{FIRST_SHARD}"


@pytest.fixture(params=["auto", "prefetch", "ranges"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def run(server: LocalKinesis, query_of: QueryOf, kind: str) -> Callable[..., Query]:
    """Return a function that starts a query, or lets one go on, with all shards or with some."""

    def start(position: str, shards: str, query: Query | None = None) -> Query:
        more = {"shards": shards} if shards else {}

        def make() -> MicroBatches:
            return planner(server, position, kind=kind, **more)

        if query is None:
            return query_of(make)
        query.restart(make)
        return query

    return start


def of_first(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row[0] == FIRST_SHARD]


@BEGINNINGS
def test_a_run_with_some_shards_leaves_the_others_where_they_are(
    server: LocalKinesis, run: Callable[..., Query], position: str
) -> None:
    older = put(server, [f"older-{number}" for number in range(22)])
    pass_a_moment()
    query = run(position, BOTH)
    query.run_batch()
    expected = put(server, [f"all-{number}" for number in range(40)])
    expected += older if position == "TRIM_HORIZON" else []
    query.run_until(len(expected))
    later = put(server, [f"later-{number}" for number in range(40)])
    run(position, ONE, query)
    query.run_until(len(expected) + len(of_first(later)))
    assert sorted(query.rows) == sorted([*expected, *of_first(later)])
    run(position, BOTH, query)
    query.run_until(len(expected) + len(later))
    query.run_to_the_end()
    assert sorted(query.rows) == sorted([*expected, *later])


@BEGINNINGS
def test_a_query_that_begins_with_some_shards_fixes_where_the_others_begin(
    server: LocalKinesis, run: Callable[..., Query], position: str
) -> None:
    older = put(server, [f"older-{number}" for number in range(20)])
    pass_a_moment()
    older = older if position == "TRIM_HORIZON" else []
    query = run(position, ONE)
    query.run_batch()
    later = put(server, [f"later-{number}" for number in range(20)])
    expected = [*older, *later]
    query.run_until(len(of_first(expected)))
    # Of those that are left out, some end meanwhile, and so does the one that is read.
    server.reshard(STREAM, 3)
    expected += put(server, [f"last-{number}" for number in range(20)])
    run(position, BOTH, query)
    query.run_until(len(expected))
    query.run_to_the_end()
    assert sorted(query.rows) == sorted(expected)


def test_a_shard_that_is_not_there_is_an_error(run: Callable[..., Query]) -> None:
    with pytest.raises(InvalidOptionError, match=r"names orders:shardId-7, which is not there"):
        run("TRIM_HORIZON", f"{ONE},{STREAM}:shardId-7").run_batch()
