"""Callbacks for tests of scans, and what a run of one comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field

from kinesis_publishers import (
    Record,
    ScanResult,
    scan,
)
from kinesis_publishers.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.processing.processing_support import Orders


__all__ = ["AT_ONCE", "Collector", "fails_at", "scanned", "scanned_in_next_run"]

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


def scanned_in_next_run(orders: Orders) -> list[int]:
    """Return what the next run begins with, before a record of each shard that is put now."""
    marks = {*orders.put(1, key="key-0"), *orders.put(1, key="one shard")}
    seen: list[int] = []

    def process(record: Record) -> ScanResult | None:
        seen.append(int(record.data))
        return ScanResult.STOP if marks <= set(seen) else None

    scan(orders.properties(), process)
    return [number for number in seen if number not in marks]
