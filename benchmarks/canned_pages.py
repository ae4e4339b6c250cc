"""Pages of records, for answers and events, that are prepared once and renumbered in place.

A client that drops what it has seen already must get new sequence numbers with every page, and one
that looks for a place by its time must find later pages later. All records of a page have the same
width, so one digit of all of them is one strided assignment: a page of 10,000 records is renumbered
in a fraction of a millisecond.
"""

from __future__ import annotations

import base64
import json
import math
import random
import re
import sys
import time
from array import array
from dataclasses import dataclass

import cbor2

__all__ = [
    "CannedPage",
    "Timeline",
    "Workload",
    "cbor_text",
    "page_of",
    "place_of",
    "sequence_number",
]

#: The most that one GetRecords returns (AWS service limits).
MAX_PAGE_BYTES = 10 * 1024 * 1024
MAX_PAGE_RECORDS = 10_000
_NAME = re.compile(
    r"bytes-(\d+)\.shards-(\d+)\.pages-(\d+)(?:\.records-(\d+))?(?:\.(json))?(?:\.(open|trickle|burst|flow))?"
)
# 56 digits as AWS sends them: a prefix that names the shard, the page, the place within the page.
_PREFIX = "4966789012345678901234567890123456789{shard:04d}"
_PAGE_DIGITS = 9
_PLACE_DIGITS = 6
_MILLIS_DIGITS = 12
# A page has the records of ten seconds, evenly spread: a full one is what a shard takes in that
# time at most. Only digits above these differ between the pages.
_PAGE_MILLIS = 10_000
# How often a page comes where more come, each at one instant.
_TRICKLE_MILLIS = 200
# What arrives later comes page by page, each at one instant: almost at once, or so that a page of
# 10,000 records of 1 KiB is what a shard takes in ten seconds, with pages of 2,000 four times that.
_STEP_MILLIS = {"burst": 1, "flow": 500}
# Within any retention, however many pages there are.
_MAX_PAST_PAGES = 100_000


@dataclass(frozen=True)
class Workload:
    """What a stream holds; the stream's name says it.

    Attributes:
        record_bytes: the size of each payload.
        shards: how many shards the stream has.
        pages: pages per shard, after which the shard ends; 0 is an open shard that stays empty.
        records_per_page: how many records a page has; 0 is as many as a page may have.
        content: random bytes, which nothing compresses, unless it is ``json``.
        tip: what comes after the pages: nothing, and the shard ends; ``open`` is nothing, and the
            shard stays open; ``trickle`` is a further page of the first shard every 200 ms.
    """

    record_bytes: int
    shards: int
    pages: int
    records_per_page: int = 0
    tip: str = ""
    content: str = ""

    @classmethod
    def parse(cls, name: str) -> Workload | None:
        """Return what the stream ``name`` holds, or ``None`` if there is no such stream."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        *numbers, content, tip = match.groups("")
        return cls(*(int(number or 0) for number in numbers), tip=tip, content=content)

    @property
    def name(self) -> str:
        name = f"bytes-{self.record_bytes}.shards-{self.shards}.pages-{self.pages}"
        if self.records_per_page:
            name += f".records-{self.records_per_page}"
        return ".".join(filter(None, (name, self.content, self.tip)))

    @property
    def is_open(self) -> bool:
        """Whether the shards never end."""
        return bool(self.tip) or self.pages == 0

    @property
    def arrives_later(self) -> bool:
        """Whether the pages arrive only when they are released."""
        return self.tip in _STEP_MILLIS

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


class Timeline:
    """Which pages a shard has at an instant, and when each record of them arrived.

    Those that a stream has from the beginning have arrived one after the other, the last one just
    before the timeline is made; readers compare arrival times with the retention, and with each
    other.
    """

    def __init__(self) -> None:
        self._began_millis = _now_millis() // _PAGE_MILLIS * _PAGE_MILLIS
        self._released: dict[Workload, int] = {}

    def release(self, workload: Workload) -> None:
        """Let the pages of a stream arrive, from now on."""
        self._released[workload] = _now_millis()

    def pages(self, workload: Workload, shard: int) -> int:
        """Return how many pages there are now."""
        if workload.arrives_later:
            if workload not in self._released:
                return 0
            elapsed = _now_millis() - self._released[workload]
            return min(workload.pages, 1 + elapsed // _STEP_MILLIS[workload.tip])
        if workload.tip != "trickle" or shard != 0:
            return workload.pages
        return workload.pages + (_now_millis() - self._began_millis) // _TRICKLE_MILLIS

    def arrival_millis(self, workload: Workload, page: int) -> int:
        """Return when the first record of ``page`` arrived; the others came at :func:`_offset`."""
        if workload.arrives_later:
            return self._released[workload] + page * _STEP_MILLIS[workload.tip]
        if page >= workload.pages:
            return self._began_millis + (page - workload.pages + 1) * _TRICKLE_MILLIS
        past_pages = min(workload.pages, _MAX_PAST_PAGES)
        return self._began_millis + (page - past_pages) * _PAGE_MILLIS

    def place_since(self, workload: Workload, millis: float) -> tuple[int, int]:
        """Return page and place of the first record that did not arrive before ``millis``."""
        if workload.arrives_later:
            # Nothing is there yet, or what comes first is not before it.
            since = millis - self._released.get(workload, millis)
            return max(0, math.ceil(since / _STEP_MILLIS[workload.tip])), 0
        since_first = millis - self.arrival_millis(workload, 0)
        page = max(0, int(since_first // _PAGE_MILLIS)) if workload.pages else 0
        if page < workload.pages:
            into = max(0.0, since_first - page * _PAGE_MILLIS)
            return page, math.ceil(into * workload.page_records / _PAGE_MILLIS)
        since_last = millis - self._began_millis
        return workload.pages + max(0, math.ceil(since_last / _TRICKLE_MILLIS) - 1), 0

    def millis_behind(self, workload: Workload, shard: int, page: int, place: int) -> int:
        """Return how far behind the tip a reader at the record at ``place`` is."""
        if page >= self.pages(workload, shard):
            return 0
        arrived = self.arrival_millis(workload, page)
        if page < workload.pages and not workload.arrives_later:
            arrived += _offset(workload, place)
        return max(1, _now_millis() - arrived)


def _offset(workload: Workload, place: int) -> int:
    """Return how long after the first record of its page the one at ``place`` arrived."""
    return place * _PAGE_MILLIS // workload.page_records


def _now_millis() -> int:
    return time.time_ns() // 1_000_000


def page_of(sequence_number: str) -> int:
    """Return the page that holds the record with this number."""
    return int(sequence_number[-_PAGE_DIGITS - _PLACE_DIGITS : -_PLACE_DIGITS])


def place_of(sequence_number: str) -> int:
    """Return the place within its page of the record with this number."""
    return int(sequence_number[-_PLACE_DIGITS:])


def sequence_number(shard: int, page: int, place: int) -> str:
    """Return the number of the record at ``place`` in ``page``."""
    return f"{_PREFIX.format(shard=shard)}{page:0{_PAGE_DIGITS}d}{place:0{_PLACE_DIGITS}d}"


class CannedPage:
    """The ``Records`` of one shard's answers or events; holds one page at a time."""

    def __init__(self, workload: Workload, shard: int, *, is_cbor: bool = False) -> None:
        source = random.Random(shard)
        write = _cbor_record if is_cbor else _record
        records = [
            write(source, _payload(source, workload), (shard, place))
            for place in range(workload.page_records)
        ]
        self._separator = b"" if is_cbor else b","
        self._stride = len(records[0]) + len(self._separator)
        self._first_page_digit = records[0].index(b"4966789") + len(_PREFIX.format(shard=shard))
        # The digit before the decimal point stays the same until 2033.
        self._first_millis_digit = 0 if is_cbor else records[0].index(b".") + 1
        self._workload = workload
        # Per digit, one of each record.
        width = len(str(_PAGE_MILLIS - 1))
        offsets = [b"%0*d" % (width, _offset(workload, place)) for place in range(len(records))]
        self._offset_digits = [bytes(digits) for digits in zip(*offsets, strict=True)]
        self._text = bytearray(self._separator.join(records))
        length = self._stride * workload.page_records - len(self._separator)
        if len(self._text) != length:
            raise AssertionError("the records of a canned page differ in width")

    def text(self, page: int, arrival_millis: int, places: range) -> memoryview:
        """Return some records with the numbers and times of ``page``; valid until the next call."""
        self._write(self._first_page_digit, f"{page:0{_PAGE_DIGITS}d}")
        if self._first_millis_digit:
            self._write_times(page, str(arrival_millis)[1:])
        else:
            self._write_binary_times(page, arrival_millis)
        start, stop = places.start * self._stride, places.stop * self._stride
        return memoryview(self._text)[start : max(start, stop - len(self._separator))]

    def _write_binary_times(self, page: int, arrival_millis: int) -> None:
        workload = self._workload
        is_past = page < workload.pages and not workload.arrives_later
        places = range(workload.page_records)
        offsets = (_offset(workload, place) if is_past else 0 for place in places)
        times = array("Q", (arrival_millis + offset for offset in offsets))
        if sys.byteorder == "little":
            times.byteswap()
        digits = times.tobytes()
        for index in range(_TIME_BYTES):
            at = len(_CBOR_BEFORE_TIME) + index
            self._text[at :: self._stride] = digits[index::_TIME_BYTES]

    def _write_times(self, page: int, digits: str) -> None:
        if page >= self._workload.pages or self._workload.arrives_later:
            self._write(self._first_millis_digit, digits)
            return
        constant = len(digits) - len(self._offset_digits)
        self._write(self._first_millis_digit, digits[:constant])
        for index, of_records in enumerate(
            self._offset_digits, start=self._first_millis_digit + constant
        ):
            self._text[index :: self._stride] = of_records

    def _write(self, first: int, digits: str) -> None:
        for index, digit in enumerate(digits.encode(), start=first):
            self._text[index :: self._stride] = bytes([digit]) * self._workload.page_records


def _payload(source: random.Random, workload: Workload) -> bytes:
    if not workload.content:
        return source.randbytes(workload.record_bytes)
    text = ""
    while len(text) < workload.record_bytes:
        order = {
            "orderId": source.randrange(10**9),
            "customer": f"customer-{source.randrange(10**8):08d}",
            "sku": f"SKU-{source.randrange(10**6):06d}",
            "price": round(source.random() * 500, 2),
            "status": source.choice(["NEW", "PAID", "SHIPPED"]),
        }
        text += json.dumps(order) + "\n"
    return text[: workload.record_bytes].encode()


def _record(source: random.Random, payload: bytes, key: tuple[int, int]) -> bytes:
    shard, place = key
    data = base64.b64encode(payload).decode()
    return (
        f'{{"ApproximateArrivalTimestamp":1.{"0" * _MILLIS_DIGITS}E9,'
        f'"Data":"{data}","PartitionKey":"customer-{source.randrange(10**8):08d}",'
        f'"SequenceNumber":"{sequence_number(shard, 0, place)}"}}'
    ).encode()


def cbor_text(text: str) -> bytes:
    """Return a short text as an item of CBOR."""
    return bytes(cbor2.dumps(text))


_TIME_BYTES = 8
# A map of indefinite length, as AWS sends it, and the tag 1 on an integer of eight bytes.
_CBOR_BEFORE_TIME = b"\xbf" + cbor_text("ApproximateArrivalTimestamp") + b"\xc1\x1b"


def _cbor_record(source: random.Random, payload: bytes, key: tuple[int, int]) -> bytes:
    shard, place = key
    members = {
        "Data": payload,
        "PartitionKey": f"customer-{source.randrange(10**8):08d}",
        "SequenceNumber": sequence_number(shard, 0, place),
    }
    rest = b"".join(cbor_text(name) + cbor2.dumps(value) for name, value in members.items())
    return _CBOR_BEFORE_TIME + bytes(_TIME_BYTES) + rest + b"\xff"
