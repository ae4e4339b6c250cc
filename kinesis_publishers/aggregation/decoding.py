"""Takes aggregates apart into the records that the producer put."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from kinesis_publishers.aggregation.wire_format import MAGIC, unpack
from kinesis_publishers.errors import AggregationError
from kinesis_publishers.model.hash_keys import LONGEST_HASH_KEY
from kinesis_publishers.model.user_records import LONGEST_PARTITION_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["UserRecordColumns", "decode_aggregate", "has_aggregates", "is_aggregate"]

# The first bytes that sort after everything that begins with the magic ones.
_BEHIND_MAGIC: Final = b"\xf3\x89\x9a\xc3"


@frozen(kw_only=True, eq=False)
class UserRecordColumns:
    """The records inside one aggregate, as columns of equal length.

    Attributes:
        payloads: the data of each record.
        partition_keys: the partition key of each record.
        explicit_hash_keys: the explicit hash key of each record, ``None`` where it has none.
    """

    payloads: Sequence[bytes]
    partition_keys: Sequence[str]
    explicit_hash_keys: Sequence[str | None]

    def __len__(self) -> int:
        return len(self.payloads)


def is_aggregate(data: bytes) -> bool:
    """Say whether ``data`` begins as an aggregate does; it may turn out not to be one."""
    return data.startswith(MAGIC)


def has_aggregates(payloads: Sequence[bytes]) -> bool:
    """Say whether any of ``payloads`` begins as an aggregate does.

    Asked for each page that is read, most of which have none. A comparison of bytes ends with the
    first one that differs and takes half the time of ``startswith``; text is less than the magic
    bytes, and of random payloads all but a twentieth is.
    """
    candidates = [one for one in payloads if one >= MAGIC]
    return any(one < _BEHIND_MAGIC for one in candidates)


def decode_aggregate(data: bytes) -> UserRecordColumns | None:
    """Return the records in ``data``, in their order.

    Returns:
        ``None`` if ``data`` is not an aggregate: it begins with other bytes, its checksum is wrong,
        it does not parse, or a key in it is longer than Kinesis allows. It is an ordinary record
        then.

    Raises:
        AggregationError: it is an aggregate, and one of its records names a partition key or an
            explicit hash key that the aggregate does not have.
    """
    parts = unpack(data)
    if parts is None:
        return None
    keys = [key for part in parts for key in part.partition_key_table]
    hash_keys = [key for part in parts for key in part.explicit_hash_key_table]
    if not (_are_texts(keys, LONGEST_PARTITION_KEY) and _are_texts(hash_keys, LONGEST_HASH_KEY)):
        return None
    try:
        return UserRecordColumns(
            payloads=[record.data for record in _records(parts)],
            partition_keys=[keys[record.partition_key_index] for record in _records(parts)],
            explicit_hash_keys=_explicit_hash_keys(_records(parts), hash_keys),
        )
    except IndexError:
        raise _contradiction(parts, len(keys), len(hash_keys)) from None


def _records(parts: Sequence[Any]) -> Iterable[Any]:
    # Nearly all have one, and iterate faster without a chain.
    return parts[0].records if len(parts) == 1 else chain(*(part.records for part in parts))


def _are_texts(keys: Sequence[object], longest: int) -> bool:
    # What is not UTF-8 comes as bytes. Thousands of records may share one key, which columns then
    # repeat: without a bound half a megabyte becomes gigabytes.
    return all(type(key) is str and len(key) <= longest for key in keys)


def _explicit_hash_keys(records: Iterable[Any], hash_keys: Sequence[str]) -> Sequence[str | None]:
    return [
        hash_keys[record.explicit_hash_key_index]
        if record.HasField("explicit_hash_key_index")
        else None
        for record in records
    ]


def _contradiction(parts: Sequence[Any], keys: int, hash_keys: int) -> AggregationError:
    count = sum(len(part.records) for part in parts)
    for index, record in enumerate(_records(parts)):
        key, has_hash_key = record.partition_key_index, record.HasField("explicit_hash_key_index")
        if key >= keys:
            what = f"partition key {key} of {keys}"
        elif has_hash_key and record.explicit_hash_key_index >= hash_keys:
            what = f"explicit hash key {record.explicit_hash_key_index} of {hash_keys}"
        else:
            continue
        return AggregationError(
            f"sub-record {index} of {count} names {what} (they count from 0): its producer "
            "packed the aggregate wrongly"
        )
    raise AssertionError("every index is in its table")
