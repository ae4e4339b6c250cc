"""The 128-bit hash key space: where a partition key falls and how ranges divide it."""

from __future__ import annotations

from hashlib import md5

__all__ = ["HASH_KEY_COUNT", "even_starts", "hash_of_partition_key"]

HASH_KEY_COUNT = 1 << 128


def hash_of_partition_key(partition_key: str) -> int:
    digest = md5(partition_key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def even_starts(count: int) -> list[int]:
    """Return where each of ``count`` equal ranges begins, as CreateStream lays them out."""
    width = HASH_KEY_COUNT // count
    return [width * number for number in range(count)]
