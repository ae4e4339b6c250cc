"""Records as a producer puts them."""

from __future__ import annotations

from typing import Any, Final

from attrs import field, frozen

from kinesis_publishers.model.shards import parse_hash_key

LONGEST_PARTITION_KEY: Final = 256  # Characters (AWS API reference, PutRecord).
LONGEST_MARKER: Final = 256  # Characters: thousands of records share what one begins with.


def check_fields(partition_key: Any, explicit_hash_key: Any = None, marker: Any = None) -> None:
    """Check all fields of a record but its data; raises ``ValueError``."""
    if not isinstance(partition_key, str):
        raise ValueError(
            f"a partition key must be a text, not {type(partition_key).__name__}: "
            f"{partition_key!r:.300}"
        )
    if not 1 <= len(partition_key) <= LONGEST_PARTITION_KEY:
        raise ValueError(
            f"a partition key must have 1 to {LONGEST_PARTITION_KEY} characters, not "
            f"{len(partition_key)}: {partition_key!r:.300}"
        )
    try:
        partition_key.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"a partition key must have characters of UTF-8 only: {partition_key!r:.300}"
        ) from None
    problem = None if marker is None else _problem_of(marker)
    try:
        if explicit_hash_key is not None:
            parse_hash_key(explicit_hash_key)
    except (AttributeError, ValueError):
        problem = (
            "an explicit hash key must be a text, a decimal number from 0 to 2**128 - 1, not "
            f"{explicit_hash_key!r:.300}"
        )
    if problem is not None:
        raise ValueError(f"{problem} (of a record with the partition key {partition_key!r:.300})")


def _problem_of(marker: Any) -> str | None:
    """Return why readers will not have a marker as it is, ``None`` if they will."""
    try:
        is_marker = bool(marker.rpartition("/")[0] and marker.encode())
    except (AttributeError, UnicodeEncodeError):
        is_marker = False
    if is_marker and len(marker) <= LONGEST_MARKER:
        return None
    return (
        f"a marker must be a text of at most {LONGEST_MARKER} characters, of UTF-8 only, and "
        f"with something in front of a slash, as in batch-7/1; not {marker!r:.300}"
    )


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
    partition_key: str
    explicit_hash_key: str | None = None
    marker: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.partition_key is None:
            raise ValueError("a UserRecord has a partition key: put (data, None) without one")
        check_fields(self.partition_key, self.explicit_hash_key, self.marker)
