"""The calls for one delivery."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers import (
    DeadLetter,
    ErrorPolicy,
    Record,
    RecordBatch,
    RetryOnError,
    ScanResult,
    StopOnError,
)
from kinesis_publishers.errors import SchemaError
from kinesis_publishers.processing.calls import DeliveryCalls
from kinesis_publishers.processing.error_policies import next_step, place_of
from kinesis_publishers.retry import RetryPolicy
from kinesis_publishers.testing.fakes import batch_of, sample_records

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class Batches:
    """A callback for batches that has taken records, and fails for some.

    Attributes:
        calls: how many records each call had.
        taken: the records of the calls that have succeeded.
        aside: those of which each was put aside, alone.
    """

    def __init__(self, *poison: Record, error: type[Exception] = ZeroDivisionError) -> None:
        self._poison, self._error = set(poison), error
        self.calls: list[int] = []
        self.taken: list[Record] = []
        self.aside: list[Record] = []

    def process(self, batch: RecordBatch) -> None:
        self.calls.append(len(batch))
        if self._poison.intersection(batch):
            raise self._error
        self.taken += batch

    def put(self, batch: Record | RecordBatch, _: Exception) -> None:
        assert isinstance(batch, RecordBatch)
        (record,) = batch
        self.aside.append(record)

    def policy(self, retries: int | None = None) -> ErrorPolicy:
        letter = DeadLetter(self.put)
        if retries is None:
            return letter
        at_once = RetryPolicy(max_retries=retries, base_seconds=0.0, max_seconds=0.0, exponent=1.0)
        return RetryOnError(policy=at_once, otherwise=letter)

    def scan(self, batch: RecordBatch, policy: ErrorPolicy) -> DeliveryCalls:
        """Do what a scan does; check that nothing counts as processed before it is."""
        calls, failures, failed_at = calls_of(self.process, batch, per_batch=True), 0, ""
        while not calls.is_done:
            error = calls.run()
            assert calls.processed == len(self.taken) + len(self.aside)
            if error is not None:
                place = place_of(calls.current)
                failures, failed_at = failures + 1 if place == failed_at else 1, place
                step = next_step(policy, error, failures, place, parts=calls.parts)
                if isinstance(step, DeadLetter):
                    step.put_aside(calls.current, error)
                    calls.pass_over()
        return calls


@given(
    flags=st.lists(st.booleans(), min_size=1, max_size=40),
    retries=st.none() | st.integers(0, 2),
)
def test_what_succeeds_is_the_batch_without_its_poison_in_order_and_once(
    flags: list[bool], retries: int | None
) -> None:
    records = RECORDS[: len(flags)]
    poison = [one for one, is_poison in zip(records, flags, strict=True) if is_poison]
    callback = Batches(*poison)
    callback.scan(batch_of(records), callback.policy(retries))
    assert callback.aside == poison
    assert callback.taken == [one for one in records if one not in poison]


def test_retries_are_for_the_batch_and_for_the_record_alone_and_not_for_each_half() -> None:
    callback = Batches(RECORDS[5])
    callback.scan(batch_of(RECORDS[:8]), callback.policy(retries=2))
    assert callback.calls == [8, 8, 8, 4, 4, 2, 1, 1, 1, 1, 2]


def test_a_batch_is_not_divided_if_no_record_is_at_fault() -> None:
    callback = Batches(RECORDS[5], error=SchemaError)
    with pytest.raises(SchemaError):
        callback.scan(batch_of(RECORDS[:8]), callback.policy())
    assert (callback.calls, callback.aside) == ([8], [])


def test_a_stop_comes_after_the_records_that_can_be_recorded() -> None:
    scanned = Batches(RECORDS[5])
    with pytest.raises(ZeroDivisionError) as caught:
        scanned.scan(batch_of(RECORDS[:8]), StopOnError())
    assert scanned.taken == RECORDS[:5]
    assert caught.value.__notes__[0].startswith("It was raised by the callback for 1 records of")


def test_stopping_leaves_the_parts_that_were_not_called_for() -> None:
    calls = calls_of(lambda batch: calls.stop(), batch_of(RECORDS[:8]), per_batch=True)
    assert calls.parts is not None
    calls.parts.divide()
    assert calls.run() is None
    assert (calls.processed, calls.is_done) == (4, False)
