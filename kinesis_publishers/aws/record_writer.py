"""Writes records with PutRecords; what is put together, and what is repeated, others decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from attrs import frozen

from kinesis_publishers.aws.boto3_client import Boto3Client
from kinesis_publishers.aws.errors import complete_answer, service_error
from kinesis_publishers.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kinesis_publishers.config import AwsConfig
    from kinesis_publishers.model import UserRecord

__all__ = ["Boto3RecordWriter", "PutResult", "batched_by_size"]

_OPERATION = "PutRecords"


@frozen(kw_only=True)
class PutResult:
    """Where a record was written (``PutRecordsResultEntry``).

    Attributes:
        shard_id: the shard.
        sequence_number: its place there.
    """

    shard_id: str
    sequence_number: str


class Boto3RecordWriter(Boto3Client):
    """Makes each call once: retrying is the caller's.

    Use it as ``async with Boto3RecordWriter(config) as writer``.
    """

    def __init__(self, config: AwsConfig) -> None:
        super().__init__(config, "record writer")

    async def put_records(
        self, stream: str, entries: Sequence[UserRecord]
    ) -> list[PutResult | ServiceError]:
        """Write 1 to 500 records; return for each where it is, or why it was not written.

        Args:
            stream: a name or an ARN.
            entries: the records, 10 MiB with their keys at most.

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


_T = TypeVar("_T")


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
