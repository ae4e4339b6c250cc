"""Records as a producer puts them."""

from __future__ import annotations

from typing import Any, Final

from attrs import field, frozen

from kinesis_publishers.model.shards import parse_hash_key

LONGEST_PARTITION_KEY: Final = 256  # Characters (AWS API reference, PutRecord).
LONGEST_MARKER: Final = 256  # Characters: thousands of records share what one begins with.


def _check_partition_key(_: object, __: Any, value: Any) -> None:
    if value is None:
        raise ValueError("a UserRecord has a partition key: put (data, None) without one")
    if not 1 <= len(value) <= LONGEST_PARTITION_KEY:
        raise ValueError(
            f"a partition key must have 1 to {LONGEST_PARTITION_KEY} characters, not {len(value)}: "
            f"{value!r:.300}"
        )
    value.encode()  # Raises a ValueError for what UTF-8 does not have.


def _check_hash_key(_: object, __: Any, value: str | None) -> None:
    if value is not None:
        parse_hash_key(value)


def check_marker(marker: str) -> None:
    """Check that readers will have a marker as it is; raises ``ValueError``."""
    try:
        is_marker = bool(marker.rpartition("/")[0] and marker.encode())
    except (AttributeError, UnicodeEncodeError):
        is_marker = False
    if not is_marker or len(marker) > LONGEST_MARKER:
        raise ValueError(
            f"a marker must be a text of at most {LONGEST_MARKER} characters, of UTF-8 only, and "
            f"with something in front of a slash, as in batch-7/1; not {marker!r:.300}"
        )


def _check_marker(_: object, __: Any, value: str | None) -> None:
    if value is not None:
        check_marker(value)


@frozen(kw_only=True)
class UserRecord:
    """One record as a producer puts it, by itself or inside an aggregate.

    Attributes:
        data: the payload.
        partition_key: 1 to 256 characters; determines the shard.
        explicit_hash_key: decimal; determines the shard instead of the partition key.
        marker: a text such as ``batch-7/1``, of at most 256 characters, by which readers recognize
            the record if it is written again; what stands in front of its last slash is stored once
            for several records. A record with a marker is written inside an aggregate.
    """

    data: bytes = field(repr=False)
    partition_key: str = field(validator=_check_partition_key)
    explicit_hash_key: str | None = field(default=None, validator=_check_hash_key)
    marker: str | None = field(default=None, validator=_check_marker)
