"""Records to be written: taken from text, checked, and put together to calls. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import define, field

from kinesis_publishers.errors import RecordsNotWrittenError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesis_publishers.transport import PutEntry

__all__ = ["LineSplitter", "batches", "check_entry", "check_hash_key", "check_partition_key"]

# PutRecords takes 500 records and 10 MiB; less is repeated sooner where a shard throttles.
_MAX_RECORDS: Final = 500
_MAX_BYTES: Final = 5 * 1024 * 1024
_MAX_RECORD_BYTES: Final = 10 * 1024 * 1024
_LONGEST_KEY: Final = 256
_HASH_KEYS: Final = 2**128


@define
class LineSplitter:
    """Splits bytes into lines as they come; what stands between two line feeds is a record."""

    _rest: list[bytes] = field(factory=list, init=False)

    def split(self, block: bytes) -> list[bytes]:
        """Return the lines that end in ``block``, without their line feeds."""
        *complete, rest = block.split(b"\n")
        if complete:
            complete[0] = b"".join((*self._rest, complete[0]))
            self._rest.clear()
        self._rest.append(rest)
        return complete

    def end(self) -> list[bytes]:
        """Return the last line, if there is one that no line feed has ended."""
        rest = b"".join(self._rest)
        self._rest.clear()
        return [rest] if rest else []


def batches(entries: Iterable[PutEntry]) -> Iterator[list[PutEntry]]:
    """Yield ``entries`` in their order, as many together as one call takes."""
    batch: list[PutEntry] = []
    total = 0
    for entry in entries:
        size = _size(entry)
        if batch and (len(batch) == _MAX_RECORDS or total + size > _MAX_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(entry)
        total += size
    if batch:
        yield batch


def check_entry(entry: PutEntry, number: int) -> None:
    """Check what no stream accepts, before the call that it would be part of.

    Args:
        entry: the record.
        number: which one it is, counted from 1.

    Raises:
        RecordsNotWrittenError: the record is too large.
    """
    size = _size(entry)
    if size > _MAX_RECORD_BYTES:
        raise RecordsNotWrittenError(
            f"Record {number:,} has {size:,} bytes with its partition key, and no stream takes "
            f"more than {_MAX_RECORD_BYTES:,}: split it. It was not sent, nor what comes after it."
        )


def check_partition_key(text: str) -> str:
    """Return a partition key; raises ``ValueError`` if it is none."""
    if not 1 <= len(text) <= _LONGEST_KEY:
        raise ValueError("too short or too long")
    text.encode()  # raises for what the command line had that is not UTF-8
    return text


def check_hash_key(text: str) -> str:
    """Return a hash key; raises ``ValueError`` if it is none."""
    if not (text.isascii() and text.isdigit() and int(text) < _HASH_KEYS):
        raise ValueError("not a hash key")
    return text


def _size(entry: PutEntry) -> int:
    return len(entry.data) + len(entry.partition_key.encode())
