"""Records to be written: taken from text, checked, and put together to calls. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import define, field

from kinesis_publishers.aws.record_writer import batched_by_size
from kinesis_publishers.errors import RecordsNotWrittenError
from kinesis_publishers.model.shards import parse_hash_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesis_publishers.model import UserRecord

__all__ = [
    "LineSplitter",
    "batches",
    "check_hash_key",
    "check_partition_key",
    "is_acceptable",
    "too_large_error",
]

# PutRecords takes 500 records and 10 MiB; less is repeated sooner where a shard throttles.
_MAX_RECORDS: Final = 500
_MAX_BYTES: Final = 5 * 1024 * 1024
_MAX_RECORD_BYTES: Final = 10 * 1024 * 1024
_LONGEST_KEY: Final = 256


@define
class LineSplitter:
    """Splits bytes into records as they come: what stands between two line feeds.

    Args:
        is_whole: everything is one record, line feeds included.
    """

    _is_whole: bool = field(default=False, kw_only=True)
    _rest: list[bytes] = field(factory=list, init=False)
    _rest_bytes: int = field(default=0, init=False)

    @property
    def is_too_long(self) -> bool:
        """Whether what has no end yet is more than a stream takes."""
        return self._rest_bytes > _MAX_RECORD_BYTES

    def split(self, block: bytes) -> list[bytes]:
        """Return the records that end in ``block``."""
        *complete, rest = [block] if self._is_whole else block.split(b"\n")
        if complete:
            complete[0] = b"".join((*self._rest, complete[0]))
            self._clear()
        self._rest.append(rest)
        self._rest_bytes += len(rest)
        return complete

    def end(self) -> list[bytes]:
        """Return the last record: all of a whole, or a line that no line feed has ended."""
        rest = b"".join(self._rest)
        self._clear()
        return [rest] if rest or self._is_whole else []

    def _clear(self) -> None:
        self._rest.clear()
        self._rest_bytes = 0


def batches(entries: Iterable[UserRecord]) -> Iterator[list[UserRecord]]:
    """Return ``entries`` in their order, as many together as one call takes."""
    return batched_by_size(entries, _size, max_items=_MAX_RECORDS, max_bytes=_MAX_BYTES)


def is_acceptable(entry: UserRecord) -> bool:
    """Return whether there can be a stream that takes a record of this size."""
    return _size(entry) <= _MAX_RECORD_BYTES


def too_large_error(number: int) -> RecordsNotWrittenError:
    """Return the error for a record that no stream takes.

    Args:
        number: which one it is, counted from 1.
    """
    return RecordsNotWrittenError(
        f"Record {number:,} has more than {_MAX_RECORD_BYTES:,} bytes with its partition key, "
        "which no stream takes: split it. What stands before it was written; neither it nor what "
        "comes after it was sent."
    )


def check_partition_key(text: str) -> str:
    """Return a partition key; raises ``ValueError`` if it is none."""
    if not 1 <= len(text) <= _LONGEST_KEY:
        raise ValueError("too short or too long")
    text.encode()  # raises for what the command line had that is not UTF-8
    return text


def check_hash_key(text: str) -> str:
    """Return a hash key; raises ``ValueError`` if it is none."""
    parse_hash_key(text)
    return text


def _size(entry: UserRecord) -> int:
    return len(entry.data) + len(entry.partition_key.encode())
