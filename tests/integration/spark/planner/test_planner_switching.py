"""What one planner has written, the other goes on with: also a micro-batch without a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers_spark.limits import BatchLimit
from tests.integration.spark.planner.planner_harness import (
    BOTH_ENDS,
    STREAM,
    QueryOf,
    eventually,
    planner,
    put,
    wait_for_buffered,
)
from tests.integration.spark.planner.stream_ledger import StreamLedger, places

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

BOTH_WAYS = pytest.mark.parametrize(
    ("before", "after"),
    [("prefetch", "ranges"), ("ranges", "prefetch")],
    ids=["to ranges", "to prefetch"],
)


@BOTH_ENDS
@BOTH_WAYS
@pytest.mark.parametrize("position", ["TRIM_HORIZON", "LATEST"])
def test_the_other_planner_repeats_the_last_batch_and_goes_on(
    server: LocalKinesis, query_of: QueryOf, before: str, after: str, position: str
) -> None:
    ledger = StreamLedger(server, STREAM)
    query = query_of(lambda: planner(server, position, kind=before))
    query.run_batch()
    ledger.put(40)
    query.run_until(20, BatchLimit(records=11))
    server.reshard(STREAM, 3)
    ledger.put(40)
    query.restart(lambda: planner(server, position, kind=after))
    rows = sorted(query.batches[-1].rows)
    query.replay_last()
    assert sorted(query.batches[-1].rows) == rows
    query.run_until(60, BatchLimit(records=11))
    query.restart(lambda: planner(server, position, kind=before))
    query.replay_last()
    query.run_until(80)
    for batch in query.batches:
        ledger.assert_is_between(batch.start, batch.end, places(batch))
    ledger.assert_in_order_per_key(map(places, query.batches))
    assert len({row for batch in query.batches for row in batch.rows}) == 80


@pytest.mark.parametrize("before", ["prefetch", "ranges"])
@pytest.mark.parametrize("after", ["prefetch", "ranges"])
def test_the_first_batch_is_repeated_by_any_planner_although_its_start_is_pinned_anew(
    server: LocalKinesis, query_of: QueryOf, before: str, after: str
) -> None:
    query = query_of(lambda: planner(server, "LATEST", kind=before))
    query.planner.initial_offset()
    expected = put(server, ["a", "b", "c"])

    def has_read() -> bool:
        return query.run_batch() and bool(query.rows)

    if before == "prefetch":
        wait_for_buffered(query.planner, 3)
    eventually(has_read, "a first micro-batch with records")
    rows = sorted(query.rows)
    query.restart(lambda: planner(server, "LATEST", kind=after))
    # Spark does not keep the start of the first batch, it asks for it again.
    assert query.planner.initial_offset() != query.batches[0].start
    query.replay_last()
    assert sorted(query.rows) == rows
    query.run_until(3)
    assert sorted(query.rows) == sorted(expected)


@BOTH_ENDS
@BOTH_WAYS
def test_an_end_that_one_planner_has_written_is_the_end_for_the_other(
    server: LocalKinesis, query_of: QueryOf, before: str, after: str
) -> None:
    ledger = StreamLedger(server, STREAM)
    ledger.put(20)
    query = query_of(lambda: planner(server, kind=before))
    query.run_until(20)
    server.reshard(STREAM, 1)

    def knows_the_ends() -> bool:
        query.run_batch()
        return sum(one.progress.is_ended for one in query.last.shards.values()) >= 2

    eventually(knows_the_ends, "both ends in the offset")
    query.restart(lambda: planner(server, kind=after))
    asked = len(server.calls("GetShardIterator"))
    ledger.put(5)
    query.run_until(25)
    assert {call.shard_id for call in server.calls("GetShardIterator")[asked:]}.isdisjoint(
        {"shardId-000000000000", "shardId-000000000001"}
    )
    ledger.assert_in_order_per_key(map(places, query.batches))


@BOTH_ENDS
def test_auto_takes_turns_and_each_record_comes_once(
    server: LocalKinesis, query_of: QueryOf
) -> None:
    ledger = StreamLedger(server, STREAM)
    # Half of it is what a few records have, and an eighth is one.
    small = {"pending_maxbytes": "200", "pending_maxrecords": "16"}
    query = query_of(lambda: planner(server, kind="auto", **small))
    planned: list[str] = []

    def read_until(count: int) -> None:
        def has_enough() -> bool:
            if query.run_batch():
                planned.append(query.planner.planner)
            return len(query.rows) >= count

        eventually(has_enough, f"{count} rows")

    for number in range(1, 4):
        ledger.put(60)
        server.reshard(STREAM, 1 + number)
        ledger.put(60)
        read_until(120 * number)
        eventually(lambda: not query.run_batch() and query.planner.planner == "prefetch", "the tip")
    for batch in query.batches:
        ledger.assert_is_between(batch.start, batch.end, places(batch))
    ledger.assert_in_order_per_key(map(places, query.batches))
    assert len({row for batch in query.batches for row in batch.rows}) == 360
    turns = [one for one, before in zip(planned, ["", *planned], strict=False) if one != before]
    assert turns[:4] == ["ranges", "prefetch", "ranges", "prefetch"]
