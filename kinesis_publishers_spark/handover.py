"""Passes what the loop's thread reads to the thread of a task."""

from __future__ import annotations

from collections import deque
from threading import Condition
from typing import TYPE_CHECKING

from kinesis_publishers import Delivery, DeliverySink

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Handover", "release_all"]

# Below either, another Arrow batch costs Spark more than its rows.
_MIN_BATCH_RECORDS = 10_000
_MIN_BATCH_BYTES = 1024 * 1024


class Handover(DeliverySink):
    """Takes deliveries in one thread and hands them out in another, in the order of arrival.

    It needs no bound of its own: each delivery holds its share of the pending pool until it is
    released, and the pool is bounded.
    """

    def __init__(self) -> None:
        self._deliveries: deque[Delivery] = deque()
        self._changed = Condition()
        self._is_over = self._has_failed = False

    async def deliver(self, delivery: Delivery) -> None:
        with self._changed:
            self._deliveries.append(delivery)
            self._changed.notify()

    def end(self, *, has_failed: bool) -> None:
        """Say that nothing more comes; what is left of a reading that failed is not handed out."""
        with self._changed:
            self._is_over, self._has_failed = True, has_failed
            self._changed.notify()

    def take(self) -> list[Delivery]:
        """Wait until there is something; return what makes a batch of it, nothing at the end.

        Small deliveries are taken together, but none is waited for in order to fill a batch.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._deliveries or self._is_over)
            if self._has_failed:
                return []
            return self._take_batch()

    def _take_batch(self) -> list[Delivery]:
        taken: list[Delivery] = []
        records = payload_bytes = 0
        while (
            self._deliveries and records < _MIN_BATCH_RECORDS and payload_bytes < _MIN_BATCH_BYTES
        ):
            taken.append(self._deliveries.popleft())
            records += len(taken[-1].batch)
            payload_bytes += taken[-1].batch.payload_bytes
        return taken

    def take_rest(self) -> list[Delivery]:
        """Return everything that was not handed out."""
        with self._changed:
            rest = list(self._deliveries)
            self._deliveries.clear()
            return rest


def release_all(deliveries: Iterable[Delivery]) -> None:
    """Give the shares of the pool back; in the loop's thread only."""
    for delivery in deliveries:
        delivery.release()
