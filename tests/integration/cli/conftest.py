"""A stream of one shard, and a daemon that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis
from tests.integration.cli.daemon_support import STREAM, Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with LocalKinesis.in_thread(Limits.off()) as server:
        server.create_stream(STREAM, 1)
        yield Daemon(server, tmp_path)
