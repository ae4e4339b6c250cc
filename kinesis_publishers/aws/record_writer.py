"""Writes records with PutRecords: what a call takes, one call, and all of many records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Final, TypeAlias, TypeVar

from attrs import frozen

from kinesis_publishers.aws.clients import Boto3Client
from kinesis_publishers.aws.errors import complete_answer, service_error
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import AwsConfig
from kinesis_publishers.errors import KinesisPublishersError, RecordsNotWrittenError, ServiceError
from kinesis_publishers.model import UserRecord
from kinesis_publishers.retry import RetryBudget, RetryPolicy

_T = TypeVar("_T")

MAX_RECORD_BYTES: Final = 10 * 1024 * 1024
"""The most bytes of a record, its partition key included."""

_OPERATION: Final = "PutRecords"
# A call takes 500 records and 10 MiB; less is repeated sooner where a shard throttles.
_MAX_RECORDS: Final = 500
_MAX_BYTES: Final = 5 * 1024 * 1024


@frozen(kw_only=True)
class PutResult:
    """Where a record was written (``PutRecordsResultEntry``)."""

    shard_id: str
    sequence_number: str


OnWritten: TypeAlias = "Callable[[int, UserRecord, PutResult], None]"
"""Takes the number of a record, counted from 1, the record, and where it was written."""


def batched_by_size(
    items: Iterable[_T], size_of: Callable[[_T], int], *, max_items: int, max_bytes: int
) -> Iterator[list[_T]]:
    """Yield ``items`` in their order, as many together as the limits admit.

    An item that alone exceeds the limit in bytes comes alone.
    """
    batch: list[_T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if batch and (len(batch) == max_items or total + size > max_bytes):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch


def put_batches(records: Iterable[UserRecord]) -> Iterator[list[UserRecord]]:
    """Yield ``records`` in their order, as many together as one call of PutRecords takes."""
    return batched_by_size(records, _size_of, max_items=_MAX_RECORDS, max_bytes=_MAX_BYTES)


def is_acceptable(record: UserRecord) -> bool:
    """Return whether there can be a stream that takes a record of this size."""
    return _size_of(record) <= MAX_RECORD_BYTES


class Boto3RecordWriter(Boto3Client):
    """Makes each call once; the caller retries.

    Use it as ``async with Boto3RecordWriter(config) as writer``.
    """

    def __init__(self, config: AwsConfig) -> None:
        super().__init__(config, "record writer")

    async def put_records(
        self, stream: str, entries: Sequence[UserRecord]
    ) -> list[PutResult | ServiceError]:
        """Write 1 to 500 records; return for each where it is, or why it was not written.

        With their keys they have 10 MiB at most; ``stream`` is a name or an ARN.

        Raises:
            ServiceError: the call failed as a whole. After ``ConnectionFailedError`` it is not
                known whether the records were written.
        """
        target = {"StreamARN" if stream.startswith("arn:") else "StreamName": stream}
        records = [_request_entry(one) for one in entries]
        answer = await self.call(
            _OPERATION, stream, lambda client: client.put_records(Records=records, **target)
        )
        with complete_answer(_OPERATION, stream):
            return [_result(one, stream) for one in answer["Records"]]


class RecordPutter:
    """Writes any number of records to one stream, one call at a time, and repeats what is refused.

    What a call refuses is written before anything that comes after that call, so that two records
    of one partition key can change places only if one call had both.

    Args:
        policy: how often a call that writes nothing is repeated.
        on_written: takes each record as soon as it is written.
        advice: what to do when the retries are used up, a sentence.
    """

    def __init__(
        self,
        writer: Boto3RecordWriter,
        stream: str,
        policy: RetryPolicy,
        clock: Clock,
        on_written: OnWritten,
        *,
        advice: str,
    ) -> None:
        self._writer = writer
        self._stream = stream
        self._policy = policy
        self._clock = clock
        self._on_written = on_written
        self._advice = advice
        self._sent = 0
        self.written = 0

    async def put(self, records: Iterable[UserRecord]) -> None:
        """Write ``records`` in their order.

        Raises:
            RecordsNotWrittenError: some were not written, and why; or one is too large, and
                neither it nor what comes after it was sent.
        """
        records = list(records)
        accepted = list(takewhile(is_acceptable, records))
        for batch in put_batches(accepted):
            await self._put_batch(batch)
        if len(accepted) < len(records):
            raise RecordsNotWrittenError(
                f"Record {self._sent + 1:,} has more than {MAX_RECORD_BYTES:,} bytes with its "
                "partition key, which no stream takes: split it. What stands before it was "
                "written; neither it nor what comes after it was sent."
            )

    async def _put_batch(self, batch: Sequence[UserRecord]) -> None:
        left = list(enumerate(batch, start=self._sent + 1))
        self._sent += len(batch)
        budget = RetryBudget(self._policy, self._clock, advice=self._advice)
        while left:
            refused, reason = await self._attempt(left)
            if len(refused) < len(left):
                # A throttling shard takes a part each time: progress restores all retries.
                budget.reset()
            left = refused
            if reason is not None:
                await self._clock.sleep(self._delay_after(reason, left, budget))

    def _delay_after(
        self, reason: ServiceError, left: Sequence[tuple[int, UserRecord]], budget: RetryBudget
    ) -> float:
        try:
            return budget.delay_after(reason)
        except KinesisPublishersError as error:
            raise RecordsNotWrittenError(
                f"{len(left):,} of the {self._sent:,} records that were sent to {self._stream} "
                f"were not written, or not for certain; the first is number {left[0][0]:,}. What "
                f"comes after number {self._sent:,} was not sent. {error}"
            ) from error

    async def _attempt(
        self, numbered: list[tuple[int, UserRecord]]
    ) -> tuple[list[tuple[int, UserRecord]], ServiceError | None]:
        """Make one call; return what it has not written, and why."""
        try:
            results = await self._writer.put_records(self._stream, [entry for _, entry in numbered])
        except ServiceError as error:
            return numbered, error
        refused, reasons = [], []
        for (number, entry), result in zip(numbered, results, strict=True):
            if isinstance(result, ServiceError):
                refused.append((number, entry))
                reasons.append(result)
            else:
                self.written += 1
                self._on_written(number, entry, result)
        # A refusal that no retry resolves counts more than any number of throttles.
        reasons.sort(key=lambda reason: reason.retryable)
        return refused, next(iter(reasons), None)


def _size_of(record: UserRecord) -> int:
    return len(record.data) + len(record.partition_key.encode())


def _request_entry(entry: UserRecord) -> dict[str, Any]:
    request: dict[str, Any] = {"Data": entry.data, "PartitionKey": entry.partition_key}
    if entry.explicit_hash_key is not None:
        request["ExplicitHashKey"] = entry.explicit_hash_key
    return request


def _result(answer: dict[str, str], stream: str) -> PutResult | ServiceError:
    code = answer.get("ErrorCode")
    if code:
        return service_error(
            code,
            answer.get("ErrorMessage", ""),
            operation=_OPERATION,
            where=stream,
            request_id=None,
            fallback=ServiceError,
        )
    return PutResult(shard_id=answer["ShardId"], sequence_number=answer["SequenceNumber"])
