"""``leases watch``: what it shows of workers and shards, and how it tells that shards move."""

from __future__ import annotations

import asyncio
import io
from datetime import timedelta
from typing import TYPE_CHECKING

from attrs import evolve
from rich.console import Console

from kinesis_publishers.cli.leases.rows import lease_properties
from kinesis_publishers.cli.leases.showing import LeaseBoard, watch
from kinesis_publishers.cli.shared.connection import Connection
from kinesis_publishers.model import Lease
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.cli.lease_support import Application, after, application

if TYPE_CHECKING:
    from kinesis_publishers.leases.rules import Rows

__all__ = ["application"]

_NOW = ManualClock().now()


def _drawn(board: LeaseBoard, rows: Rows, seconds: float = 0.0) -> str:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(board.drawn(rows, _NOW + timedelta(seconds=seconds)))
    return capture.get()


def _line(text: str, start: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.strip().startswith(start))


def test_it_sums_up_workers_and_says_how_far_shards_are_behind(application: Application) -> None:
    progress = evolve(after(7), as_of=_NOW - timedelta(seconds=90))
    application.save(
        application.checkpoint(0, progress, Lease(owner="one", bytes_per_second=2048)),
        application.checkpoint(1, progress, Lease(owner="two", leaving="one")),
        application.checkpoint(2, after(3), Lease()),
        application.checkpoint(3, after(9).ended(), Lease()),
    )
    text = _drawn(LeaseBoard(), application.rows())
    assert _line(text, "one") == ["one", "2", "1", "2.0", "KiB"]
    assert _line(text, "shardId-000000000000")[1:4] == ["one", "1", "min"]
    assert _line(text, "shardId-000000000001")[1:4] == ["one", "->", "two"]
    assert "shardId-000000000003" not in text
    assert "and 1 shards that have ended" in text


def test_it_remembers_how_shards_have_moved(application: Application) -> None:
    board = LeaseBoard()
    for seconds, lease in enumerate(
        (Lease(owner="one"), Lease(owner="two", leaving="one"), Lease(owner="two"), Lease())
    ):
        application.save(application.checkpoint(0, after(7), lease))
        text = _drawn(board, application.rows(), seconds)
    moves = [line.strip() for line in text.splitlines() if "=>" in line]
    assert moves == [
        "00:00:01  orders/shardId-000000000000  one => one -> two",
        "00:00:02  orders/shardId-000000000000  one -> two => two",
        "00:00:03  orders/shardId-000000000000  two => -",
    ]


def test_nothing_stored_is_said(application: Application) -> None:
    assert "has stored nothing" in _drawn(LeaseBoard(), application.rows())


def test_it_draws_what_the_store_has_until_it_is_cancelled(application: Application) -> None:
    application.save(application.checkpoint(0, after(7), Lease(owner="one")))
    content = application.run.path.read_text()
    properties = lease_properties(Connection(config=application.run.path, content=content), None)
    screen = io.StringIO()

    async def draw() -> None:
        console = Console(file=screen, width=200, force_terminal=True)
        clock = ManualClock()
        task = asyncio.create_task(watch(properties, console, clock))
        await clock.wait_for_sleepers()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(asyncio.wait_for(draw(), 30))
    assert "shardId-000000000000" in screen.getvalue()
