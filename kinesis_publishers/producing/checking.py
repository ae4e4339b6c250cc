"""Checks records that users put, and returns them as runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from kinesis_publishers.abc import Partitioner
from kinesis_publishers.assembly import WritingServices
from kinesis_publishers.errors import InvalidRecordError, KinesisPublishersError
from kinesis_publishers.formats import Encoder
from kinesis_publishers.model import UserRecord
from kinesis_publishers.model.user_records import LONGEST_PARTITION_KEY, check_fields
from kinesis_publishers.producing.records import Putting, Row, Run, columns_of_rows, utf8_bytes

Data: TypeAlias = bytes | bytearray | memoryview | str | Any
"""What can be put: bytes, or a text, which is encoded in UTF-8; with ``encode`` what that takes."""

Item: TypeAlias = (
    UserRecord
    | tuple[Data, str | None]
    | tuple[Data, str | None, str | None]
    | tuple[Data, str | None, str | None, str | None]
)
"""What ``put_many`` takes: a user record, or what it has in the order of :data:`Row`."""

_LONGEST_ROW: Final = 4
# The frame and checksum of an aggregate, an explicit hash key, and the names of tags.
_AGGREGATE_BYTES: Final = 128


class RecordChecker:
    """Encodes and checks records before they are put, and chooses missing partition keys."""

    def __init__(self, services: WritingServices, encode: Encoder | None = None) -> None:
        self._services = services
        self._encode = encode
        self.row_of = partial(checked_row, partitioner=services.partitioner)
        self.encoded = partial(encoded, encode=encode)
        self._limit(services.stream.max_record_bytes)

    def _limit(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # Even with the longest partition key, of four bytes a character.
        self.surely_fits = max_bytes - 4 * LONGEST_PARTITION_KEY

    async def run_of(
        self, chunk: Sequence[Item], put: Putting
    ) -> tuple[Run, KinesisPublishersError | None]:
        """Return the records before the first that is invalid or too large, and its error."""
        problem: KinesisPublishersError | None = None
        columns: Sequence[Any] | None = None if self._encode else _plain_columns(chunk)
        if columns is None:
            rows: list[Row] = []
            for item in chunk:
                try:
                    rows.append(self.row_of(self.encoded(item)))
                except KinesisPublishersError as error:
                    problem = error
                    break
            columns = columns_of_rows(rows)
        run = Run(put, range(len(columns[0])), 0, 0.0, *columns)
        largest = max(map(len, run.payloads), default=0)
        if run.markers is not None:
            largest += max(map(_marked_bytes, run.markers)) + 4 * LONGEST_PARTITION_KEY
        if largest > self.surely_fits:
            for index, (data, key, _, marker, _) in enumerate(run.rows()):
                try:
                    await self.check_size(data, key, marker)
                except InvalidRecordError as error:
                    return run.slice(0, index), error
        return run, problem

    async def check_size(self, data: bytes, key: str, marker: str | None = None) -> None:
        """Check the size of a record against the limit of the stream.

        Raises:
            InvalidRecordError: the record exceeds the current limit.
            KinesisPublishersError: the stream cannot be described.
        """
        key_bytes = utf8_bytes(key)
        size = len(data) + key_bytes
        if marker is not None:
            # An aggregate contains the partition key twice.
            size += key_bytes + _marked_bytes(marker)
        if size <= self._max_bytes:
            return
        # The limit may have been raised since.
        summary = await self._services.discovery.describe_now(self._services.arn)
        self._limit(summary.max_record_bytes)
        if size > self._max_bytes:
            what = "that key" if marker is None else "that key and its marker"
            raise InvalidRecordError(
                f"the record with the partition key {key!r:.300} has {size:,} bytes with {what}, "
                f"and {self._services.name} takes {self._max_bytes:,} at most: split it, or raise "
                "the limit of the stream (UpdateMaxRecordSize)"
            )


def _marked_bytes(marker: str | None) -> int:
    """Return the maximum size of a marker and the aggregate around it."""
    return 0 if marker is None else len(marker.encode()) + _AGGREGATE_BYTES


def encoded(item: Any, encode: Encoder | None) -> Any:
    """Return a record with what ``encode`` makes of its data; raise if it makes nothing."""
    if encode is not None and isinstance(item, UserRecord):
        item = item.data, item.partition_key, item.explicit_hash_key, item.marker
    # What is no row is refused as such, later.
    if encode is None or not isinstance(item, tuple | list) or not item:
        return item
    try:
        return (encode(item[0]), *item[1:])
    except KinesisPublishersError:
        raise
    except Exception as error:  # encoders raise errors of many kinds
        text = f"put a value that encode takes, not this {type(item[0]).__name__}: {error!r:.300}"
        raise InvalidRecordError(text) from error


def checked_row(item: Item, partitioner: Partitioner) -> Row:
    """Return a record as a row, with a key of the partitioner if it has none.

    Raises:
        InvalidRecordError: Kinesis would refuse it.
    """
    if isinstance(item, UserRecord):
        return item.data, item.partition_key, item.explicit_hash_key, item.marker
    given: Any = item
    if not isinstance(given, tuple | list) or not 2 <= len(given) <= _LONGEST_ROW:
        raise InvalidRecordError(
            "a record must be a UserRecord, or a tuple of data and partition key, not "
            f"{given!r:.300}"
        )
    data, key, hash_key, marker = (*given, None, None)[:_LONGEST_ROW]
    payload = data if type(data) is bytes else _checked_data(data)
    if key is None:
        key, chosen = partitioner.keys_of(payload)
        hash_key = chosen if hash_key is None else hash_key
    try:
        check_fields(key, hash_key, marker)
    except ValueError as error:
        raise InvalidRecordError(str(error)) from None
    return payload, key, hash_key, marker


def _plain_columns(chunk: Sequence[Item]) -> tuple[list[bytes], list[str]] | None:
    """Return payloads and partition keys if the records are pairs of them, as most are.

    This takes a tenth of the time of checking them one by one.
    """
    if set(map(type, chunk)) != {tuple}:
        return None
    try:
        payloads, keys = map(list, zip(*chunk, strict=True))
    except ValueError:  # They have more columns, or not as many each.
        return None
    if set(map(type, payloads)) != {bytes} or set(map(type, keys)) != {str}:
        return None
    lengths = list(map(len, keys))
    is_valid = min(lengths) > 0 and max(lengths) <= LONGEST_PARTITION_KEY
    if not (is_valid and "".join(keys).isascii()):
        return None
    return payloads, keys


def _checked_data(data: object) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError:
            raise InvalidRecordError(
                f"data must be bytes, or a text with characters of UTF-8 only: {data!r:.300}"
            ) from None
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise InvalidRecordError(
        f"data must be bytes, or a text, which is encoded in UTF-8; not {type(data).__name__}"
    )
