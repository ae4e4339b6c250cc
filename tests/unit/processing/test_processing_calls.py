"""The calls for one delivery."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from attrs import evolve

from kinesis_publishers import ScanResult
from kinesis_publishers.processing.calls import DeliveryCalls
from kinesis_publishers.testing.fakes import batch_of, sample_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_publishers import Record, RecordBatch

RECORDS = sample_records(200)


class CountedPayloads(list[bytes]):
    """A column that counts how many of its values were looked at."""

    looks = 0

    def __iter__(self) -> Iterator[bytes]:
        for one in super().__iter__():
            self.looks += 1
            yield one


def calls_of(process: object, batch: RecordBatch, *, per_batch: bool = False) -> DeliveryCalls:
    return DeliveryCalls(process, batch, per_batch)


def test_going_on_after_a_failure_does_not_look_for_the_place_again():
    payloads = CountedPayloads(one.data for one in RECORDS)
    batch = evolve(batch_of(RECORDS), payloads=payloads)
    payloads.looks = 0

    def process(record: Record) -> None:
        raise ZeroDivisionError

    calls, aside = calls_of(process, batch), []
    while not calls.is_done:
        assert isinstance(calls.run(), ZeroDivisionError)
        aside.append(calls.current)
        calls.pass_over()
    assert aside == RECORDS
    assert payloads.looks == len(RECORDS)


def test_a_record_that_failed_is_the_next_one_again():
    attempts = itertools.count()
    seen: list[Record] = []

    def process(record: Record) -> None:
        seen.append(record)
        if next(attempts) == 1:
            raise ZeroDivisionError

    calls = calls_of(process, batch_of(RECORDS[:3]))
    assert isinstance(calls.run(), ZeroDivisionError)
    assert (calls.taken, calls.processed, calls.current) == (1, 1, RECORDS[1])
    assert calls.run() is None
    assert seen == [RECORDS[0], RECORDS[1], RECORDS[1], RECORDS[2]]
    assert calls.is_done


def test_a_batch_is_one_call():
    seen: list[RecordBatch] = []
    batch = batch_of(RECORDS[:3])
    calls = calls_of(lambda one: seen.append(one), batch, per_batch=True)
    assert calls.run() is None
    assert (seen, calls.is_done, calls.processed) == ([batch], True, 3)


def test_what_skips_its_checkpoint_is_taken_and_not_processed():
    results = iter([None, ScanResult.SKIP_CHECKPOINT, ScanResult.SKIP_CHECKPOINT])
    calls = calls_of(lambda record: next(results), batch_of(RECORDS[:3]))
    assert calls.run() is None
    assert (calls.taken, calls.processed) == (3, 1)


def test_a_stop_ends_the_calls_behind_the_record():
    results = iter([ScanResult.SKIP_CHECKPOINT, ScanResult.STOP])
    calls = calls_of(lambda record: next(results), batch_of(RECORDS[:5]))
    assert calls.run() is None
    assert (calls.taken, calls.processed, calls.wants_no_more) == (2, 2, True)
