"""What a producer puts, before Kinesis or an aggregate has it."""

from __future__ import annotations

from typing import Any, Final

from attrs import field, frozen

from kinesis_publishers.model.hash_keys import parse_hash_key

__all__ = ["LONGEST_PARTITION_KEY", "UserRecord"]

#: In characters (AWS API reference, PutRecord).
LONGEST_PARTITION_KEY: Final = 256


def _check_partition_key(_: object, __: Any, value: str) -> None:
    if not 1 <= len(value) <= LONGEST_PARTITION_KEY:
        raise ValueError(
            f"a partition key has 1 to {LONGEST_PARTITION_KEY} characters, not {len(value)}: "
            f"{value!r:.300}"
        )


def _check_hash_key(_: object, __: Any, value: str | None) -> None:
    if value is not None:
        parse_hash_key(value)


@frozen(kw_only=True)
class UserRecord:
    """One record as a producer puts it, by itself or inside an aggregate.

    Attributes:
        data: the payload.
        partition_key: 1 to 256 characters; decides the shard.
        explicit_hash_key: decimal; decides the shard in the place of the partition key.
    """

    data: bytes = field(repr=False)
    partition_key: str = field(validator=_check_partition_key)
    explicit_hash_key: str | None = field(default=None, validator=_check_hash_key)
