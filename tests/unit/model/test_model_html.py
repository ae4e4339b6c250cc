"""What a notebook shows of records: short, and with the markup in them escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers import Record, read, records
from kinesis_publishers.formats.format import decoded
from kinesis_publishers.model.html import html_table
from kinesis_publishers.testing.fakes import batch_of, sample_records

(SAMPLE,) = sample_records(1)


class Cells(HTMLParser):
    """The tags and the texts of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[Any]) -> None:
        assert not attrs
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@given(key=st.text(max_size=256), data=st.binary(max_size=500))
def test_nothing_that_a_producer_writes_becomes_markup(key: str, data: bytes) -> None:
    for hostile in (key, f"<script>{key}</script>"):
        record = SAMPLE._replace(
            partition_key=hostile, data=hostile.encode(errors="replace") + data
        )
        html = record._repr_html_()
        assert Cells(html).tags == {"table", "caption", "tr", "th", "td"}
        assert len(html) < 3000


def test_a_record_is_a_row() -> None:
    cells = Cells(SAMPLE._replace(data=b"\x00\xff\xe2\x80\xaeab")._repr_html_())
    assert cells.texts[0] == f"Record {SAMPLE.id}"
    assert cells.texts[-4:] == [
        "key-0",
        SAMPLE.sequence_number,
        "2026-01-01T00:00:00.000+00:00",
        # What would change the direction of the text is an escape.
        r"\x00\\xff\u202eab",
    ]


def test_a_value_is_shown_and_a_long_one_shortened() -> None:
    record = decoded(SAMPLE, lambda _: {"id": 7, "text": "x" * 10_000})
    html = record._repr_html_()
    assert "<th>value</th>" in html
    assert re.search("id.*7.*xxx[.][.][.]xxx", html)
    assert len(html) < 1000


def test_a_large_payload_is_cut() -> None:
    html = Record(b"x" * 10_000_000, *SAMPLE[1:])._repr_html_()
    assert "<td>" + "x" * 80 + "…</td>" in html


def test_a_batch_shows_its_first_records_and_counts_all() -> None:
    html = batch_of(sample_records(1234))._repr_html_()
    assert "1,234 records of 12,340 bytes, the first 5 of which are" in html
    assert html.count("<tr>") == 6
    small = batch_of(sample_records(2))._repr_html_()
    assert "2 records of 20 bytes</caption>" in small
    assert small.count("<tr>") == 3
    assert "0 records" in batch_of([])._repr_html_()


def test_a_stream_of_records_says_its_state_and_reads_nothing() -> None:
    for stream in (read, records):
        assert "not begun" in stream(stream="orders", region="eu-west-1")._repr_html_()


def test_a_table_without_rows_is_its_caption() -> None:
    assert html_table("a<b", []) == "<table><caption>a&lt;b</caption><tr></tr></table>"
