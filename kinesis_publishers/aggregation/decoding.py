"""Deaggregates records: decodes what the producer put inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import frozen

from kinesis_publishers.aggregation.wire_format import MAGIC, unpack
from kinesis_publishers.errors import AggregationError
from kinesis_publishers.model.records import LONGEST_PARTITION_KEY
from kinesis_publishers.model.shards import LONGEST_HASH_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["UserRecordColumns", "decode_aggregate", "has_aggregates"]

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
    message = unpack(data)
    if message is None:
        return None
    keys, hash_keys = list(message.partition_key_table), list(message.explicit_hash_key_table)
    if not (_are_texts(keys, LONGEST_PARTITION_KEY) and _are_texts(hash_keys, LONGEST_HASH_KEY)):
        return None
    records = message.records
    try:
        return UserRecordColumns(
            payloads=[record.data for record in records],
            partition_keys=[keys[record.partition_key_index] for record in records],
            explicit_hash_keys=[
                hash_keys[record.explicit_hash_key_index]
                if record.HasField("explicit_hash_key_index")
                else None
                for record in records
            ],
        )
    except IndexError:
        raise AggregationError(
            "a sub-record names a partition key or an explicit hash key that the aggregate does "
            "not have: its producer packed it wrongly"
        ) from None


def _are_texts(keys: Sequence[object], longest: int) -> bool:
    # What is not UTF-8 comes as bytes. Thousands of records may share one key, which columns then
    # repeat: without a bound half a megabyte becomes gigabytes.
    return all(type(key) is str and len(key) <= longest for key in keys)
