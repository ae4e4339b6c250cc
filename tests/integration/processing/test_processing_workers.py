"""The threads of a scan, the ends of shards, and how a scan is stopped or refused."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import (
    DeadLetter,
    Record,
    RecordBatch,
    RetryOnError,
    ScanResult,
    scan,
)
from kinesis_publishers.errors import ConfigError
from kinesis_publishers.retry import RetryPolicy
from tests.integration.processing.processing_support import run_program
from tests.integration.processing.scanning_support import (
    Collector,
    fails_at,
    scanned,
    scanned_in_next_run,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers import Shard
    from tests.integration.processing.processing_support import Orders


def test_two_workers_call_for_two_shards_at_once(orders: Orders) -> None:
    orders.put(20)
    both = threading.Barrier(2, timeout=30)
    waited: set[str] = set()
    lock = threading.Lock()
    seen: list[int] = []

    def process(record: Record) -> ScanResult | None:
        if record.shard_id not in waited:
            waited.add(record.shard_id)
            both.wait()
        with lock:
            seen.append(int(record.data))
            return ScanResult.STOP if len(seen) == 20 else None

    scan(orders.properties(), process, workers=2)
    assert sorted(seen) == list(range(20))
    assert scanned_in_next_run(orders) == []


def test_a_failure_in_one_thread_finishes_and_records_the_calls_of_the_others(
    orders: Orders,
) -> None:
    orders.put(20)
    both = threading.Barrier(2, timeout=30)
    has_failed = threading.Event()
    taken: list[int] = []

    def process(record: Record) -> None:
        index = both.wait()
        if index == 0:
            has_failed.set()
            raise ZeroDivisionError
        has_failed.wait(30)
        taken.append(int(record.data))
        both.abort()

    with pytest.raises((ZeroDivisionError, threading.BrokenBarrierError)):
        scan(orders.properties(), process, workers=2)
    assert taken
    assert sorted(scanned_in_next_run(orders)) == sorted(set(range(20)) - set(taken))


def test_sigterm_ends_workers_that_wait(orders: Orders) -> None:
    """None of them has anything to do."""
    orders.put(1)
    printed = run_program(f"""
import os, signal, threading
from kinesis_publishers import scan

killer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM))

def process(record):
    killer.start()

scan({orders.properties()!r}, process, workers=4)
killer.join()
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join(10)
print("ended", threading.active_count())
""")
    assert printed == ("ended 1\n", "")


def test_a_signal_ends_the_wait_before_a_retry(orders: Orders) -> None:
    orders.put(20, key="one shard")
    forever = RetryPolicy(max_retries=3, base_seconds=1e6, max_seconds=1e6, exponent=1.0)
    check = fails_at(7)

    def before(number: int) -> None:
        if number == 7:
            os.kill(os.getpid(), signal.SIGTERM)
        check(number)

    collector = Collector(20, before=before)
    scan(orders.properties(), collector, on_error=RetryOnError(policy=forever))
    assert collector.seen == list(range(7))
    assert scanned(orders, 13) == list(range(7, 20))


def test_as_many_calls_run_at_once_as_there_are_workers(orders: Orders) -> None:
    """However few threads the event loop has for itself."""
    count = 40
    orders.server.create_stream("wide", count)
    orders.server.put_many("wide", [(f"key-{number}", b"") for number in range(600)])
    assert all(orders.server.records("wide").values())
    everybody = threading.Barrier(count, timeout=30)
    properties = {
        **orders.server.properties("wide"),
        "kinesis.stream.initpos": "TRIM_HORIZON",
        "kinesis.shard.getrecords.intervalmillis": "20",
    }

    def process(record: Record) -> ScanResult:
        everybody.wait()
        return ScanResult.STOP

    scan(properties, process, workers=count)
    assert not everybody.broken


def test_one_worker_calls_one_at_a_time_in_a_thread_of_its_own(orders: Orders) -> None:
    orders.put(50)
    running: list[int] = []
    threads: set[bool] = set()

    def check(number: int) -> None:
        running.append(number)
        threads.add(threading.current_thread() is threading.main_thread())
        assert running == [number]
        running.clear()

    scan(orders.properties(), Collector(50, before=check))
    assert threads == {False}


def test_the_hook_comes_behind_the_last_record_of_a_shard(orders: Orders) -> None:
    orders.put(20)
    orders.server.reshard("orders", 1)
    orders.put(5)
    history: list[str] = []

    def on_shard_end(shard: Shard) -> None:
        history.append(f"end of {shard.shard_id}")

    def process(record: Record) -> ScanResult | None:
        history.append(record.shard_id)
        return ScanResult.STOP if record.data == b"24" else None

    scan(orders.properties(), process, workers=3, on_shard_end=on_shard_end)
    ends = [index for index, one in enumerate(history) if one.startswith("end of")]
    assert len(ends) == 2
    assert history[max(ends) + 1 :] == ["shardId-000000000002"] * 5
    stored = orders.stored()
    assert stored["shardId-000000000000"].is_ended
    assert stored["shardId-000000000001"].is_ended


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda p: scan(p, print, workers=0), "workers must be at least 1"),
        (lambda p: scan(p), r"scan\(process=process, stream=...\)"),
        (lambda p: scan(print, stream="orders"), r"scan\(properties, process\)"),
        (lambda p: scan(p, print, on_shard_end=5), "on_shard_end must be callable"),
        (lambda p: scan(p, print, stop=True), "stop must be a threading.Event, not True"),
        (lambda p: scan(p, print, where=coroutine), "where is an async function.*read"),
        (lambda p: scan(p, print, ordered_by="key"), "ordered_by must be one of"),
        (lambda p: scan(p, print, max_records=10), "are for per_batch=True"),
        (lambda p: scan(p, print, max_age=timedelta(hours=1)), "max_age needs an on_error"),
        (lambda p: scan(p, print, on_error=DeadLetter(put_later)), "put of DeadLetter is an async"),
        (lambda p: scan(p, print, on_error=DeadLetter(None)), "put of DeadLetter must be callable"),
        (
            lambda p: scan(p, print, on_error=RetryOnError(otherwise=DeadLetter(put_later))),
            "put of DeadLetter is an async",
        ),
        (lambda p: scan(p, print, on_error=DeadLetter), r"on_error must be StopOnError\(\)"),
        (lambda p: scan({**p, "kinesis.typo": "1"}, print), "kinesis.typo"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_read(
    orders: Orders, call: Callable[[Any], None], problem: str
) -> None:
    with pytest.raises((TypeError, ValueError, ConfigError), match=problem):
        call(orders.properties())
    assert orders.server.calls() == []


async def coroutine(record: Record) -> None:
    raise AssertionError("never called")


async def put_later(record: Record | RecordBatch, error: Exception) -> None:
    raise AssertionError("never called")


def test_a_dead_letter_that_would_have_to_be_awaited_has_not_taken_the_record(
    orders: Orders,
) -> None:
    orders.put(20, key="one shard")
    letter = DeadLetter(lambda record, error: put_later(record, error))
    with pytest.raises(TypeError, match=r"put of DeadLetter for .* returned .*nothing awaits"):
        scan(orders.properties(), Collector(20, before=fails_at(7)), on_error=letter)
    assert scanned(orders, 13) == list(range(7, 20))


def test_a_hook_that_would_have_to_be_awaited_has_not_seen_to_the_end(orders: Orders) -> None:
    orders.put(10, key="one shard")
    orders.server.reshard("orders", 1)
    with pytest.raises(TypeError, match=r"on_shard_end for .* returned"):
        scan(
            orders.properties(),
            Collector(10**9),
            on_shard_end=lambda shard: asyncio.sleep(0),
        )
    assert not all(one.is_ended for one in orders.stored().values())


async def test_scan_is_refused_where_an_event_loop_runs(orders: Orders) -> None:
    with pytest.raises(RuntimeError, match=r"asyncio\.to_thread"):
        scan(orders.properties(), print)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_program_that_handles_a_signal_itself_goes_on_doing_so(
    orders: Orders, number: signal.Signals
) -> None:
    orders.put(20, key="one shard")
    got: list[int] = []

    def handler(one: int, frame: object) -> None:
        got.append(one)

    before = signal.signal(number, handler)
    try:
        kill = Collector(20, before=lambda n: os.kill(os.getpid(), number) if n == 7 else None)
        scan(orders.properties(), kill)
        after = signal.getsignal(number)
    finally:
        signal.signal(number, before)
    assert (got, len(kill.seen), after) == ([number], 20, handler)


def test_a_result_that_means_nothing_is_refused(orders: Orders) -> None:
    orders.put(5, key="one shard")
    with pytest.raises(TypeError, match="returned True; it may return None"):
        scan(orders.properties(), lambda record: True)
    assert scanned(orders, 5) == list(range(5))
