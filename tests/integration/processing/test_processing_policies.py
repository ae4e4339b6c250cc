"""What follows when ``on_batch`` raises: what the same policies say for a scan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import (
    DeadLetter,
    ErrorPolicy,
    KinesisDataFetcher,
    Record,
    RecordBatch,
    RetryOnError,
    Shard,
    StopOnError,
    with_error_policy,
)
from tests.integration.processing.scanning_support import AT_ONCE

if TYPE_CHECKING:
    from tests.integration.processing.processing_support import Orders

_BAD, _LAST = 2, 4


class Orderly:
    """Takes batches of one record; raises for one of them, so many times."""

    def __init__(self, failures: int = 10**9) -> None:
        self._failures = failures
        self.seen: list[int] = []

    async def on_batch(self, shard: Shard, batch: RecordBatch) -> None:
        (record,) = batch
        number = int(record.data)
        if number == _BAD and self._failures:
            self._failures -= 1
            raise ZeroDivisionError(f"for {number}")
        self.seen.append(number)

    async def run(self, orders: Orders, policy: ErrorPolicy) -> list[int]:
        on_batch = with_error_policy(self.on_batch, policy)

        async def stop_after_last(shard: Shard, batch: RecordBatch) -> None:
            await on_batch(shard, batch)
            if batch.payloads[0] == b"%d" % _LAST:
                fetcher.stop()

        properties = orders.properties(shard_getrecords_maxrecordcount="1")
        async with KinesisDataFetcher.from_properties(properties, stop_after_last) as fetcher:
            await fetcher.run()
        return self.seen


async def test_a_batch_that_failed_is_taken_again_before_its_shard_is_read_on(
    orders: Orders,
) -> None:
    orders.put(_LAST + 1, key="one shard")
    policy = RetryOnError(policy=AT_ONCE)
    assert await Orderly(failures=3).run(orders, policy) == list(range(_LAST + 1))


async def test_a_batch_that_fails_too_often_stops_the_reading_and_is_read_again(
    orders: Orders,
) -> None:
    orders.put(_LAST + 1, key="one shard")
    with pytest.raises(ZeroDivisionError) as caught:
        await Orderly(failures=4).run(orders, RetryOnError(policy=AT_ONCE))
    (note,) = caught.value.__notes__
    assert note.startswith("It was raised by the callback for 1 records of orders/shardId-")
    assert await Orderly(failures=0).run(orders, StopOnError()) == list(range(_BAD, _LAST + 1))


@pytest.mark.parametrize("is_retried", [True, False])
async def test_a_batch_that_is_put_aside_counts_as_processed(
    orders: Orders, is_retried: bool, caplog: pytest.LogCaptureFixture
) -> None:
    orders.put(_LAST + 1, key="one shard")
    aside: list[tuple[list[bytes], str]] = []

    def put(batch: Record | RecordBatch, error: Exception) -> None:
        assert isinstance(batch, RecordBatch)
        aside.append((list(batch.payloads), str(error)))

    letter = DeadLetter(put)
    policy = RetryOnError(policy=AT_ONCE, otherwise=letter) if is_retried else letter
    assert await Orderly().run(orders, policy) == [0, 1, 3, 4]
    assert aside == [([b"2"], "for 2")]
    assert "will be put aside: ZeroDivisionError('for 2')" in caplog.text


async def test_a_dead_letter_that_fails_stops_the_reading(orders: Orders) -> None:
    orders.put(_LAST + 1, key="one shard")

    def put(batch: Record | RecordBatch, error: Exception) -> None:
        raise OSError("the queue is down")

    with pytest.raises(OSError, match="the queue is down") as caught:
        await Orderly().run(orders, DeadLetter(put))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert await Orderly(failures=0).run(orders, StopOnError()) == list(range(_BAD, _LAST + 1))


async def put_later(batch: Record | RecordBatch, error: Exception) -> None:
    raise AssertionError("never called")


@pytest.mark.parametrize("policy", [RetryOnError, "stop", DeadLetter(put_later)])  # type: ignore[arg-type]
def test_what_is_no_policy_is_refused_at_once(policy: Any) -> None:
    with pytest.raises(TypeError):
        with_error_policy(Orderly().on_batch, policy)
