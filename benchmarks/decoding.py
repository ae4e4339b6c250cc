"""What decoding an answer costs: in Python, in native code, and for Spark until it is Arrow.

``python -m benchmarks.decoding --output benchmarks/results/decoding.json`` writes the figures as
JSON and, next to it, a Markdown table. All of it is CPU time of this process, without a network. It
needs the package in ``native/``.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.aggregation import compared
from benchmarks.canned_pages import CannedPage, Workload, cbor_text
from benchmarks.polling import environment, heading, numbers, publish
from kinesis_publishers import RecordBatch
from kinesis_publishers.aws.decoding import decode_get_records
from kinesis_publishers.model.native import SWITCH, find_native
from kinesis_publishers.testing.fakes import batch_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["measure"]

_PACKAGES = ("kinesis-publishers-native", "cbor2", "orjson", "pybase64", "pyarrow")
_ITERATOR = "x" * 200
_FREED_BYTES = 31 * 1024 * 1024


def _body(size: int, *, is_cbor: bool) -> bytes:
    """Return a full page as the service writes it."""
    workload = Workload(size, 1, 1)
    page = CannedPage(workload, 0, is_cbor=is_cbor)
    records = bytes(page.text(0, 1_790_000_000_000, range(workload.page_records)))
    if not is_cbor:
        head = b'{"MillisBehindLatest":0,"NextShardIterator":"%s","Records":[' % _ITERATOR.encode()
        return head + records + b"]}"
    iterator = cbor_text("NextShardIterator") + cbor_text(_ITERATOR)
    return b"\xbf" + iterator + cbor_text("Records") + b"\x9f" + records + b"\xff\xff"


def _switched(value: str, work: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        if os.environ[SWITCH] != value:
            os.environ[SWITCH] = value
            find_native.cache_clear()
        return work()

    return run


def _in_arrow(body: bytes, *, is_cbor: bool) -> object:
    empty = batch_of([])
    page = decode_get_records(body, is_cbor=is_cbor, is_packed=True)
    batch = RecordBatch.from_page(page, shard=empty.shard, requested_at=empty.requested_at)
    return batch.to_arrow()


def measure(sizes: list[int], repetitions: int) -> list[dict[str, Any]]:
    """Return a row for each encoding and size: milliseconds per MB of payload."""
    os.environ[SWITCH] = "1"
    find_native.cache_clear()
    if find_native()[0] is None:
        sys.exit(f"Records are decoded in {find_native()[1]}: pip install ./native")
    # glibc then keeps the memory of a page for the next one, as in a reader (aiohttp_carrier.py).
    bytearray(_FREED_BYTES)
    rows = []
    for is_cbor in (True, False):
        for size in sizes:
            body = _body(size, is_cbor=is_cbor)
            objects = partial(decode_get_records, body, is_cbor=is_cbor)
            arrow = partial(_in_arrow, body, is_cbor=is_cbor)
            candidates = {
                "python": _switched("0", objects),
                "native": _switched("1", objects),
                "python_arrow": _switched("0", arrow),
                "native_arrow": _switched("1", arrow),
            }
            megabytes = size * Workload(size, 1, 1).page_records / 1e6
            seconds = compared(candidates, repetitions)
            rows.append(
                {
                    "encoding": "CBOR" if is_cbor else "JSON",
                    "record_bytes": size,
                    **{name: one * 1000 / megabytes for name, one in seconds.items()},
                }
            )
    return rows


def _table(rows: list[dict[str, Any]], command: str, versions: dict[str, str]) -> str:
    lines = [
        *heading("Decoding", command, versions),
        "CPU milliseconds per MB of payload, of full pages.",
        "",
        "| encoding | record | Python | native | times | Arrow, Python | native | times |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        figures = [
            f"{row[f'python{of}']:.2f} | {row[f'native{of}']:.2f} "
            f"| {row[f'python{of}'] / row[f'native{of}']:.1f}"
            for of in ("", "_arrow")
        ]
        lines.append(f"| {row['encoding']} | {row['record_bytes']:,} B | {' | '.join(figures)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="200,1024,10240", help="payload sizes in bytes")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--output", type=Path, help="JSON; the table goes next to it as .md")
    arguments = parser.parse_args()
    rows = measure(numbers(arguments.sizes), arguments.repetitions)
    command = f"python -m benchmarks.decoding {shlex.join(sys.argv[1:])}".strip()
    versions = environment(_PACKAGES)
    result = {"command": command, "environment": versions, "rows": rows}
    publish(_table(rows, command, versions), result, arguments.output)


if __name__ == "__main__":
    main()
