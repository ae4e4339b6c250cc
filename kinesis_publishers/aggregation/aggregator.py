"""Packs records into aggregates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import count, islice
from typing import Final, TypeAlias

from attrs import define, field, frozen

from kinesis_publishers.aggregation.codec import (
    BATCH_TAG,
    COPY_TAG,
    DIGEST_BYTES,
    KPL_PARTITION_KEY,
    MARKER_TAG,
    sealed,
)
from kinesis_publishers.model import UserRecord, hash_key_of
from kinesis_publishers.model.native import native
from kinesis_publishers.model.records import AGGREGATE_MAGIC

# The KPL's AggregationMaxSize, 50 KiB: a failed record affects few user records.
_DEFAULT_MAX_BYTES: Final = 51_200
_AROUND_MESSAGE: Final = len(AGGREGATE_MAGIC) + DIGEST_BYTES
# The tags of protobuf: the number of a field and its wire type (codec.py names the fields).
_KEYS_FIELD, _HASH_KEYS_FIELD, _RECORDS_FIELD = b"\x0a", b"\x12", b"\x1a"
_KEY_INDEX, _HASH_KEY_INDEX, _DATA_FIELD, _TAGS_FIELD = b"\x08", b"\x10", b"\x1a", b"\x22"
_NAME_FIELD, _VALUE_FIELD = b"\x0a", b"\x12"
# For a record without hash key and tags: four tags and four numbers of up to 10 MiB.
_LARGEST_NUMBERS: Final = 20


Packable: TypeAlias = tuple[bytes, str, str | None, str | None, bool]
"""A record to pack: data, partition key, explicit hash key, and a note: its marker (see
:attr:`UserRecord.marker`), and whether readers of this package have already delivered it."""


@frozen(kw_only=True)
class AggregatedRecord:
    """A record to put into the stream for one or more user records.

    Attributes:
        data: an aggregate; for a single record without a note, its own data.
        partition_key: that of a single record, or the KPL's ``a``, which makes readers apply the
            KPL's rules.
        explicit_hash_key: decimal; sends an aggregate to the shard of its first record.
        user_records: how many records are inside.
        is_aggregate: whether ``data`` is an aggregate.
    """

    data: bytes
    partition_key: str
    explicit_hash_key: str | None
    user_records: int
    is_aggregate: bool


def pack_first(
    records: Iterable[Packable],
    *,
    max_bytes: int = _DEFAULT_MAX_BYTES,
    max_records: int = 2**32 - 1,
) -> AggregatedRecord:
    """Pack as many of the first ``records`` as the limits allow.

    All of them must belong to the same shard: an aggregate goes to the shard of its first record.
    Like the KPL, the caller determines that shard. It also puts records again whose hash keys do
    not belong to the shard where the aggregate arrived: readers leave them out.

    Args:
        records: at least one. They are consumed up to the first that does not fit.
        max_bytes: the maximum size of an aggregate. A record that exceeds it is put unchanged.
        max_records: the maximum number of records in one aggregate.
    """
    message = _Message()
    first: Packable | None = None
    for record in islice(records, max_records):
        if not message.add(record, max_bytes):
            break
        first = first or record
    assert first is not None, "there must be a record to pack"
    return message.sealed(first)


def pack_plain(
    payloads: list[bytes],
    partition_keys: list[str],
    *,
    max_bytes: int = _DEFAULT_MAX_BYTES,
    max_records: int = 2**32 - 1,
) -> AggregatedRecord:
    """Pack records of only data and keys, as :func:`pack_first` does, at a fraction of the cost."""
    first = payloads[0], partition_keys[0], None, None, False
    if (functions := native()) is not None:
        packed, records = functions.pack(payloads, partition_keys, max(0, max_bytes), max_records)
        return _aggregated(first, records, lambda: sealed(packed))
    message = _Message()
    most, done = min(len(payloads), max_records), 0
    # First those that certainly fit, then as many others as fit into the remaining room.
    step = most
    while done < most:
        data, keys = payloads[done : done + step], partition_keys[done : done + step]
        # An ASCII character is one byte.
        width = 1 if "".join(keys).isascii() else 4
        largest = sum(map(len, data)) + width * sum(map(len, keys)) + _LARGEST_NUMBERS * len(keys)
        room = max_bytes - message.size
        if largest <= room:
            message.add_plain(data, keys)
            done += len(keys)
            step = min(step, most - done)
        elif len(keys) > 1:
            step = max(1, min(len(keys) - 1, len(keys) * room // largest))
        elif message.add((data[0], keys[0], None, None, False), max_bytes):
            done += 1
        else:
            break
    return message.sealed(first)


def pack_user_records(records: Iterable[UserRecord], **limits: int) -> AggregatedRecord:
    """Pack the first of ``records``, as :func:`pack_first` does with the same limits."""
    rows = (
        (one.data, one.partition_key, one.explicit_hash_key, one.marker, False) for one in records
    )
    return pack_first(rows, **limits)


@define(eq=False)
class _Message:
    """An aggregate that is being written, in half the time that protobuf's own objects take."""

    size: int = _AROUND_MESSAGE
    _count: int = 0
    _pieces: list[bytes] = field(factory=list)
    _tables: list[bytes] = field(factory=list)
    _keys: dict[str, int] = field(factory=dict)
    _hash_keys: dict[str, int] = field(factory=dict)
    # The last marker up to its last slash.
    _batch: str | None = None

    def add(self, record: Packable, max_bytes: int) -> bool:
        """Add the first record, or one that keeps the aggregate within ``max_bytes``.

        Return whether it was added; after a refusal nothing may be.
        """
        data, key, hash_key, marker, is_copy = record
        index, entries = _index_in(self._keys, _KEYS_FIELD, key)
        indices = _KEY_INDEX + _varint(index)
        if hash_key is not None:
            index, entry = _index_in(self._hash_keys, _HASH_KEYS_FIELD, hash_key)
            indices += _HASH_KEY_INDEX + _varint(index)
            entries += entry
        tags = self._tag_of(marker) if marker is not None else b""
        if is_copy:
            tags += _tag(COPY_TAG, "")
        size = _DATA_FIELD + _varint(len(data))
        inside = len(indices) + len(size) + len(data) + len(tags)
        head = b"".join((_RECORDS_FIELD, _varint(inside), indices, size))
        total = self.size + len(entries) + len(head) + len(data) + len(tags)
        if self._count and total > max_bytes:
            return False
        self._pieces += (head, data, tags)
        self._tables.append(entries)
        self.size = total
        self._count += 1
        return True

    def add_plain(self, payloads: Sequence[bytes], keys: Sequence[str]) -> None:
        known = self._keys
        new = [key for key in dict.fromkeys(keys) if key not in known]
        known.update(zip(new, count(len(known)), strict=False))
        tables = list(map(_key_entry, new))
        heads = list(map(_head, map(known.__getitem__, keys), map(len, payloads)))
        pieces = [b""] * (2 * len(heads))
        pieces[::2], pieces[1::2] = heads, payloads
        self._pieces += pieces
        self._tables += tables
        self.size += sum(map(len, pieces)) + sum(map(len, tables))
        self._count += len(heads)

    def _tag_of(self, marker: str) -> bytes:
        batch, _, rest = marker.rpartition("/")
        if batch == self._batch:
            return _tag(MARKER_TAG, rest)
        self._batch = batch
        return _tag(BATCH_TAG, batch) + _tag(MARKER_TAG, rest)

    def sealed(self, first: Packable) -> AggregatedRecord:
        return _aggregated(
            first, self._count, lambda: sealed(b"".join((*self._tables, *self._pieces)))
        )


def _aggregated(first: Packable, records: int, aggregate: Callable[[], bytes]) -> AggregatedRecord:
    data, key, hash_key, marker, is_copy = first
    if records > 1:
        # No record's own: readers apply the KPL's rules after a reshard.
        key, hash_key = KPL_PARTITION_KEY, str(hash_key_of(key, hash_key))
    is_aggregate = records > 1 or marker is not None or is_copy
    return AggregatedRecord(
        data=aggregate() if is_aggregate else data,
        partition_key=key,
        explicit_hash_key=hash_key,
        user_records=records,
        is_aggregate=is_aggregate,
    )


def _index_in(table: dict[str, int], tag: bytes, text: str) -> tuple[int, bytes]:
    """Return the index of a text in a table, and its encoded entry if it is new."""
    index = table.get(text)
    if index is not None:
        return index, b""
    index = table[text] = len(table)
    return index, _field(tag, text.encode())


def _field(tag: bytes, content: bytes) -> bytes:
    return b"%b%b%b" % (tag, _varint(len(content)), content)


def _key_entry(key: str) -> bytes:
    encoded = key.encode()
    length = len(encoded)
    # Most lengths need one byte; to write it directly saves a fifth of the time.
    return b"\n%c%b" % (length, encoded) if length < 128 else _field(_KEYS_FIELD, encoded)


def _tag(name: str, value: str) -> bytes:
    content = _field(_NAME_FIELD, name.encode()) + _field(_VALUE_FIELD, value.encode())
    return _field(_TAGS_FIELD, content)


@lru_cache(maxsize=16_384)
def _head(index: int, length: int) -> bytes:
    """Return the bytes that precede the data of a plain record."""
    before = _KEY_INDEX + _varint(index) + _DATA_FIELD + _varint(length)
    return _RECORDS_FIELD + _varint(len(before) + length) + before


@lru_cache(maxsize=1_024)
def _varint(number: int) -> bytes:
    if number < 128:
        return bytes((number,))
    low = bytearray()
    while number >= 128:
        low.append(number & 127 | 128)
        number >>= 7
    low.append(number)
    return bytes(low)
