"""Pages of records, for answers and events, that are prepared once and renumbered in place.

A client that drops what it has seen already must get new sequence numbers with every page. All
records of a page have the same width, so one digit of all of them is one strided assignment: a page
of 10,000 records is renumbered in a fraction of a millisecond.
"""

from __future__ import annotations

import base64
import random
import re
import time
from dataclasses import dataclass

__all__ = ["CannedPage", "Workload", "page_of", "sequence_number"]

#: The most that one GetRecords returns (AWS service limits).
MAX_PAGE_BYTES = 10 * 1024 * 1024
MAX_PAGE_RECORDS = 10_000
_NAME = re.compile(r"bytes-(\d+)\.shards-(\d+)\.pages-(\d+)(?:\.records-(\d+))?")
# 56 digits as AWS sends them: a prefix that names the shard, the page, the place within the page.
_PREFIX = "4966789012345678901234567890123456789{shard:04d}"
_PAGE_DIGITS = 9
_PLACE_DIGITS = 6
# Readers compare arrival times with the retention.
_AGE_MILLIS = 60_000


@dataclass(frozen=True)
class Workload:
    """What a stream holds; the stream's name says it.

    Attributes:
        record_bytes: the size of each payload.
        shards: how many shards the stream has.
        pages: pages per shard, after which the shard ends; 0 is an open shard that stays empty.
        records_per_page: how many records a page has; 0 is as many as a page may have.
    """

    record_bytes: int
    shards: int
    pages: int
    records_per_page: int = 0

    @classmethod
    def parse(cls, name: str) -> Workload | None:
        """Return what the stream ``name`` holds, or ``None`` if there is no such stream."""
        match = _NAME.fullmatch(name)
        return cls(*map(int, match.groups("0"))) if match else None

    @property
    def name(self) -> str:
        name = f"bytes-{self.record_bytes}.shards-{self.shards}.pages-{self.pages}"
        return f"{name}.records-{self.records_per_page}" if self.records_per_page else name

    @property
    def page_records(self) -> int:
        return self.records_per_page or min(MAX_PAGE_RECORDS, MAX_PAGE_BYTES // self.record_bytes)

    @property
    def records(self) -> int:
        """All records of all shards."""
        return self.page_records * self.pages * self.shards

    @property
    def payload_bytes(self) -> int:
        """The payload of all records of all shards."""
        return self.records * self.record_bytes


def page_of(sequence_number: str) -> int:
    """Return the page that holds the record with this number."""
    return int(sequence_number[-_PAGE_DIGITS - _PLACE_DIGITS : -_PLACE_DIGITS])


def sequence_number(shard: int, page: int, place: int) -> str:
    """Return the number of the record at ``place`` in ``page``."""
    return f"{_PREFIX.format(shard=shard)}{page:0{_PAGE_DIGITS}d}{place:0{_PLACE_DIGITS}d}"


class CannedPage:
    """The ``Records`` of one shard's answers or events, as JSON text; holds one page at a time."""

    def __init__(self, workload: Workload, shard: int) -> None:
        source = random.Random(shard)
        first_arrival = time.time_ns() // 1_000_000 - _AGE_MILLIS
        records = [
            _record(source, workload.record_bytes, first_arrival + place, (shard, place))
            for place in range(workload.page_records)
        ]
        self._stride = len(records[0]) + 1
        self._first_digit = records[0].index(b"4966789") + len(_PREFIX.format(shard=shard))
        self._count = workload.page_records
        self._text = bytearray(b",".join(records))
        if len(self._text) != self._stride * workload.page_records - 1:
            raise AssertionError("the records of a canned page differ in width")

    def renumbered(self, page: int) -> bytearray:
        """Return the text with the sequence numbers of ``page``; valid until the next call."""
        for index, digit in enumerate(f"{page:0{_PAGE_DIGITS}d}".encode()):
            self._text[self._first_digit + index :: self._stride] = bytes([digit]) * self._count
        return self._text


def _record(source: random.Random, size: int, millis: int, key: tuple[int, int]) -> bytes:
    shard, place = key
    data = base64.b64encode(source.randbytes(size)).decode()
    return (
        f'{{"ApproximateArrivalTimestamp":{millis / 1e12:.12f}E9,'
        f'"Data":"{data}","PartitionKey":"customer-{source.randrange(10**8):08d}",'
        f'"SequenceNumber":"{sequence_number(shard, 0, place)}"}}'
    ).encode()
