"""Aggregates of the sample shard, sound and damaged, and what is inside of them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from attrs import evolve

from kinesis_publishers.aggregation import pack_user_records
from kinesis_publishers.model import hash_key_of
from kinesis_publishers.testing.fakes import deaggregated, sample_aggregates, sample_shard

if TYPE_CHECKING:
    from kinesis_publishers import Record, UserRecord

AGGREGATES = sample_aggregates(3, 4)
INSIDE = deaggregated(AGGREGATES)
# A child of a split, which has the lower half of the hash keys.
LOWER = evolve(sample_shard(1, parent=0), ending_hash_key=str(2**127 - 1))
# Which of the records inside belong to that child.
IS_LOWER = [hash_key_of(one.partition_key) < 2**127 for one in INSIDE]


def aggregate_of(*records: UserRecord) -> bytes:
    """Return an aggregate of ``records``, of a single one too: twice, as no producer does."""
    packed = pack_user_records(records if len(records) > 1 else records * 2)
    return packed.data


def with_data(record: Record, data: bytes) -> Record:
    return record._replace(data=data)


def wrapped(message: bytes) -> bytes:
    """Return ``message`` as an aggregate with the right checksum."""
    return bytes.fromhex("f3899ac2") + message + hashlib.md5(message).digest()


# A record that names the partition key 5 of none.
CONTRADICTION = bytes.fromhex("1a0408051a00")
