"""The bar of reading to an end: what it shows, and where it shows nothing."""

from __future__ import annotations

import io
import re
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from kinesis_publishers import StartingPosition, events, read_table
from kinesis_publishers.config import Properties
from kinesis_publishers.errors import ConfigError
from kinesis_publishers.metrics.progress_bar import ProgressBar
from kinesis_publishers.testing.fakes import sample_shard
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

ZERO, ONE = (sample_shard(number).key for number in range(2))
TRIM_HORIZON = StartingPosition.trim_horizon()


class Terminal:
    """A bar on a terminal; reading ends at the tip of its start unless it ends before."""

    def __init__(self, *, ended_seconds_ago: float = 0.0, has_end: bool = True) -> None:
        self._screen = io.StringIO()
        console = Console(file=self._screen, force_terminal=True, width=100)
        self.clock = ManualClock()
        until = self.clock.now() - timedelta(seconds=ended_seconds_ago)
        self.bar = ProgressBar(until if has_end else None, self.clock, console)

    def fetch(self, shard: object, seconds_behind: float | None) -> None:
        millis = None if seconds_behind is None else int(1000 * seconds_behind)
        self.bar(
            events.RecordsFetched(
                shard=shard,
                records=0,
                payload_bytes=0,
                millis_behind_latest=millis,
                limit=1,
                loop_seconds=None,
            )
        )

    async def shown(self) -> str:
        """Return the last state that was drawn."""
        async with self.bar:
            pass
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._screen.getvalue())
        return text.replace("\r", "\n").strip().splitlines()[-1]


async def test_a_bar_shows_the_share_of_the_time_to_the_end_and_the_records() -> None:
    terminal = Terminal()
    terminal.fetch(ZERO, 100)
    terminal.fetch(ZERO, 25)
    terminal.bar(events.RecordsProcessed(shard=ZERO, records=1234, payload_bytes=1, seconds=0.1))
    assert re.match(r"1,234 records ━+.* 75%", await terminal.shown())


async def test_the_distance_is_that_from_the_end_and_not_from_the_tip() -> None:
    terminal = Terminal(ended_seconds_ago=50)
    terminal.fetch(ZERO, 150)
    terminal.fetch(ZERO, 100)
    assert " 50%" in await terminal.shown()


async def test_the_end_moves_away_from_the_tip_while_one_reads() -> None:
    terminal = Terminal()
    terminal.fetch(ZERO, 100)
    await terminal.clock.advance(40)
    terminal.fetch(ZERO, 90)
    assert " 50%" in await terminal.shown()


async def test_every_shard_counts_and_none_moves_the_bar_back() -> None:
    terminal = Terminal()
    for shard in (ZERO, ONE):
        terminal.bar(events.ShardStarted(shard=shard, position=TRIM_HORIZON))
    terminal.fetch(ZERO, None)
    terminal.bar(events.ShardEnded(shard=ZERO))
    assert " 50%" in await terminal.shown()
    terminal.bar(events.ShardStarted(shard=sample_shard(2).key, position=TRIM_HORIZON))
    assert " 50%" in await terminal.shown()
    for number in (1, 2):
        stopped = events.ShardStopped(
            shard=sample_shard(number).key, position=TRIM_HORIZON, error=None
        )
        terminal.bar(stopped)
    assert "100%" in await terminal.shown()


async def test_without_an_end_only_records_are_counted() -> None:
    terminal = Terminal(has_end=False)
    terminal.fetch(ZERO, 100)
    terminal.bar(events.RecordsProcessed(shard=ZERO, records=1, payload_bytes=1, seconds=0.1))
    shown = await terminal.shown()
    assert shown.startswith("1 record ")
    assert "%" not in shown


def test_nothing_is_shown_where_there_is_no_terminal(
    local_kinesis: LocalKinesis, capfd: pytest.CaptureFixture[str]
) -> None:
    local_kinesis.create_stream("orders")
    local_kinesis.put_many("orders", [("key", b"1")])
    table = read_table(local_kinesis.properties("orders"), progress=True)
    assert table.num_rows == 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("end", "total"), [({}, None), ({"end": "-1h"}, 1.0)])
def test_the_end_is_that_of_the_properties(end: dict[str, str], total: float | None) -> None:
    given = {"stream": "orders", "progress": True, **end}
    bar = ProgressBar.from_properties(Properties.of(None, given), ManualClock())
    assert bar._bar.tasks[0].total == total  # noqa: SLF001 - a bar on no terminal shows nothing


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    properties = Properties.of(None, {"stream": "orders", "progress": True})
    with pytest.raises(
        ConfigError, match=r"progress needs .*: pip install 'kinesis-publishers\[cli"
    ):
        ProgressBar.from_properties(properties, ManualClock())
