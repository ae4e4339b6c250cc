"""Keeps the records of each partition key in order while they are sent."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Container, Iterable, Iterator

from attrs import define, field

from kinesis_publishers.producing.records import Run


@define(eq=False)
class KeyOrder:
    """Keeps the records of a partition key in order: one entry of a key is sent at a time.

    PutRecords keeps no order among the entries of a call, and either of two calls may be refused.
    Records of a busy key are put aside until the key is free. Every run here has one record.

    Args:
        together: the maximum number of records of a key in one entry; ``None`` for any number.
    """

    _together: int | None
    _busy: set[str] = field(factory=set, init=False)
    _aside: dict[str, deque[Run]] = field(factory=dict, init=False)

    def admits(self, run: Run, taken: Container[str]) -> bool:
        """Return whether a record may be sent; otherwise put it aside.

        ``taken`` are the keys of older records that will be sent first.
        """
        key = run.partition_keys[0]
        line = self._aside.get(key)
        # A record must not pass an older one that was put aside.
        is_next = not line or run.number < line[0].number
        if is_next and key not in self._busy and key not in taken:
            return True
        self._aside.setdefault(key, deque())
        return not self.rejoins(run)

    def rejoins(self, run: Run) -> bool:
        """Put a record aside in order if others of its key are; return whether it was."""
        line = self._aside.get(run.partition_keys[0])
        if line is None:
            return False
        line.insert(bisect_right(line, run.number, key=lambda one: one.number), run)
        return True

    def begin(self, runs: Iterable[Run]) -> None:
        """Mark the keys of ``runs``, which are being sent, as busy."""
        self._busy.update([run.partition_keys[0] for run in runs])

    def end(self, runs: Iterable[Run]) -> None:
        """Mark the keys of ``runs``, which are no longer being sent, as free."""
        self._busy.difference_update([run.partition_keys[0] for run in runs])

    def freed(self, runs: Iterable[Run]) -> Iterator[Run]:
        """Yield the records that may be sent now that ``runs`` have left."""
        for key in (self._aside.keys() & {run.partition_keys[0] for run in runs}) - self._busy:
            line = self._aside[key]
            for _ in range(min(len(line), self._together or len(line))):
                yield line.popleft()
            if not line:
                del self._aside[key]

    def clear(self) -> None:
        """Forget the records that were put aside."""
        self._aside.clear()

    def __iter__(self) -> Iterator[Run]:
        return (run for line in self._aside.values() for run in line)
