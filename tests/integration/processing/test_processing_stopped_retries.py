"""What a stop, a filter or a wrong result means for the records that an error policy has."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import Checkpointing, DeadLetter, RetryOnError, scan
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.retry import RetryPolicy
from tests.integration.processing.processing_support import numbers
from tests.integration.processing.scanning_support import scanned_in_next_run

if TYPE_CHECKING:
    from kinesis_publishers import Record, RecordBatch
    from tests.integration.processing.processing_support import Orders

_SLOWLY = RetryPolicy(max_retries=2, base_seconds=0.3, max_seconds=0.3, exponent=1.0)


@pytest.mark.parametrize("ordered_by", ["partition_key", None])
def test_a_stop_waits_for_the_retries_of_a_record_before_those_that_are_done(
    orders: Orders, ordered_by: str | None
) -> None:
    """Otherwise the next run would repeat everything behind it."""
    orders.put(100)
    letters: list[Record] = []
    done: list[int] = []
    stop = threading.Event()

    def process(record: Record) -> None:
        if record.data == b"3":
            raise ZeroDivisionError
        done.append(int(record.data))
        if len(done) == 99:
            stop.set()

    policy = RetryOnError(policy=_SLOWLY, otherwise=DeadLetter(lambda one, _: letters.append(one)))
    settings = {"workers": 8, "ordered_by": ordered_by, "on_error": policy}
    scan(orders.properties(), process, stop=stop, **settings)
    assert (sorted(done), numbers(letters)) == ([n for n in range(100) if n != 3], [3])
    assert scanned_in_next_run(orders) == []


def test_a_stop_waits_for_the_retries_of_records_that_were_returned_as_failed(
    orders: Orders,
) -> None:
    orders.put(50, key="one shard")
    letters: list[RecordBatch] = []
    calls: list[list[int]] = []
    stop = threading.Event()

    def process(batch: RecordBatch) -> list[Record]:
        calls.append(numbers(batch))
        stop.set()
        return [record for record in batch if record.data == b"3"]

    policy = RetryOnError(policy=_SLOWLY, otherwise=DeadLetter(lambda one, _: letters.append(one)))
    scan(orders.properties(), process, stop=stop, per_batch=True, on_error=policy)
    assert calls == [list(range(50)), [3], [3]]
    assert [numbers(one) for one in letters] == [[3]]
    assert scanned_in_next_run(orders) == []


def test_a_stop_leaves_a_record_that_none_follows_to_the_next_run(orders: Orders) -> None:
    orders.put(10, key="one shard")
    stop = threading.Event()

    def process(record: Record) -> None:
        if record.data == b"3":
            stop.set()
            raise ZeroDivisionError

    forever = RetryPolicy(max_retries=9, base_seconds=1e6, max_seconds=1e6, exponent=1.0)
    scan(orders.properties(), process, stop=stop, on_error=RetryOnError(policy=forever))
    assert scanned_in_next_run(orders) == list(range(3, 10))


@pytest.mark.parametrize("result", [{"batchItemFailures": []}, ["495"], [0], True])
def test_a_wrong_result_ends_a_scan_under_every_policy(orders: Orders, result: object) -> None:
    """It says nothing about the records."""
    orders.put(10, key="one shard")
    letters: list[object] = []
    calls: list[RecordBatch] = []

    def process(batch: RecordBatch) -> Any:
        calls.append(batch)
        return result

    policy = RetryOnError(otherwise=DeadLetter(lambda one, _: letters.append(one)))
    with pytest.raises(TypeError, match="the callback returned"):
        scan(orders.properties(), process, per_batch=True, on_error=policy)
    assert (len(calls), letters) == (1, [])
    assert scanned_in_next_run(orders) == list(range(10))


@pytest.mark.parametrize("per_batch", [False, True])
def test_records_that_the_filter_leaves_out_are_never_too_old(
    orders: Orders, *, per_batch: bool
) -> None:
    orders.put(10, key="one shard")
    letters: list[int] = []
    stop = threading.Event()

    def put(one: Record | RecordBatch, _: Exception) -> None:
        letters.extend(numbers(one if per_batch else [one]))  # type: ignore[arg-type,list-item]
        if len(letters) == 5:
            stop.set()

    scan(
        orders.properties(),
        lambda _: None,
        where=lambda record: int(record.data) % 2 == 0,
        max_age=timedelta(seconds=-60),
        per_batch=per_batch,
        on_error=DeadLetter(put),
        stop=stop,
    )
    assert letters == [0, 2, 4, 6, 8]
    assert set(scanned_in_next_run(orders)) <= {9}


def test_records_that_were_recorded_as_processed_cannot_be_returned_as_failed(
    orders: Orders,
) -> None:
    """The next run would not read them: the error says so under every policy."""
    orders.put(5, key="one shard")
    stop = threading.Event()

    def process(batch: RecordBatch, checkpointer: Checkpointing) -> list[Record]:
        checkpointer.stage()
        stop.set()
        return [record for record in batch if record.data == b"3"]

    policy = RetryOnError(otherwise=DeadLetter(lambda *_: None))
    with pytest.raises(CheckpointError, match="as failed, after it had recorded them"):
        scan(orders.properties(), process, stop=stop, per_batch=True, on_error=policy)


@pytest.mark.parametrize("name", ["max_age", "max_wait"])
def test_times_are_timedeltas(orders: Orders, name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a timedelta, not 5"):
        scan(orders.properties(), print, **{name: 5})  # type: ignore[arg-type]
