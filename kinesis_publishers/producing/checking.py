"""Checks records that users put, and returns them as columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final, Self, TypeAlias

from attrs import define, field, frozen

from kinesis_publishers.abc import Partitioner
from kinesis_publishers.assembly import WritingServices
from kinesis_publishers.engine.discovery import ShardDiscovery
from kinesis_publishers.errors import InvalidRecordError
from kinesis_publishers.model import StreamIdentity, UserRecord
from kinesis_publishers.model.shards import parse_hash_key
from kinesis_publishers.model.user_records import LONGEST_PARTITION_KEY, check_marker
from kinesis_publishers.producing.records import Row, utf8_bytes

Data: TypeAlias = bytes | bytearray | memoryview | str
"""What can be put; a text is encoded in UTF-8."""

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


@frozen(kw_only=True, eq=False)
class CheckedColumns:
    """Checked records, as columns of equal length.

    Attributes:
        explicit_hash_keys, markers: per record, or ``None`` if no record has one.
        problem: the error of the next record, if it is invalid.
    """

    payloads: list[bytes]
    partition_keys: list[str]
    explicit_hash_keys: list[str | None] | None = None
    markers: list[str | None] | None = None
    problem: InvalidRecordError | None = None

    def before(self, index: int, problem: InvalidRecordError) -> CheckedColumns:
        """Return the records before one that has a problem."""
        hash_keys, markers = self.explicit_hash_keys, self.markers
        return CheckedColumns(
            payloads=self.payloads[:index],
            partition_keys=self.partition_keys[:index],
            explicit_hash_keys=hash_keys and hash_keys[:index],
            markers=markers and markers[:index],
            problem=problem,
        )


@define(eq=False)
class RecordChecker:
    """Checks records before they are put, and chooses the partition keys that are missing.

    Args:
        max_bytes: the maximum record size of the stream, including the partition key.
    """

    _partitioner: Partitioner
    _discovery: ShardDiscovery
    _stream: StreamIdentity
    _max_bytes: int
    surely_fits: int = field(init=False)
    """What fits even with the longest partition key, of four bytes a character."""

    @surely_fits.default
    def _find_surely_fits(self) -> int:
        return self._max_bytes - 4 * LONGEST_PARTITION_KEY

    @classmethod
    def of(cls, services: WritingServices) -> Self:
        """Return a checker for a described stream."""
        stream = services.stream
        return cls(
            services.partitioner, services.discovery, stream.identity, stream.max_record_bytes
        )

    def row_of(self, item: Item) -> Row:
        """Return a record as :func:`checked_row` does."""
        return checked_row(item, self._partitioner)

    async def columns_of(self, chunk: Sequence[Item]) -> CheckedColumns:
        """Return the records before the first that is invalid or too large.

        Raises:
            KinesisPublishersError: the stream cannot be described.
        """
        columns = _plain_columns(chunk)
        if columns is None:
            columns = self._checked_columns(chunk)
        markers = columns.markers or repeat(None, len(columns.payloads))
        largest = max(map(len, columns.payloads), default=0)
        longest = 0
        if columns.markers is not None:
            longest = max(map(_marked_bytes, markers)) + 4 * LONGEST_PARTITION_KEY
        if largest + longest <= self.surely_fits:
            return columns
        rows = zip(columns.payloads, columns.partition_keys, markers, strict=False)
        for index, (data, key, marker) in enumerate(rows):
            try:
                await self.check_size(data, key, marker)
            except InvalidRecordError as error:
                return columns.before(index, error)
        return columns

    def _checked_columns(self, chunk: Sequence[Item]) -> CheckedColumns:
        rows: list[Row] = []
        problem: InvalidRecordError | None = None
        for item in chunk:
            try:
                rows.append(self.row_of(item))
            except InvalidRecordError as error:
                problem = error
                break
        return CheckedColumns(
            payloads=[row[0] for row in rows],
            partition_keys=[row[1] for row in rows],
            explicit_hash_keys=_column([row[2] for row in rows]),
            markers=_column([row[3] for row in rows]),
            problem=problem,
        )

    async def check_size(self, data: bytes, key: str, marker: str | None = None) -> None:
        """Check the size of a record against the limit of the stream.

        Raises:
            InvalidRecordError: the record exceeds the limit, even the current one.
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
        summary = await self._discovery.describe_now(self._stream.arn)
        self._max_bytes = summary.max_record_bytes
        self.surely_fits = self._find_surely_fits()
        if size > self._max_bytes:
            what = "that key" if marker is None else "that key and its marker"
            raise InvalidRecordError(
                f"the record with the partition key {key!r:.300} has {size:,} bytes with {what}, "
                f"and {self._stream.name} takes {self._max_bytes:,} at most: split it, or raise "
                "the limit of the stream (UpdateMaxRecordSize)"
            )


def _marked_bytes(marker: str | None) -> int:
    """Return the maximum size of a marker and the aggregate around it."""
    return 0 if marker is None else len(marker.encode()) + _AGGREGATE_BYTES


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
    _check_keys(key, hash_key)
    if marker is not None:
        try:
            check_marker(marker)
        except ValueError as error:
            raise InvalidRecordError(f"{error} (partition key {key!r:.300})") from None
    return payload, key, hash_key, marker


def _plain_columns(chunk: Sequence[Item]) -> CheckedColumns | None:
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
    return CheckedColumns(payloads=payloads, partition_keys=keys)


def _column(values: list[str | None]) -> list[str | None] | None:
    return values if any(one is not None for one in values) else None


def _checked_data(data: object) -> bytes:
    """Return ``data`` as bytes; a string is encoded in UTF-8.

    Raises:
        InvalidRecordError: ``data`` is neither bytes nor a string.
    """
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


def _check_keys(partition_key: str, explicit_hash_key: str | None) -> None:
    """Check the keys that select the shard of a record.

    Raises:
        InvalidRecordError: Kinesis would refuse it.
    """
    if not isinstance(partition_key, str):
        raise InvalidRecordError(
            f"a partition key must be a text, not {type(partition_key).__name__}: "
            f"{partition_key!r:.300}"
        )
    if not 1 <= len(partition_key) <= LONGEST_PARTITION_KEY:
        raise InvalidRecordError(
            f"a partition key must have 1 to {LONGEST_PARTITION_KEY} characters, not "
            f"{len(partition_key)}: {partition_key!r:.300}"
        )
    try:
        partition_key.encode()
    except UnicodeEncodeError:
        raise InvalidRecordError(
            f"a partition key must have characters of UTF-8 only: {partition_key!r:.300}"
        ) from None
    try:
        if explicit_hash_key is not None:
            parse_hash_key(explicit_hash_key)
    except (AttributeError, ValueError):
        raise InvalidRecordError(
            "an explicit hash key must be a text, a decimal number from 0 to 2**128 - 1, not "
            f"{explicit_hash_key!r:.300} (of a record with the partition key "
            f"{partition_key!r:.300})"
        ) from None
