"""The lists in ``CONTRIBUTING.md`` are complete: their edits alone add a part that works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.docs.doc_pages import ROOT, blocks_of

if TYPE_CHECKING:
    from pathlib import Path

_PAGE = ROOT / "CONTRIBUTING.md"
# Opens everything that the page adds, without a call to the service.
_USE = """
import asyncio, gc, sys
from kinesis_publishers import KinesisDataFetcher, Properties
from kinesis_publishers.config import PendingConfig

properties = Properties.parse(
    {
        "aws.region": "eu-west-1",
        "kinesis.streams": "orders",
        "kinesis.pending.example": "7",
        "kinesis.stream.recordpublisher": "EXAMPLE",
        "kinesis.checkpoint.application": "billing",
        "kinesis.checkpoint.store": "example",
        "kinesis.metrics.sinks": "log,example",
    }
)
assert PendingConfig.from_properties(properties).example == 7


async def main():
    async with KinesisDataFetcher.from_properties(properties, print):
        found = {type(one).__name__ for one in gc.get_objects()}
        print(*sorted(name for name in found if name.startswith("Example")))


asyncio.run(main())
"""


def apply_edits(page: Path, root: Path) -> None:
    """Make the edits that a page describes: new files in Python, changes as differences."""
    for block in blocks_of(page):
        if block.language == "python":
            path, _, text = block.code.removeprefix("# ").partition("\n")
            assert not (root / path).exists(), path
            (root / path).write_text(text, encoding="utf-8")
        elif block.language == "diff":
            header, *lines = block.code.splitlines()
            file = root / header.removeprefix("+++ ")
            text = file.read_text(encoding="utf-8")
            before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
            after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
            assert text.count(before) == 1, f"{header}: this is not in the file:\n{before}"
            file.write_text(text.replace(before, after), encoding="utf-8")


def test_the_edits_of_the_page_add_parts_that_work(tmp_path: Path) -> None:
    copied = shutil.ignore_patterns("__pycache__")
    for package in ("kinesis_publishers", "kinesis_publishers_spark"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=copied)
    apply_edits(_PAGE, tmp_path)
    used = subprocess.run(
        [sys.executable, "-c", _USE],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert used.returncode == 0, used.stderr
    assert used.stdout.split() == [
        "ExampleCheckpointStore",
        "ExampleRecordPublisherFactory",
        "ExampleSink",
    ]


def test_every_file_and_folder_of_the_lists_exists() -> None:
    prose = re.sub(r"^```.*?^```", "", _PAGE.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", prose)
    commands = [block.code for block in blocks_of(_PAGE) if block.language == "sh"]
    named += [path for code in commands for path in re.findall(r"\btests/\S+", code)]
    roots = [ROOT / name for name in ("", "kinesis_publishers", "kinesis_publishers_spark")]
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []
