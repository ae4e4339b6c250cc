"""The prefetch planner over enhanced fan-out: the same rows, and consumers that come and go."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from kinesis_publishers.errors import AccessDeniedError, ConsumerGuardError, ConsumerNotFoundError
from kinesis_publishers.testing.local_kinesis import Behaviour, Fault, Limits, LocalKinesis
from tests.integration.spark.planner.planner_harness import (
    NO_LIMIT,
    STREAM,
    Query,
    QueryOf,
    eventually,
    planner,
    put,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


FAN_OUT = {
    "stream_recordpublisher": "EFO",
    "stream_efo_consumername": "app",
    # A consumer that has to be waited for is not waited for a second.
    "stream_describestreamconsumer_backoff_base": "50",
    "stream_describestreamconsumer_backoff_max": "50",
    # Without a guard, which is a Python process more to start.
    "stream_efo_deregister": "never",
}
GUARDED = {"stream_efo_deregister": "created"}
# Nothing is registered: the ARN of a consumer is given.
NONE = {"stream_recordpublisher": "EFO", "stream_efo_registration": "NONE"}
_ARN = f"stream_efo_consumerarn_{STREAM}"


@pytest.fixture(autouse=True)
def _leases_and_guards_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield
    for guard in guards():
        guard.kill()


@pytest.fixture
def server() -> Iterator[LocalKinesis]:
    """A server without rates, whose stream ``orders`` has two shards and whose consumers linger."""
    behaviour = Behaviour(consumer_creating_seconds=0.2, heartbeat_seconds=0.2)
    with LocalKinesis.in_thread(Limits.off(), behaviour=behaviour) as server:
        server.create_stream(STREAM, 2)
        yield server


@pytest.fixture
def fan_out(server: LocalKinesis, query_of: QueryOf) -> Callable[..., Query]:
    """Return a function that starts a query by enhanced fan-out."""

    def start(**more: str) -> Query:
        return query_of(lambda: planner(server, **{**FAN_OUT, **more}))

    return start


def consumers(server: LocalKinesis) -> list[str]:
    """Return the names of the consumers that the stream has."""
    return list(server.consumers(STREAM))


def guards() -> list[psutil.Process]:
    """Return the guard processes that this process has started."""
    return [child for child in psutil.Process().children() if is_guard(child)]


def is_guard(process: psutil.Process) -> bool:
    try:
        return "kinesis_publishers.readers.guard" in process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def test_a_restart_replays_by_range_and_without_a_subscription(
    server: LocalKinesis, fan_out: Callable[..., Query]
) -> None:
    query = fan_out()
    put(server, [f"{n}" for n in range(40)])
    query.run_until(40)
    last = query.batches[-1]
    query.restart()
    put(server, ["later"] * 10)
    subscriptions = len(server.calls("SubscribeToShard"))
    assert sorted(query.replay(last)) == sorted(last.rows)
    assert len(server.calls("SubscribeToShard")) == subscriptions
    assert server.calls("GetRecords")
    query.run_until(50)
    assert len(set(query.rows)) == len(query.rows) == 50


def test_each_record_is_there_once_although_the_publisher_changes_on_one_checkpoint(
    server: LocalKinesis, query_of: QueryOf
) -> None:
    publisher: dict[str, str] = {}
    query = query_of(lambda: planner(server, **publisher))
    expected = []
    for number, settings in enumerate([{}, FAN_OUT, {}, FAN_OUT]):
        publisher.clear()
        publisher.update(settings)
        expected += put(server, [f"{number}-{n}" for n in range(20)])
        query.restart()
        query.run_until(len(expected))
        # Heartbeats and empty answers may move what is known of idle shards.
        query.run_batch()
    assert sorted(query.rows) == sorted(expected)


def test_a_consumer_that_was_there_before_is_used_and_stays(
    server: LocalKinesis, fan_out: Callable[..., Query]
) -> None:
    server.register_consumer(STREAM, "app")
    query = fan_out(**GUARDED)
    put(server, ["a"])
    query.run_until(1)
    query.stop()
    eventually(lambda: guards() == [], "the end of the guard")
    assert consumers(server) == ["app"]
    assert server.calls("RegisterStreamConsumer") == []
    assert server.calls("DeregisterStreamConsumer") == []


def test_a_consumer_that_is_deleted_is_registered_again_and_nothing_is_lost(
    server: LocalKinesis, fan_out: Callable[..., Query]
) -> None:
    query = fan_out()
    expected = put(server, [f"{n}" for n in range(20)])
    query.run_until(20)
    server.deregister_consumer(STREAM, "app")
    expected += put(server, [f"{n}" for n in range(20, 40)])
    query.run_until(40)
    assert sorted(query.rows) == sorted(expected)
    assert consumers(server) == ["app"]


def test_with_none_a_deleted_consumer_fails_the_query(
    server: LocalKinesis, query_of: QueryOf
) -> None:
    arn = server.register_consumer(STREAM, "app")
    query = query_of(lambda: planner(server, **NONE, **{_ARN: arn}))
    put(server, ["a"])
    query.run_until(1)
    server.deregister_consumer(STREAM, "app")
    with pytest.raises(ConsumerNotFoundError):
        query.run_until(2)


@pytest.mark.parametrize("operation", ["RegisterStreamConsumer", "SubscribeToShard"])
def test_a_permission_that_is_missing_fails_the_query_with_its_name(
    server: LocalKinesis, fan_out: Callable[..., Query], operation: str
) -> None:
    server.add_fault(Fault(operation, "error", code="AccessDeniedException", times=None))
    query = fan_out()
    put(server, ["a"])
    with pytest.raises(AccessDeniedError, match=f"kinesis:{operation}"):
        query.run_until(1)


def test_a_query_without_its_guard_fails_before_it_registers_anything(
    server: LocalKinesis, fan_out: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    query = fan_out(**GUARDED)
    put(server, ["a"])
    with pytest.raises(ConsumerGuardError, match="cannot be run"):
        query.run_until(1)
    assert consumers(server) == []


def test_available_now_reads_what_there_is_by_subscription_and_ends(
    server: LocalKinesis, fan_out: Callable[..., Query]
) -> None:
    expected = put(server, [f"{n}" for n in range(60)])
    query = fan_out()
    query.run_to_the_end(NO_LIMIT)
    assert sorted(query.rows) == sorted(expected)
    assert server.calls("GetRecords") == []


def test_children_follow_their_parents_also_by_subscription(
    server: LocalKinesis, fan_out: Callable[..., Query]
) -> None:
    query = fan_out()
    expected = put(server, [f"{n}" for n in range(20)])
    query.run_until(20)
    server.reshard(STREAM, 3)
    expected += put(server, [f"{n}" for n in range(20, 40)])
    query.run_until(40)
    assert sorted(query.rows) == sorted(expected)


@pytest.fixture
def ranges(server: LocalKinesis, query_of: QueryOf) -> Query:
    """A query whose tasks read large ranges by enhanced fan-out."""
    return query_of(lambda: planner(server, kind="ranges", **FAN_OUT))


def put_much(server: LocalKinesis) -> list[tuple[str, str, bytes]]:
    """Store as much as makes a subscription worthwhile for the range of either shard."""
    return put(server, [bytes([number]) * 1_000_000 for number in range(40)])


def test_tasks_subscribe_for_large_ranges_with_a_consumer_that_the_driver_has_registered(
    server: LocalKinesis, query_of: QueryOf
) -> None:
    ranges = query_of(lambda: planner(server, kind="ranges", **FAN_OUT | GUARDED))
    expected = put_much(server)
    ranges.run_until(len(expected))
    assert sorted(ranges.rows) == sorted(expected)
    assert server.calls("SubscribeToShard")
    assert len(server.calls("RegisterStreamConsumer")) == 1
    assert consumers(server) == ["app"]
    ranges.stop()
    eventually(lambda: consumers(server) == [], "the end of the consumer")


def test_small_ranges_are_polled(server: LocalKinesis, ranges: Query) -> None:
    expected = put(server, [f"{n}" for n in range(40)])
    ranges.run_until(len(expected))
    assert sorted(ranges.rows) == sorted(expected)
    assert server.calls("SubscribeToShard") == []


def test_tasks_poll_where_the_consumer_is_gone(server: LocalKinesis, ranges: Query) -> None:
    put(server, ["first"])
    ranges.run_until(1)
    server.deregister_consumer(STREAM, "app")
    eventually(lambda: consumers(server) == [], "the end of the consumer")
    expected = put_much(server)
    ranges.run_until(1 + len(expected))
    assert sorted(ranges.rows[1:]) == sorted(expected)
