"""The log of calls, from which a test reads how often a client asked."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from typing import TYPE_CHECKING

from attrs import define, field, frozen

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.faults import Scope

__all__ = ["Call", "CallLog", "busiest_second"]

# A benchmark makes hundreds of thousands of calls: the newest are kept, all are counted.
_KEPT_CALLS = 100_000


@frozen
class Call:
    """One call as it arrived.

    Attributes:
        at_seconds: arrival on the server's monotonic clock.
        code: the AWS error code of the answer; empty for success, ``reset`` or ``truncate`` if the
            connection was broken.
    """

    operation: str
    stream: str | None
    shard_id: str | None
    at_seconds: float
    code: str


@define
class CallLog:
    """The newest calls and the number of all."""

    _calls: deque[Call] = field(factory=lambda: deque(maxlen=_KEPT_CALLS))
    _counts: Counter[str] = field(factory=Counter)

    def add(self, scope: Scope, at_seconds: float, code: str) -> None:
        self._calls.append(Call(scope.operation, scope.stream, scope.shard_id, at_seconds, code))
        self._counts[scope.operation] += 1

    def clear(self) -> None:
        self._calls.clear()
        self._counts.clear()

    def find(
        self, operation: str | None = None, stream: str | None = None, shard_id: str | None = None
    ) -> list[Call]:
        """Return the calls that match, oldest first."""
        return [
            call
            for call in self._calls
            if operation in (None, call.operation)
            and stream in (None, call.stream)
            and shard_id in (None, call.shard_id)
        ]

    def describe(self) -> dict[str, object]:
        """Return counts per operation, and times per operation and ``stream/shard``."""
        times: dict[str, dict[str, list[float]]] = {}
        for call in self._calls:
            place = "/".join(part for part in (call.stream, call.shard_id) if part)
            times.setdefault(call.operation, {}).setdefault(place, []).append(call.at_seconds)
        return {"counts": dict(self._counts), "times": times}


def busiest_second(calls: list[Call]) -> int:
    """Return the largest number of calls within any one second."""
    times = sorted(call.at_seconds for call in calls)
    # Half-open: a call exactly one second after another belongs to the next second.
    return max(
        (position + 1 - bisect_right(times, at - 1.0) for position, at in enumerate(times)),
        default=0,
    )
