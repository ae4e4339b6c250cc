"""Stopping a query in full flow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from conftest import FROM_THE_START
from processes import command_line, descendants, wait_until_gone

if TYPE_CHECKING:
    from conftest import QueryRunner

pytestmark = pytest.mark.spark


def test_stopping_in_full_flow_leaves_no_process_behind(runner: QueryRunner, flights: str) -> None:
    runner.server.put_many(flights, [(f"key-{n}", bytes(10_000)) for n in range(20_000)])
    with runner.run(**FROM_THE_START, maxRecordsPerTrigger="500") as running:
        running.wait_for_rows(1500)
        sources = source_processes()
        assert len(sources) == 1, "the source runs in a process of its own"
    wait_until_gone(sources)
    assert source_processes() == []


def source_processes() -> list[int]:
    # The daemons that fork task workers belong to the session and stay.
    return [
        pid
        for pid in descendants(os.getpid())
        if "python_streaming_source_runner" in command_line(pid)
    ]
