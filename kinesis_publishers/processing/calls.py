"""Calls a callback for the records of a delivery, in a thread: what runs there and nothing else."""

from __future__ import annotations

import threading
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import Factory, define, field

from kinesis_publishers.processing.threads import call_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_publishers.model import Record, RecordBatch

__all__ = ["DeliveryCalls", "Process", "ScanResult"]


class ScanResult(Enum):
    """What a callback may return; ``None`` says that its record has been processed."""

    SKIP_CHECKPOINT = "SKIP_CHECKPOINT"
    """It has been taken, and is not to be recorded as processed yet: a later record of its shard
    is, or the end of the shard once ``on_shard_end`` has been called."""

    STOP = "STOP"
    """It has been processed, and no more are wanted."""


Process: TypeAlias = "Callable[[Any], ScanResult | None]"


@define(eq=False)
class DeliveryCalls:
    """The calls for one delivery; one thread at a time changes the state, any may look at it.

    Args:
        process: the callback.
        batch: the records.
        per_batch: whether it takes them all at once.
        holds: whether earlier records of the shard have skipped their checkpoint, and no later one
            has covered them.

    Attributes:
        taken: how many records the callback has taken.
        processed: how many of them, from the first one on, may be recorded as processed.
        wants_no_more: whether the callback has said so.
    """

    _process: Process
    _batch: RecordBatch
    _per_batch: bool
    _holds: bool = False
    taken: int = field(default=0, init=False)
    processed: int = field(default=0, init=False)
    wants_no_more: bool = field(default=False, init=False)
    # Kept from call to call: to find the place again would take longer the further on it is.
    _records: Iterator[Record] = field(
        init=False, default=Factory(lambda self: iter(self._batch), takes_self=True)
    )
    _record: Record | None = field(default=None, init=False)
    _is_stopping: threading.Event = field(factory=threading.Event, init=False)

    @property
    def is_done(self) -> bool:
        """Whether the callback has taken everything."""
        return self.taken == len(self._batch)

    @property
    def current(self) -> Record | RecordBatch:
        """What the callback takes next; there must be something."""
        if self._per_batch:
            return self._batch
        if self._record is None:
            self._record = next(self._records)
        return self._record

    def stop(self) -> None:
        """Let :meth:`run` return after the call that it is at; from any thread."""
        self._is_stopping.set()

    def run(self) -> Exception | None:
        """Call until nothing is left, or something is to be decided; return what a call raised."""
        while not (self.is_done or self.wants_no_more or self._is_stopping.is_set()):
            try:
                result = call_in_thread(self._process, self.current)
            except Exception as error:  # noqa: BLE001 - the error policy decides what follows
                return error
            self._take(result)
        return None

    def _take(self, result: object) -> None:
        if not (result is None or isinstance(result, ScanResult)):
            raise TypeError(
                f"the callback returned {result!r}; it may return None, "
                "ScanResult.SKIP_CHECKPOINT or ScanResult.STOP"
            )
        self._holds = result is ScanResult.SKIP_CHECKPOINT
        self.wants_no_more = result is ScanResult.STOP
        self.pass_over()

    def pass_over(self) -> None:
        """Count :attr:`current` as processed, but not what the callback has gathered before it."""
        self.taken += len(self._batch) if self._per_batch else 1
        self._record = None
        if not self._holds:
            self.processed = self.taken
