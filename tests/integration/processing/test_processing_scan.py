"""``scan(properties, process)``: a call for each record, and what follows when one fails."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field
from processing_support import Orders, numbers

from kinesis_publishers import (
    DeadLetter,
    Record,
    RecordBatch,
    RetryOnError,
    ScanResult,
    scan,
)
from kinesis_publishers.errors import ConfigError, StaleCheckpointError
from kinesis_publishers.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers import Shard

AT_ONCE = RetryPolicy(max_retries=3, base_seconds=0.0, max_seconds=0.0, exponent=1.0)


@define
class Collector:
    """A callback that remembers its records and stops after so many."""

    most: int
    seen: list[int] = field(factory=list, init=False)
    before: Callable[[int], ScanResult | None] = field(default=lambda number: None, kw_only=True)

    def __call__(self, record: Record) -> ScanResult | None:
        number = int(record.data)
        result = self.before(number)
        self.seen.append(number)
        return ScanResult.STOP if len(self.seen) == self.most else result


def scanned(orders: Orders, most: int, **settings: Any) -> list[int]:
    """Scan until ``most`` records have been seen; return their numbers."""
    collector = Collector(most)
    scan(orders.properties(), collector, **settings)
    return collector.seen


def fails_at(number: int, times: int = 10**9) -> Callable[[int], None]:
    """Return what raises for one record, so many times."""
    left = [times]

    def check(current: int) -> None:
        if current == number and left[0]:
            left[0] -= 1
            raise ZeroDivisionError(f"for {number}")

    return check


def test_every_record_is_called_for_once_and_in_order(orders: Orders) -> None:
    expected = orders.put(100)
    seen = scanned(orders, 100)
    assert sorted(seen) == expected
    assert scanned_in_next_run(orders) == []


def scanned_in_next_run(orders: Orders) -> list[int]:
    """Return what the next run begins with, before a record that is put now."""
    (mark,) = orders.put(1)
    seen: list[int] = []

    def process(record: Record) -> ScanResult | None:
        seen.append(int(record.data))
        return ScanResult.STOP if seen[-1] == mark else None

    scan(orders.properties(), process)
    return seen[:-1]


def test_stopping_inside_a_delivery_loses_and_repeats_nothing(orders: Orders) -> None:
    orders.put(50, key="one shard")
    seen = [number for most in (1, 20, 29) for number in scanned(orders, most)]
    assert seen == list(range(50))


def test_a_batch_is_called_for_at_once(orders: Orders) -> None:
    orders.put(30, key="one shard")
    batches: list[RecordBatch] = []

    def process(batch: RecordBatch) -> ScanResult | None:
        batches.append(batch)
        return ScanResult.STOP if sum(map(len, batches)) == 30 else None

    scan(orders.properties(shard_getrecords_maxrecordcount="10"), process, per_batch=True)
    assert [len(batch) for batch in batches] == [10, 10, 10]
    assert [n for batch in batches for n in numbers(batch)] == list(range(30))


def test_what_skips_its_checkpoint_is_read_again_by_the_next_run(orders: Orders) -> None:
    orders.put(20, key="one shard")
    skip = Collector(20, before=lambda n: ScanResult.SKIP_CHECKPOINT if n >= 12 else None)
    skip.most = 10**9

    def process(record: Record) -> ScanResult | None:
        result = skip(record)
        if len(skip.seen) == 20:
            os.kill(os.getpid(), signal.SIGTERM)
        return result

    scan(orders.properties(), process)
    assert skip.seen == list(range(20))
    assert scanned(orders, 8) == list(range(12, 20))


def test_a_later_record_covers_those_that_skipped_their_checkpoints(orders: Orders) -> None:
    orders.put(20, key="one shard")
    flushed = Collector(20, before=lambda n: None if n % 10 == 9 else ScanResult.SKIP_CHECKPOINT)
    scan(orders.properties(), flushed)
    assert scanned_in_next_run(orders) == []


@pytest.mark.parametrize("has_hook", [False, True])
def test_the_end_of_a_shard_covers_what_skipped_its_checkpoint_if_a_hook_is_told(
    orders: Orders, has_hook: bool
) -> None:
    orders.put(10, key="one shard")
    orders.server.reshard("orders", 1)
    (last,) = orders.put(1)
    settings = {"on_shard_end": lambda shard: None} if has_hook else {}

    def process(record: Record) -> ScanResult | None:
        if int(record.data) == last:
            return ScanResult.STOP
        return ScanResult.SKIP_CHECKPOINT if int(record.data) >= 6 else None

    scan(orders.properties(), process, **settings)
    assert scanned_in_next_run(orders) == ([] if has_hook else [6, 7, 8, 9])


def test_by_default_a_failure_stops_and_its_record_is_read_again(orders: Orders) -> None:
    orders.put(20, key="one shard")
    collector = Collector(20, before=fails_at(7))
    with pytest.raises(ZeroDivisionError, match="for 7") as caught:
        scan(orders.properties(), collector)
    assert collector.seen == list(range(7))
    (note,) = caught.value.__notes__
    assert note.startswith("It was raised by the callback for record ")
    assert "orders/shardId-" in note
    assert scanned(orders, 13) == list(range(7, 20))


def test_a_call_that_fails_is_made_again_before_the_next_record(orders: Orders) -> None:
    orders.put(20, key="one shard")
    calls: list[int] = []
    check = fails_at(7, times=3)

    def process(record: Record) -> ScanResult | None:
        calls.append(int(record.data))
        check(calls[-1])
        return ScanResult.STOP if calls[-1] == 19 else None

    scan(orders.properties(), process, on_error=RetryOnError(policy=AT_ONCE))
    assert calls == [*range(7), 7, 7, 7, *range(7, 20)]


def test_retries_that_are_used_up_stop(orders: Orders) -> None:
    orders.put(20, key="one shard")
    collector = Collector(20, before=fails_at(7))
    with pytest.raises(ZeroDivisionError):
        scan(orders.properties(), collector, on_error=RetryOnError(policy=AT_ONCE))
    assert scanned(orders, 13) == list(range(7, 20))


@pytest.mark.parametrize("with_retries", [False, True])
def test_a_dead_letter_takes_the_record_and_reading_goes_on(
    orders: Orders, with_retries: bool
) -> None:
    orders.put(20, key="one shard")
    letters: list[tuple[int, str]] = []

    def put(record: Record | RecordBatch, error: Exception) -> None:
        assert isinstance(record, Record)
        letters.append((int(record.data), str(error)))

    policy: Any = DeadLetter(put)
    if with_retries:
        policy = RetryOnError(policy=AT_ONCE, otherwise=policy)
    collector = Collector(19, before=fails_at(7))
    scan(orders.properties(), collector, on_error=policy)
    assert letters == [(7, "for 7")]
    assert collector.seen == [n for n in range(20) if n != 7]
    assert scanned_in_next_run(orders) == []


def test_a_dead_letter_at_the_end_of_a_delivery_is_recorded(orders: Orders) -> None:
    orders.put(10, key="one shard")
    done = threading.Event()

    def put(record: Record | RecordBatch, error: Exception) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        done.set()

    collector = Collector(10, before=fails_at(9))
    scan(orders.properties(), collector, on_error=DeadLetter(put))
    assert done.is_set()
    assert scanned_in_next_run(orders) == []


def test_a_dead_letter_that_fails_stops(orders: Orders) -> None:
    orders.put(20, key="one shard")

    def put(record: Record | RecordBatch, error: Exception) -> None:
        raise OSError("the queue is down")

    with pytest.raises(OSError, match="the queue is down"):
        scan(orders.properties(), Collector(20, before=fails_at(7)), on_error=DeadLetter(put))
    assert scanned(orders, 13) == list(range(7, 20))


def test_a_whole_batch_is_put_aside(orders: Orders) -> None:
    orders.put(20, key="one shard")
    letters: list[int] = []
    seen: list[int] = []

    def process(batch: RecordBatch) -> ScanResult | None:
        if 7 in numbers(batch):
            raise ZeroDivisionError
        seen.extend(numbers(batch))
        return ScanResult.STOP if seen[-1] == 19 else None

    scan(
        orders.properties(shard_getrecords_maxrecordcount="5"),
        process,
        per_batch=True,
        on_error=DeadLetter(lambda batch, error: letters.extend(numbers(batch))),
    )
    assert (letters, seen) == ([5, 6, 7, 8, 9], [*range(5), *range(10, 20)])


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
    program = f"""
import os, signal, threading
from kinesis_publishers import scan

def process(record):
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()

scan({orders.properties()!r}, process, workers=4)
print("ended", threading.active_count())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "ended 1\n"
    assert done.stderr == ""


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


def test_a_hook_that_fails_stops_and_the_shard_is_not_ended(orders: Orders) -> None:
    orders.put(20)
    orders.server.reshard("orders", 1)

    def on_shard_end(shard: Shard) -> None:
        raise OSError("the archive is down")

    with pytest.raises(OSError, match="the archive is down"):
        scan(orders.properties(), Collector(10**9), on_shard_end=on_shard_end)
    stored = orders.stored()
    assert not all(one.is_ended for one in stored.values())
    assert scanned_in_next_run(orders) == []


def test_a_second_reader_of_the_same_application_is_refused(orders: Orders) -> None:
    orders.put(20, key="one shard")

    def process(record: Record) -> ScanResult | None:
        if int(record.data) == 0:
            scanned(orders, 20)
        return None

    with pytest.raises(StaleCheckpointError):
        scan(orders.properties(checkpoint_intervalmillis="10"), process)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda p: scan(p, print, workers=0), "workers must be at least 1"),
        (lambda p: scan(p, None), "process must be callable"),
        (lambda p: scan(p, print, on_shard_end=5), "on_shard_end must be callable"),
        (lambda p: scan(p, coroutine), "is an async function.*read"),
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
    with pytest.raises(TypeError, match=r"put of DeadLetter returned .*which nobody awaits"):
        scan(orders.properties(), Collector(20, before=fails_at(7)), on_error=letter)
    assert scanned(orders, 13) == list(range(7, 20))


def test_a_hook_that_would_have_to_be_awaited_has_not_seen_to_the_end(orders: Orders) -> None:
    orders.put(10, key="one shard")
    orders.server.reshard("orders", 1)
    with pytest.raises(TypeError, match="on_shard_end returned"):
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


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"]
)
def test_a_signal_finishes_the_call_and_writes_its_checkpoint(
    orders: Orders, number: signal.Signals, code: int
) -> None:
    """In a process of its own: the signal comes while a record is being processed."""
    orders.put(20, key="one shard")
    program = f"""
import signal, sys, threading
from kinesis_publishers import scan

def process(record):
    if record.data == b"7":
        handler = signal.getsignal({int(number)})
        print("here", flush=True)
        # It is handled once, and the handler is gone then.
        while signal.getsignal({int(number)}) is handler:
            threading.Event().wait(0.01)
    print("done", record.data.decode(), flush=True)

try:
    scan({orders.properties()!r}, process)
except KeyboardInterrupt:
    sys.exit(130)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        lines = iter(child.stdout.readline, "")
        before = list(takewhile(lambda line: line != "here\n", lines))
        child.send_signal(number)
        rest, _ = child.communicate(timeout=60)
        assert child.returncode == code
    done = [int(line.split()[1]) for line in (*before, *rest.splitlines())]
    assert done == list(range(len(done)))
    assert 8 <= len(done) < 20
    assert scanned(orders, 20 - len(done)) == list(range(len(done), 20))
