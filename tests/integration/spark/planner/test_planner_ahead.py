"""While Spark works on a micro-batch of a backlog, the end of the next one is looked for."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from kinesis_publishers.errors import AccessDeniedError
from kinesis_publishers.testing.local_kinesis import Fault, Limits, LocalKinesis
from kinesis_publishers_spark.limits import BatchLimit
from tests.integration.spark.planner.planner_harness import (
    STREAM,
    ShiftedClock,
    eventually,
    options,
    planner_of,
    put,
    read,
    through_the_log,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_publishers_spark.micro_batches import MicroBatches
    from kinesis_publishers_spark.offsets import Offset

LIMIT = BatchLimit(records=200)
DENIED = Fault("GetRecords", "error", code="AccessDeniedException", status=400, times=None)


@pytest.fixture
def server() -> Iterator[LocalKinesis]:
    """A server with a backlog of a minute."""
    clock = ShiftedClock(-60.0)
    with LocalKinesis.in_thread(Limits.off(), clock=clock) as server:
        server.create_stream(STREAM, 2)
        for number in range(50):
            put(server, [f"{number}-{each}" for each in range(40)])
            clock.seconds += 1.0
        clock.seconds = 0.0
        yield server


@pytest.fixture
def planned(server: LocalKinesis) -> Iterator[MicroBatches]:
    """A planner that looks for the ends of ranges."""
    planner = planner_of("ranges", options(server))
    yield planner
    planner.close()


def first_batch(planner: MicroBatches) -> tuple[Offset, Offset]:
    start = end = planner.initial_offset()

    def has_planned() -> bool:
        nonlocal end
        end = planner.latest_offset(start, LIMIT)
        return end != start

    eventually(has_planned, "a first micro-batch")
    return start, end


def wait_for_calls(server: LocalKinesis, count: int) -> None:
    eventually(lambda: len(server.calls("GetRecords")) >= count, f"{count} calls")


def test_the_next_end_is_known_when_spark_asks(server: LocalKinesis, planned: MicroBatches) -> None:
    start, end = first_batch(planned)
    asked = len(server.calls("GetRecords"))
    partitions = planned.partitions(start, end)
    # No task has read yet: one look at each shard.
    wait_for_calls(server, asked + 2)
    following = planned.latest_offset(end, LIMIT)
    assert len(server.calls("GetRecords")) == asked + 2
    rows = [*read(partitions), *read(planned.partitions(end, following))]
    assert len(rows) == len(set(rows)) == 400


def test_a_micro_batch_that_spark_plans_twice_is_looked_beyond_once(
    server: LocalKinesis, planned: MicroBatches
) -> None:
    start, end = first_batch(planned)
    asked = len(server.calls("GetRecords"))
    for _ in range(3):
        planned.partitions(start, end)
    wait_for_calls(server, asked + 2)
    assert planned.latest_offset(end, LIMIT) != end
    assert len(server.calls("GetRecords")) == asked + 2


def test_an_error_that_is_found_ahead_is_that_of_the_next_question(
    server: LocalKinesis, planned: MicroBatches
) -> None:
    start, end = first_batch(planned)
    asked = len(server.calls("GetRecords"))
    server.add_fault(DENIED)
    planned.partitions(start, end)
    wait_for_calls(server, asked + 1)
    server.clear_faults()
    with pytest.raises(AccessDeniedError):
        planned.latest_offset(end, LIMIT)


def test_a_query_that_stops_ends_the_look_ahead(
    server: LocalKinesis, planned: MicroBatches
) -> None:
    start, end = first_batch(planned)
    server.add_fault(Fault("GetRecords", "delay", delay_seconds=3_600.0, times=None))
    planned.partitions(start, end)

    def is_held_back() -> bool:
        with urlopen(f"{server.endpoint_url}/_admin/state") as answer:
            (fault,) = json.load(answer)["faults"]
        return bool(fault["hit_count"])

    eventually(is_held_back, "a call under way")
    planned.close()
    assert not [one for one in threading.enumerate() if one.name == "kinesis-ranges"]


def test_what_was_looked_for_is_forgotten_where_the_query_continues_elsewhere(
    server: LocalKinesis, planned: MicroBatches
) -> None:
    start, end = first_batch(planned)
    asked = len(server.calls("GetRecords"))
    rows = set(read(planned.partitions(start, end)))
    wait_for_calls(server, asked + 2)
    planned.commit(end)
    again = planned.latest_offset(through_the_log(start), BatchLimit(records=300))
    assert rows < set(read(planned.partitions(start, again)))
