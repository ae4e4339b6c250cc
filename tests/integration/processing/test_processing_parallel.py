"""Records of one shard that are processed in parallel, and batches as a function wants them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import DeadLetter, RetryOnError, ScanResult, SystemClock, scan
from kinesis_publishers.errors import NotProcessedError
from tests.integration.processing.processing_support import STREAM, numbers
from tests.integration.processing.scanning_support import AT_ONCE, scanned_in_next_run

if TYPE_CHECKING:
    from kinesis_publishers import Record, RecordBatch
    from tests.integration.processing.processing_support import Orders


@pytest.mark.parametrize("is_async", [False, True])
def test_the_records_of_a_key_come_in_order_while_other_keys_go_on(
    orders: Orders, is_async: bool
) -> None:
    """The first record of one key waits until everything else has been processed."""
    orders.put(100)
    order: defaultdict[str, list[int]] = defaultdict(list)
    others = [one for one in range(100) if one % 10 != 3]
    orders.server.put_many(STREAM, [(f"d{one % 10}", b"%d" % (100 + one)) for one in range(100)])
    stop, all_others = threading.Event(), threading.Event()

    def note(record: Record) -> None:
        number = int(record.data)
        order[record.partition_key or ""].append(number)
        if sum(map(len, order.values())) == 200:
            stop.set()
        if sum(len(ones) for key, ones in order.items() if key.startswith("d")) >= len(others):
            all_others.set()

    def process(record: Record) -> None:
        if record.data == b"103":
            assert all_others.wait(30)
        note(record)

    async def process_async(record: Record) -> None:
        if record.data == b"103":
            assert await asyncio.to_thread(all_others.wait, 30)
        note(record)

    function: Any = process_async if is_async else process
    scan(orders.properties(), function, workers=4, ordered_by="partition_key", stop=stop)
    assert {key: ones for key, ones in order.items() if key.startswith("d")} == {
        f"d{digit}": list(range(100 + digit, 200, 10)) for digit in range(10)
    }
    assert scanned_in_next_run(orders) == []


@pytest.mark.parametrize("order", ["partition_key", None])
@pytest.mark.parametrize("end", ["signal", "result"])
def test_a_stop_leaves_no_gap_for_the_next_run(orders: Orders, order: Any, end: str) -> None:
    orders.put(300)
    done: list[int] = []

    def process(record: Record) -> ScanResult | None:
        done.append(int(record.data))
        if len(done) == 77:
            if end == "result":
                return ScanResult.STOP
            os.kill(os.getpid(), signal.SIGTERM)
        return None

    scan(orders.properties(), process, workers=4, ordered_by=order)
    assert 77 <= len(done) < 300
    assert sorted(done + scanned_in_next_run(orders)) == list(range(300))


def test_a_record_that_fails_is_not_covered_by_those_behind_it(orders: Orders) -> None:
    """The error of one key ends the scan; the next run begins with its record."""
    orders.put(1, key="bad")
    orders.put(50, key="one shard")
    others = threading.Event()

    def process(record: Record) -> None:
        if record.partition_key == "bad":
            assert others.wait(30)
            raise ZeroDivisionError
        if record.data == b"40":
            others.set()

    orders.server.reshard(STREAM, 1)
    with pytest.raises(ZeroDivisionError):
        scan(orders.properties(), process, workers=2, ordered_by="partition_key")
    assert 0 in scanned_in_next_run(orders)


def test_a_checkpoint_that_only_the_order_of_a_shard_allows_is_refused(orders: Orders) -> None:
    orders.put(1)
    settings: Any = {"workers": 2, "ordered_by": None}
    with pytest.raises(TypeError, match="SKIP_CHECKPOINT: that needs ordered_by='shard'"):
        scan(orders.properties(), lambda record: ScanResult.SKIP_CHECKPOINT, **settings)
    with pytest.raises(ValueError, match="takes a checkpointer"):
        scan(orders.properties(), lambda record, checkpointer: None, **settings)


def test_records_that_are_left_out_cover_none_that_wait_for_their_checkpoint(
    orders: Orders,
) -> None:
    orders.put(10, key="one shard")

    def process(record: Record) -> ScanResult:
        if record.data == b"8":
            raise ZeroDivisionError
        return ScanResult.SKIP_CHECKPOINT

    with pytest.raises(ZeroDivisionError):
        scan(orders.properties(), process, where=lambda record: int(record.data) % 2 == 0)
    assert scanned_in_next_run(orders) == list(range(10))


def test_a_later_batch_covers_those_that_have_skipped_their_checkpoint(orders: Orders) -> None:
    orders.put(9, key="one shard")
    sizes: list[int] = []

    def process(batch: RecordBatch) -> ScanResult | None:
        sizes.append(len(batch))
        if len(sizes) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
            return None
        return ScanResult.SKIP_CHECKPOINT

    scan(orders.properties(), process, per_batch=True, max_records=3)
    assert sizes == [3, 3, 3]
    assert scanned_in_next_run(orders) == []


@pytest.mark.parametrize("per_batch", [False, True])
def test_workers_hand_shards_over_without_a_repetition(orders: Orders, per_batch: bool) -> None:
    """The first one finishes what lies before a record that has begun, and is asked for shards."""
    count = 2000
    orders.put(count)
    properties = orders.properties(lease_enabled="true", lease_failovermillis="2000")
    seen: dict[str, list[int]] = {"first": [], "second": []}
    stop, lost = threading.Event(), []

    def processing(name: str) -> Any:
        def process(item: Any) -> None:
            some = numbers(item if per_batch else [item])
            with lock:
                seen[name] += some
                done = sum(map(len, seen.values()))
                if done >= 100 and second.ident is None:
                    second.start()
            if done >= count:
                stop.set()
            stop.wait(0.002 * len(some))

        return process

    lock = threading.Lock()
    settings: dict[str, Any] = {"workers": 4, "ordered_by": "partition_key", "stop": stop}
    settings |= {"per_batch": per_batch, "on_shard_lost": lost.append}
    second = threading.Thread(
        target=lambda: scan(properties, processing("second"), **settings), daemon=True
    )
    scan(properties, processing("first"), **settings)
    second.join(30)
    assert sorted(seen["first"] + seen["second"]) == list(range(count))
    assert (lost, bool(seen["second"])) == ([], True)


def test_one_of_many_keys_is_retried_and_put_aside_alone(orders: Orders) -> None:
    orders.put(60)
    letters: list[int] = []
    calls: defaultdict[int, int] = defaultdict(int)
    stop = threading.Event()

    def process(record: Record) -> None:
        number = int(record.data)
        calls[number] += 1
        if number % 20 == 7:
            raise ZeroDivisionError(number)
        if len(calls) == 60:
            stop.set()

    def put(record: Record | RecordBatch, error: Exception) -> None:
        letters.extend(numbers([record]))  # type: ignore[list-item]
        if len(letters) == 3 and len(calls) == 60:
            stop.set()

    policy = RetryOnError(policy=AT_ONCE, otherwise=DeadLetter(put))
    settings = {"workers": 3, "ordered_by": "partition_key", "on_error": policy}
    scan(orders.properties(), process, stop=stop, **settings)
    assert sorted(letters) == [7, 27, 47]
    assert {number for number, count in calls.items() if count == 4} == {7, 27, 47}
    assert scanned_in_next_run(orders) == []


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
def test_a_delivery_begins_before_the_one_before_it_is_processed(
    orders: Orders, publisher: str
) -> None:
    """The last record of a page waits for one of the next page."""
    orders.server.create_stream("wide", 1)
    orders.server.put_many("wide", [(f"key-{one % 100}", b"%d" % one) for one in range(500)])
    properties = {
        **orders.properties(),
        **orders.server.properties("wide"),
        "kinesis.stream.recordpublisher": publisher,
        "kinesis.stream.efo.consumername": "parallel",
        "kinesis.shard.getrecords.maxrecordcount": "250",
    }
    orders.server.put_many("wide", [("late", b"500")])
    next_page, seen = threading.Event(), set()

    def process(record: Record) -> ScanResult | None:
        number = int(record.data)
        if number == 249:
            assert next_page.wait(30)
        elif number >= 250:
            next_page.set()
        seen.add(number)
        return ScanResult.STOP if len(seen) == 501 else None

    scan(properties, process, workers=4, ordered_by="partition_key")
    assert seen == set(range(501))
    orders.server.put_many("wide", [("late", b"501")])
    seen.clear()
    scan(properties, lambda record: seen.add(int(record.data)) or ScanResult.STOP)
    assert seen == {501}


def test_batches_wait_until_they_have_so_many_records(orders: Orders) -> None:
    sizes: list[int] = []
    stop = threading.Event()

    def process(batch: RecordBatch) -> None:
        sizes.append(len(batch))
        if sum(sizes) == 20:
            stop.set()
        else:
            for _ in range(10):
                orders.put(1, key="one shard")

    orders.put(10, key="one shard")
    waits = {"max_records": 10, "max_wait": timedelta(minutes=10)}
    scan(orders.properties(), process, per_batch=True, stop=stop, **waits)
    assert sizes == [10, 10]


@pytest.mark.parametrize("max_wait", [timedelta(0), timedelta(seconds=0.2)])
def test_a_batch_that_stays_small_comes_when_its_wait_is_over(
    orders: Orders, max_wait: timedelta
) -> None:
    orders.put(3, key="one shard")
    sizes: list[int] = []

    def process(batch: RecordBatch) -> ScanResult | None:
        sizes.append(len(batch))
        return ScanResult.STOP if sum(sizes) == 3 else None

    scan(orders.properties(), process, per_batch=True, max_records=10, max_wait=max_wait)
    assert sum(sizes) == 3


def test_a_stop_does_not_wait_for_a_batch_to_fill(orders: Orders) -> None:
    orders.put(3, key="one shard")
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    waits = {"max_records": 10, "max_wait": timedelta(minutes=10)}
    scan(orders.properties(), print, per_batch=True, stop=stop, **waits)
    assert scanned_in_next_run(orders) == [0, 1, 2]


@pytest.mark.parametrize("order", ["shard", None])
def test_records_that_are_returned_as_failed_are_repeated_alone(orders: Orders, order: Any) -> None:
    orders.put(20, key="one shard")
    calls: list[list[int]] = []
    letters: list[tuple[list[int], str]] = []
    stop = threading.Event()

    def process(batch: RecordBatch) -> list[Record]:
        calls.append(numbers(batch))
        return [one for one in batch if int(one.data) in {3, 11} and len(calls) < 6]

    def put(batch: Any, error: Exception) -> None:
        assert isinstance(error, NotProcessedError)
        letters.append((numbers(batch), str(error)))
        stop.set()

    policy = RetryOnError(policy=AT_ONCE, otherwise=DeadLetter(put))
    scan(orders.properties(), process, per_batch=True, ordered_by=order, on_error=policy, stop=stop)
    assert calls == [list(range(20)), [3, 11], [3, 11], [3, 11]]
    assert letters == [([3, 11], "2 of 2 records were returned as failed")]
    assert scanned_in_next_run(orders) == []


def test_the_next_run_begins_with_the_first_record_that_failed(orders: Orders) -> None:
    orders.put(20, key="one shard")

    def process(batch: RecordBatch) -> list[Record]:
        return [one for one in batch if int(one.data) in {3, 11}]

    with pytest.raises(NotProcessedError, match="2 of 20 records"):
        scan(orders.properties(), process, per_batch=True)
    assert scanned_in_next_run(orders) == list(range(3, 20))


@pytest.mark.parametrize("per_batch", [False, True])
def test_a_filter_leaves_records_out(orders: Orders, per_batch: bool) -> None:
    orders.put(20, key="one shard")
    seen: list[int] = []

    def process(item: Any) -> ScanResult | None:
        seen.extend(numbers(item if per_batch else [item]))
        return ScanResult.STOP if 18 in seen else None

    def is_even(record: Record) -> bool:
        return int(record.data) % 2 == 0

    scan(orders.properties(), process, where=is_even, per_batch=per_batch)
    assert seen == list(range(0, 20, 2))
    assert scanned_in_next_run(orders) == ([] if per_batch else [19])


class LaterClock(SystemClock):
    """Two hours ahead."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=2)


@pytest.mark.parametrize("per_batch", [False, True])
def test_records_that_are_too_old_go_to_the_policy_at_once(orders: Orders, per_batch: bool) -> None:
    orders.put(10, key="one shard")
    letters: list[int] = []
    stop = threading.Event()

    def put(item: Any, error: Exception) -> None:
        letters.extend(numbers(item if per_batch else [item]))
        assert isinstance(error, NotProcessedError)
        assert error.is_too_old
        if 9 in letters:
            stop.set()

    scan(
        orders.properties(),
        pytest.fail,
        max_age=timedelta(hours=1),
        on_error=RetryOnError(otherwise=DeadLetter(put)),
        per_batch=per_batch,
        stop=stop,
        clock=LaterClock(),
    )
    assert letters == list(range(10))
