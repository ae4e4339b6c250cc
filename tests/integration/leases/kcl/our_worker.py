"""Workers of this project, on the table of an application of the KCL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from kinesis_publishers import ScanResult, scan
from tests.integration.leases.kcl.kcl_application import FAILOVER_MILLIS, STREAM
from tests.integration.leases.kcl.worker_events import WorkerEvent, WorkerEvents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from kinesis_publishers import Record
    from kinesis_publishers.model import ShardKey
    from tests.integration.leases.kcl.kcl_application import KclApplication

__all__ = ["OurWorker"]


class OurWorker(WorkerEvents):
    """Scans in a thread, and tells what a worker of the KCL would."""

    def __init__(self, kcl: KclApplication, worker: str, streams: str, stop_after: int) -> None:
        super().__init__(kcl.changed)
        self._stop_after = stop_after
        self._stop = Event()
        self._properties = {
            **kcl.server.properties(streams),
            "kinesis.stream.initpos": "TRIM_HORIZON",
            "kinesis.checkpoint.store": "dynamodb",
            "kinesis.checkpoint.application": kcl.name,
            "kinesis.checkpoint.dynamodb.endpoint": kcl.dynamodb.meta.endpoint_url,
            "kinesis.lease.enabled": "true",
            "kinesis.lease.workerid": worker,
            "kinesis.lease.failovermillis": str(FAILOVER_MILLIS),
        }

    @classmethod
    @contextmanager
    def running(
        cls, kcl: KclApplication, worker: str, *, streams: str = STREAM, stop_after: int = 0
    ) -> Iterator[Self]:
        """Run one while the context lasts, or until it has read so many records."""
        one = cls(kcl, worker, streams, stop_after)
        with ThreadPoolExecutor(1) as thread:
            scanning = thread.submit(one._scan)
            try:
                yield one
            finally:
                if not stop_after:
                    one._stop.set()
                scanning.result(60)

    def _scan(self) -> None:
        scan(self._properties, self._take, stop=self._stop, on_shard_lost=self._note_lost)

    def _take(self, record: Record) -> ScanResult | None:
        self.note(
            WorkerEvent(
                event="record",
                shard=record.shard_id,
                sequence=record.sequence_number,
                sub=record.sub_sequence_number or 0,
                data=record.data,
            )
        )
        return ScanResult.STOP if len(self.records) == self._stop_after else None

    def _note_lost(self, shard: ShardKey) -> None:
        self.note(WorkerEvent(event="leaseLost", shard=shard.shard_id))
