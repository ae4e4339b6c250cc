"""Workers of this project, on the table of an application of the KCL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from kinesis_publishers import ScanResult, scan
from tests.integration.kcl.kcl_application import STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from kinesis_publishers import Record
    from kinesis_publishers.model import ShardKey
    from tests.integration.kcl.kcl_application import KclApplication

__all__ = ["OurWorker"]


class OurWorker:
    """Reads in a thread.

    Attributes:
        records: what it has read, in order.
        lost: the ids of the shards that were taken from it, and not handed over.
    """

    def __init__(self, kcl: KclApplication, worker: str, stop_after: int) -> None:
        self.records: list[Record] = []
        self.lost: list[str] = []
        self._changed = kcl.changed
        self._stop_after = stop_after
        self._stop = Event()
        self._properties = {
            **kcl.server.properties(STREAM),
            "kinesis.stream.initpos": "TRIM_HORIZON",
            "kinesis.checkpoint.store": "dynamodb",
            "kinesis.checkpoint.application": kcl.name,
            "kinesis.checkpoint.dynamodb.endpoint": kcl.dynamodb.meta.endpoint_url,
            "kinesis.lease.enabled": "true",
            "kinesis.lease.workerid": worker,
            "kinesis.lease.failovermillis": "1500",
        }

    @classmethod
    @contextmanager
    def running(cls, kcl: KclApplication, worker: str, stop_after: int = 0) -> Iterator[Self]:
        """Run one while the context lasts, or until it has read so many records."""
        one = cls(kcl, worker, stop_after)
        with ThreadPoolExecutor(1) as thread:
            scanning = thread.submit(one._scan)
            try:
                yield one
            finally:
                if not stop_after:
                    one._stop.set()
                scanning.result(60)

    @property
    def positions(self) -> list[tuple[str, int]]:
        return [(one.sequence_number, one.sub_sequence_number) for one in self.records]

    def _scan(self) -> None:
        scan(self._properties, self._take, stop=self._stop, on_shard_lost=self._note_lost)

    def _take(self, record: Record) -> ScanResult | None:
        with self._changed:
            self.records.append(record)
            self._changed.notify_all()
        return ScanResult.STOP if len(self.records) == self._stop_after else None

    def _note_lost(self, shard: ShardKey) -> None:
        with self._changed:
            self.lost.append(shard.shard_id)
            self._changed.notify_all()
