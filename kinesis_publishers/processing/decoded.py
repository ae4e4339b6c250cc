"""Records with the values of their payloads."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from kinesis_publishers.formats import Decoder
from kinesis_publishers.model import Record

_WithValue: Any = namedtuple("_WithValue", (*Record._fields, "value"))  # type: ignore[misc]


class DecodedRecord(_WithValue, Record):  # type: ignore[misc]
    """A record with the value of its payload, which is a column of a data frame, too."""

    __slots__ = ()

    def __hash__(self) -> int:
        # A value may be a dict.
        return hash(self[:-1])


def value_of(record: Record) -> Any:
    """Return the value of a record, ``None`` without one."""
    return record.value if isinstance(record, DecodedRecord) else None


def decoded(record: Record, decode: Decoder) -> DecodedRecord:
    """Return ``record`` with its value."""
    return tuple.__new__(DecodedRecord, (*record, decode(record.data)))
