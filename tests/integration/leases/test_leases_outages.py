"""A store that is away for longer than leases last."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.integration.leases.lease_team import Producer, Team, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

_FAILOVER_SECONDS = 2.0

pytestmark = pytest.mark.long


@pytest.mark.parametrize("how", ["read", "scan", "batches"])
def test_reading_stops_while_the_store_is_away_and_goes_on_without_a_repeat(
    new_team: Callable[..., Team], how: str
) -> None:
    team = new_team(4, _FAILOVER_SECONDS)
    first, second = team.start("first", "second", how=how)
    with Producer(team):
        team.wait_until_balanced(first, second)
        path = team.properties["kinesis.checkpoint.sqlite.path"]
        with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            gone_at = time.monotonic()
            wait_until(lambda: time.monotonic() > gone_at + 4 * _FAILOVER_SECONDS, "end of time")
            back_at = time.monotonic()
            connection.execute("ROLLBACK")
        team.wait_until(
            lambda: all(one.entries[-1].at > back_at + 1 for one in (first, second)), "records"
        )
    team.wait_until_all_is_read()
    team.stop()
    team.assert_history()
    assert team.repeated() == []
    assert team.entries("LeaseLost", "lost") == []
    # What had been handed out may be finished, as far as it was begun.
    late = [one for one in team.entries("record") if gone_at + _FAILOVER_SECONDS < one.at < back_at]
    assert late == []
