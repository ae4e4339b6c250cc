"""What follows when a callback raises: the same policies for records and for batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import (
    DeadLetter,
    ErrorPolicy,
    Record,
    RecordBatch,
    RetryOnError,
    ScanResult,
    scan,
)
from tests.integration.processing.scanning_support import AT_ONCE, scanned_in_next_run

if TYPE_CHECKING:
    from tests.integration.processing.processing_support import Orders

pytestmark = pytest.mark.usefixtures("page_by_page")

_BAD, _LAST = 2, 4


class Orderly:
    """Takes numbers one by one; raises for one of them, so many times.

    Attributes:
        place: what an error names.
        seen: the numbers that it has taken.
    """

    place: str

    def __init__(self, failures: int = 10**9) -> None:
        self._failures = failures
        self.seen: list[int] = []

    def take(self, number: int) -> None:
        if number == _BAD and self._failures:
            self._failures -= 1
            raise ZeroDivisionError(f"for {number}")
        self.seen.append(number)

    def run(self, orders: Orders, policy: ErrorPolicy | None = None) -> list[int]:
        """Read to the last number; return what it has taken."""
        raise NotImplementedError


class Scanned(Orderly):
    """Gets all of them in one delivery."""

    place = "record "

    def run(self, orders: Orders, policy: ErrorPolicy | None = None) -> list[int]:
        def process(record: Record) -> ScanResult | None:
            self.take(int(record.data))
            return ScanResult.STOP if self.seen[-1] == _LAST else None

        scan(orders.properties(), process, on_error=policy)
        return self.seen


class Batched(Orderly):
    """Gets batches of one record."""

    place = "1 records of orders/shardId-"

    def run(self, orders: Orders, policy: ErrorPolicy | None = None) -> list[int]:
        def process(batch: RecordBatch) -> ScanResult | None:
            (record,) = batch
            self.take(int(record.data))
            return ScanResult.STOP if self.seen[-1] == _LAST else None

        scan(orders.properties(), process, on_error=policy, per_batch=True, max_records=1)
        return self.seen


@pytest.fixture(params=[Scanned, Batched])
def kind(request: pytest.FixtureRequest, orders: Orders) -> type[Orderly]:
    """Who takes the records, which are there."""
    orders.put(_LAST + 1, key="one shard")
    found: type[Orderly] = request.param
    return found


def test_a_call_that_failed_is_made_again_before_its_shard_is_read_on(
    orders: Orders, kind: type[Orderly]
) -> None:
    policy = RetryOnError(policy=AT_ONCE)
    assert kind(failures=3).run(orders, policy) == list(range(_LAST + 1))


@pytest.mark.parametrize(
    "policy", [None, RetryOnError(policy=AT_ONCE)], ids=["by default", "after retries"]
)
def test_a_call_that_fails_too_often_stops_the_reading_and_is_made_by_the_next_run(
    orders: Orders, kind: type[Orderly], policy: ErrorPolicy | None
) -> None:
    taker = kind(failures=4)
    with pytest.raises(ZeroDivisionError, match=f"for {_BAD}") as caught:
        taker.run(orders, policy)
    assert taker.seen == list(range(_BAD))
    (note,) = caught.value.__notes__
    assert note.startswith(f"It was raised by the callback for {kind.place}")
    assert "orders/shardId-" in note
    assert kind(failures=0).run(orders) == list(range(_BAD, _LAST + 1))


@pytest.mark.parametrize("is_retried", [True, False])
def test_what_is_put_aside_counts_as_processed(
    orders: Orders, kind: type[Orderly], caplog: pytest.LogCaptureFixture, *, is_retried: bool
) -> None:
    aside: list[tuple[list[bytes], str]] = []

    def put(failed: Record | RecordBatch, error: Exception) -> None:
        assert isinstance(failed, Record if kind is Scanned else RecordBatch)
        data = [failed.data] if isinstance(failed, Record) else list(failed.payloads)
        aside.append((data, str(error)))

    letter = DeadLetter(put)
    policy = RetryOnError(policy=AT_ONCE, otherwise=letter) if is_retried else letter
    assert kind().run(orders, policy) == [0, 1, 3, 4]
    assert aside == [([b"2"], "for 2")]
    assert "will be put aside: ZeroDivisionError('for 2')" in caplog.text
    assert scanned_in_next_run(orders) == []


def test_a_dead_letter_that_fails_stops_the_reading_and_says_where_and_why(
    orders: Orders, kind: type[Orderly]
) -> None:
    def put(failed: Record | RecordBatch, error: Exception) -> None:
        raise OSError("the queue is down")

    with pytest.raises(OSError, match="the queue is down") as caught:
        kind().run(orders, DeadLetter(put))
    (note,) = caught.value.__notes__
    assert note.startswith(f"It was raised by put of DeadLetter for {kind.place}")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert kind(failures=0).run(orders) == list(range(_BAD, _LAST + 1))


async def put_later(batch: Record | RecordBatch, error: Exception) -> None:
    raise AssertionError("never called")


@pytest.mark.parametrize("policy", [RetryOnError, "stop", DeadLetter(put_later)])
def test_what_is_no_policy_is_refused_at_once(orders: Orders, policy: Any) -> None:
    with pytest.raises(TypeError):
        scan(orders.properties(), print, on_error=policy)
