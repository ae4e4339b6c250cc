"""A local stream that is read with the simple API, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis
from tests.integration.processing.processing_support import STREAM, Orders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each page be a delivery of its own, however long the one before takes."""
    monkeypatch.setattr("kinesis_publishers.engine.shard_consumer._ENOUGH_RECORDS", 1)


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Orders]:
    """A stream of two shards, and a file for the checkpoints of its readers."""
    with LocalKinesis.in_thread(Limits.off()) as server:
        server.create_stream(STREAM, 2)
        yield Orders(server, tmp_path / "checkpoints.sqlite3")
