"""Packs records into aggregates."""

from __future__ import annotations

from typing import Final

from attrs import define, field, frozen, validators

from kinesis_publishers.aggregation.codec import (
    DIGEST_BYTES,
    KPL_PARTITION_KEY,
    aggregate_class,
    pack,
)
from kinesis_publishers.model import UserRecord, hash_key_of
from kinesis_publishers.model.records import AGGREGATE_MAGIC

# The KPL's AggregationMaxSize, 50 KiB: little is lost or repeated with one record.
_DEFAULT_MAX_BYTES: Final = 51_200
_AROUND_MESSAGE: Final = len(AGGREGATE_MAGIC) + DIGEST_BYTES


@frozen(kw_only=True)
class AggregatedRecord:
    """A record to put into the stream for one or more user records.

    Attributes:
        data: an aggregate; for a single record, its own data.
        partition_key: the record's own, or the KPL's ``a``, which tells readers to apply its rules.
        explicit_hash_key: decimal; sends an aggregate to the shard of its first record.
        user_records: how many records are inside.
    """

    data: bytes
    partition_key: str
    explicit_hash_key: str | None
    user_records: int


@define(eq=False)
class RecordAggregator:
    """Collects user records and packs them into one Kinesis record.

    All of them must belong to the same shard: the aggregate goes to the shard of the first one. The
    caller determines that shard, as the KPL does, and like the KPL puts records again whose hash
    keys do not belong to the shard where the aggregate arrived: readers leave them out.

    Args:
        max_bytes: the maximum size of an aggregate; a record that exceeds it by itself is put as it
            is.
        max_records: the maximum number of records in one aggregate.
    """

    _max_bytes: int = field(default=_DEFAULT_MAX_BYTES, validator=validators.ge(1), kw_only=True)
    _max_records: int = field(default=2**32 - 1, validator=validators.ge(1), kw_only=True)
    _records: list[UserRecord] = field(factory=list, init=False)
    _keys: dict[str, int] = field(factory=dict, init=False)
    _hash_keys: dict[str, int] = field(factory=dict, init=False)
    _message_bytes: int = field(default=0, init=False)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def size(self) -> int:
        """The size of the aggregate of the collected records, in bytes; 0 if there are none."""
        return self._message_bytes + _AROUND_MESSAGE if self._records else 0

    def add(self, record: UserRecord) -> AggregatedRecord | None:
        """Collect ``record``.

        Returns:
            The records collected before, if there was no room for ``record`` with them; put this
            before anything that is collected from now on.
        """
        full, added = None, self._bytes_for(record)
        if self._records and not self._has_room_for(added):
            full = self.flush()
            # The tables are empty again as well.
            added = self._bytes_for(record)
        self._message_bytes += added
        self._keys.setdefault(record.partition_key, len(self._keys))
        if record.explicit_hash_key is not None:
            self._hash_keys.setdefault(record.explicit_hash_key, len(self._hash_keys))
        self._records.append(record)
        return full

    def flush(self) -> AggregatedRecord | None:
        """Return the collected records, ``None`` if there are none, and start a new aggregate."""
        if not self._records:
            return None
        packed = self._packed()
        self._records, self._keys, self._hash_keys = [], {}, {}
        self._message_bytes = 0
        return packed

    def _has_room_for(self, added: int) -> bool:
        return len(self._records) < self._max_records and self.size + added <= self._max_bytes

    def _bytes_for(self, record: UserRecord) -> int:
        """Return by how many bytes ``record`` makes the message longer."""
        key, hash_key = record.partition_key, record.explicit_hash_key
        # Each field is a byte of tag, a number or a length, and the bytes themselves.
        inside = 1 + _varint_bytes(self._keys.get(key, len(self._keys)))
        inside += _field_bytes(len(record.data))
        added = 0 if key in self._keys else _field_bytes(len(key.encode()))
        if hash_key is not None:
            inside += 1 + _varint_bytes(self._hash_keys.get(hash_key, len(self._hash_keys)))
            added += 0 if hash_key in self._hash_keys else _field_bytes(len(hash_key))
        return added + _field_bytes(inside)

    def _packed(self) -> AggregatedRecord:
        first = self._records[0]
        if len(self._records) == 1:
            return AggregatedRecord(
                data=first.data,
                partition_key=first.partition_key,
                explicit_hash_key=first.explicit_hash_key,
                user_records=1,
            )
        return AggregatedRecord(
            data=self._packed_message(),
            partition_key=KPL_PARTITION_KEY,
            explicit_hash_key=str(hash_key_of(first.partition_key, first.explicit_hash_key)),
            user_records=len(self._records),
        )

    def _packed_message(self) -> bytes:
        message = aggregate_class()()
        message.partition_key_table.extend(self._keys)
        message.explicit_hash_key_table.extend(self._hash_keys)
        for record in self._records:
            packed = message.records.add()
            packed.partition_key_index = self._keys[record.partition_key]
            packed.data = record.data
            if record.explicit_hash_key is not None:
                packed.explicit_hash_key_index = self._hash_keys[record.explicit_hash_key]
        return pack(message)


def _field_bytes(length: int) -> int:
    return 1 + _varint_bytes(length) + length


def _varint_bytes(number: int) -> int:
    # Most numbers are that small.
    return 1 if number < 128 else -(-number.bit_length() // 7)
