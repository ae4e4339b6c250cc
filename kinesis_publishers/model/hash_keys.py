"""Hash keys: which shard a partition key belongs to."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, Self

from attrs import frozen

if TYPE_CHECKING:
    from kinesis_publishers.model.shards import Shard

__all__ = ["LONGEST_HASH_KEY", "MAX_HASH_KEY", "HashRange", "hash_key_of", "parse_hash_key"]

MAX_HASH_KEY: Final = 2**128 - 1
LONGEST_HASH_KEY: Final = len(str(MAX_HASH_KEY))


def hash_key_of(partition_key: str, explicit_hash_key: str | None = None) -> int:
    """Return the hash key, 0 to 2**128 - 1, by which Kinesis chooses the shard of a record.

    It is the explicit one, else the MD5 of the partition key (AWS API reference, *PutRecord*).

    Raises:
        ValueError: the explicit hash key is not a decimal number of that range.
    """
    if explicit_hash_key is not None:
        return parse_hash_key(explicit_hash_key)
    digest = hashlib.md5(partition_key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def parse_hash_key(text: str) -> int:
    """Return the number that an explicit hash key is.

    Raises:
        ValueError: it is not a decimal number from 0 to 2**128 - 1.
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= LONGEST_HASH_KEY
    if not is_number or int(text) > MAX_HASH_KEY:
        raise ValueError(f"{text!r} is no hash key: a decimal number from 0 to 2**128 - 1")
    return int(text)


@frozen
class HashRange:
    """The hash keys that belong to one shard, both ends included."""

    first: int = 0
    last: int = MAX_HASH_KEY

    @classmethod
    def of(cls, shard: Shard) -> Self:
        """Return the range of ``shard``."""
        return cls(int(shard.starting_hash_key), int(shard.ending_hash_key))

    def __contains__(self, hash_key: int) -> bool:
        return self.first <= hash_key <= self.last
