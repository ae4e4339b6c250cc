"""``leases watch``: what it shows of workers and shards, and how it tells that shards move."""

from __future__ import annotations

import asyncio
import io
from datetime import timedelta
from typing import TYPE_CHECKING

from attrs import evolve
from rich.console import Console

from kinesis_publishers import Properties
from kinesis_publishers.cli.leases.rows import watch
from kinesis_publishers.model import Lease
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.cli.lease_support import Application, after

if TYPE_CHECKING:
    from collections.abc import Callable

_NOW = ManualClock().now()


def _watched(application: Application, *changes: Callable[[], None], width: int = 200) -> str:
    """Return what is on the screen at the end, with ``changes`` between the looks."""
    properties = Properties.from_file(application.run.path)
    screen = io.StringIO()

    async def look() -> None:
        clock = ManualClock()
        task = asyncio.create_task(watch(properties, Console(file=screen, width=width), clock))
        await clock.wait_for_sleepers()
        for change in changes:
            await asyncio.to_thread(change)
            await clock.advance(1.0)
            await clock.wait_for_sleepers()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(asyncio.wait_for(look(), 30))
    return screen.getvalue()


def _line(text: str, start: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.strip().startswith(start))


def test_it_sums_up_workers_and_says_how_far_shards_are_behind(application: Application) -> None:
    progress = evolve(after(7), as_of=_NOW - timedelta(seconds=90))
    application.save(
        application.checkpoint(0, progress, Lease(owner="one", bytes_per_second=2048)),
        application.checkpoint(1, progress, Lease(owner="two", leaving="one")),
        application.checkpoint(2, progress),
        application.checkpoint(3, after(9).ended(), Lease()),
    )
    text = _watched(application)
    assert _line(text, "one") == ["one", "2", "2.0", "KiB"]
    assert _line(text, "shardId-000000000000")[1:4] == ["one", "1", "min"]
    assert _line(text, "shardId-000000000001")[1:4] == ["one", "->", "two"]
    # One reader alone writes nothing of a shard without records for hours.
    assert _line(text, "shardId-000000000002")[1:6] == ["-", "up", "to", "1", "min"]
    assert "shardId-000000000003" not in text
    assert "and 1 that have ended" in text
    narrow = _watched(application, width=80)
    assert _line(narrow, "shardId-000000000000")[:1] == ["shardId-000000000000"]
    assert "1 min" in narrow


def test_it_tells_how_shards_have_moved_while_it_draws(application: Application) -> None:
    def hand(lease: Lease) -> Callable[[], None]:
        return lambda: application.save(application.checkpoint(0, after(7), lease))

    hand(Lease(owner="one"))()
    leases = (Lease(owner="two", leaving="one"), Lease(owner="two"), Lease())
    text = _watched(application, *map(hand, leases))
    moves = [line.strip() for line in text.splitlines() if "was" in line]
    assert moves == [
        "00:00:01  orders/shardId-000000000000  one -> two, was one",
        "00:00:02  orders/shardId-000000000000  two, was one -> two",
        "00:00:03  orders/shardId-000000000000  -, was two",
    ]
    assert _line(text, "shardId-000000000000")[1] == "-"


def test_names_are_shown_and_not_obeyed(application: Application) -> None:
    application.save(application.checkpoint(0, lease=Lease(owner="[/b]")))
    text = _watched(application, lambda: application.own(0, "[red]\x1b[2J"))
    assert text.count(r"[red]\u001b[2J") == 3, "the workers, the shard, and how it has moved"
    assert "was [/b]" in text
    assert "\x1b[2J" not in text


def test_nothing_stored_is_said(application: Application) -> None:
    assert "has no rows of the application" in _watched(application)
