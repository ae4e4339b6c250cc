"""A producer that keeps its records, for tests of code that puts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Self

from kinesis_publishers.abc import Partitioner
from kinesis_publishers.errors import ClosedError, RecordsNotWrittenError
from kinesis_publishers.formats import Encoder, Format, encoder_of
from kinesis_publishers.model import UserRecord
from kinesis_publishers.model.shards import MAX_HASH_KEY, hash_key_of
from kinesis_publishers.producing import PutResult
from kinesis_publishers.producing.checking import Data, Item, checked_row, encoded
from kinesis_publishers.producing.records import Row
from kinesis_publishers.producing.routing import RandomPartitioner
from kinesis_publishers.testing.fakes.samples import shard_name

__all__ = ["FakeProducer"]


class FakeProducer:
    """Stands in for a ``KinesisProducer``: it writes everything at once, or fails as the test says.

    It refuses what the producer refuses, but for a record's size. What has rules of the service
    (limits, order, aggregates, reshards) needs a producer and a LocalKinesis.

    Args:
        shards: over how many shards the hash keys are distributed.
        partitioner: chooses the partition keys of records without one; at random unless given.
        encode: makes the payloads of what is put, as of a producer.

    Attributes:
        records: what was put and has not failed, in order.
        flushes: how often ``flush`` was called.
    """

    def __init__(
        self,
        *,
        shards: int = 1,
        partitioner: Partitioner | None = None,
        encode: str | Format[Any] | Encoder | None = None,
    ) -> None:
        self._shards = shards
        self._encode = encoder_of(encode)
        self._partitioner = partitioner or RandomPartitioner()
        self._errors: deque[Exception | None] = deque()
        self._failures: list[Exception] = []
        self._is_closed = False
        self.records: list[UserRecord] = []
        self.flushes = 0
        self.pending_records = self.pending_bytes = 0

    def fail(self, *errors: Exception | None) -> None:
        """Let the futures of the next records have these errors; ``None`` lets one through."""
        self._errors.extend(errors)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def put(
        self, data: Data, partition_key: str | None = None, explicit_hash_key: str | None = None
    ) -> asyncio.Future[PutResult]:
        """Keep a record, or let it fail."""
        outcome = self._take((data, partition_key, explicit_hash_key))
        future: asyncio.Future[PutResult] = asyncio.get_running_loop().create_future()
        if isinstance(outcome, PutResult):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
            future.exception()  # flush and close raise.
        return future

    async def put_many(self, records: Iterable[Item]) -> asyncio.Future[Sequence[PutResult]]:
        """Keep records, or let some of them fail."""
        outcomes = [self._take(one) for one in records]
        future: asyncio.Future[Sequence[PutResult]] = asyncio.get_running_loop().create_future()
        results = [one for one in outcomes if isinstance(one, PutResult)]
        if len(results) == len(outcomes):
            future.set_result(results)
        else:
            failed = len(outcomes) - len(results)
            message = f"{failed:,} of {len(outcomes):,} records were not written"
            future.set_exception(RecordsNotWrittenError(message, results=outcomes))
            future.exception()
        return future

    async def flush(self) -> None:
        """Raise ``RecordsNotWrittenError`` if records have failed since the last time."""
        self._check_open()
        self.flushes += 1
        self._raise_failures()

    async def close(self, *, timeout_seconds: float | None = None) -> None:
        """Take no more records; raise as :meth:`flush` does."""
        self._is_closed = True
        self._raise_failures()

    def _take(self, item: Item) -> PutResult | Exception:
        self._check_open()
        data, key, hash_key, marker = row = checked_row(
            encoded(item, self._encode), self._partitioner
        )
        error = self._errors.popleft() if self._errors else None
        if error is not None:
            self._failures.append(error)
            return error
        self.records.append(
            UserRecord(data=data, partition_key=key, explicit_hash_key=hash_key, marker=marker)
        )
        return PutResult(self._shard_of(row), f"{len(self.records):056d}", None, 1, 0.0)

    def _shard_of(self, row: Row) -> str:
        return shard_name(hash_key_of(row[1], row[2]) * self._shards // (MAX_HASH_KEY + 1))

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the producer is closed")

    def _raise_failures(self) -> None:
        failures, self._failures = self._failures, []
        if failures:
            message = f"{len(failures):,} records were not written; the first: {failures[0]}"
            raise RecordsNotWrittenError(message, results=failures) from failures[0]
