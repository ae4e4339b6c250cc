"""``scan(properties, process)``: a call for each record, and what follows when one fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest

from kinesis_publishers import (
    DeadLetter,
    Record,
    RecordBatch,
    ScanResult,
    scan,
)
from tests.integration.processing.processing_support import Orders, numbers
from tests.integration.processing.scanning_support import (
    Collector,
    fails_at,
    scanned,
    scanned_in_next_run,
)


def test_stopping_inside_a_delivery_loses_and_repeats_nothing(orders: Orders) -> None:
    orders.put(50, key="one shard")
    seen = [number for most in (1, 20, 29) for number in scanned(orders, most)]
    assert seen == list(range(50))


@pytest.mark.usefixtures("page_by_page")
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


@pytest.mark.parametrize(
    ("poison", "is_aggregated"), [([7], False), ([0, 19], False), ([3, 4, 12], True)]
)
def test_of_a_batch_that_fails_only_the_poison_is_put_aside(
    orders: Orders, poison: list[int], is_aggregated: bool
) -> None:
    orders.put(20, key="one shard", is_aggregated=is_aggregated)
    letters: list[int] = []
    seen: list[int] = []
    stop = threading.Event()

    def stop_at_end(records: RecordBatch, into: list[int]) -> None:
        into.extend(numbers(records))
        if into[-1] == 19:
            stop.set()

    def process(batch: RecordBatch) -> None:
        if set(poison) & set(numbers(batch)):
            raise ZeroDivisionError
        stop_at_end(batch, seen)

    letter = DeadLetter(lambda batch, error: stop_at_end(batch, letters))
    scan(orders.properties(), process, per_batch=True, on_error=letter, stop=stop)
    assert (letters, seen) == (poison, [n for n in range(20) if n not in poison])
    assert scanned_in_next_run(orders) == []


@pytest.mark.parametrize(
    ("end", "is_aggregated"), [("error", False), ("result", True), ("signal", False)]
)
def test_what_ends_a_scan_in_a_divided_batch_leaves_the_rest_to_the_next_run(
    orders: Orders, end: str, is_aggregated: bool
) -> None:
    orders.put(20, key="one shard", is_aggregated=is_aggregated)
    done: list[int] = []

    def process(batch: RecordBatch) -> ScanResult | None:
        if len(batch) == 20 or (end == "error" and 7 in numbers(batch)):
            raise ZeroDivisionError
        done.extend(numbers(batch))
        if end == "signal" and len(done) == len(batch):
            os.kill(os.getpid(), signal.SIGTERM)
        return ScanResult.STOP if end == "result" else None

    with pytest.raises(ZeroDivisionError) if end == "error" else nullcontext():
        scan(orders.properties(), process, per_batch=True)
    # A signal may come too late for the parts that are left.
    assert 0 < len(done) < (21 if end == "signal" else 20)
    assert done + scanned_in_next_run(orders) == list(range(20))


def test_a_kill_in_a_divided_batch_loses_nothing(orders: Orders) -> None:
    orders.put(20, key="one shard")
    code = f"""
import os, signal
from kinesis_publishers import scan

def process(batch):
    numbers = [int(data) for data in batch.payloads]
    if 7 in numbers:
        raise ZeroDivisionError
    print(*numbers, flush=True)
    if 19 in numbers:
        os.kill(os.getpid(), signal.SIGKILL)

from kinesis_publishers import DeadLetter
scan({orders.properties()!r}, process, per_batch=True, on_error=DeadLetter(lambda *_: None))
"""
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert [int(one) for one in killed.stdout.split()] == [n for n in range(20) if n != 7]
    # What had not been recorded yet comes again, the poison with it.
    (first, *rest) = scanned_in_next_run(orders)
    assert [first, *rest] == list(range(first, 20))
