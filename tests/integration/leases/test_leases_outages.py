"""A store that is away for longer than leases last."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.leases.lease_team import Producer, Team, let_pass

if TYPE_CHECKING:
    from collections.abc import Callable

_FAILOVER_SECONDS = 2.0

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("store", "how", "state"),
    [
        pytest.param("sqlite", "scan", "away", marks=pytest.mark.soak),
        ("postgres", "read", "away"),
        ("redis_server", "batches", "read_only"),
    ],
    indirect=["store"],
)
def test_reading_stops_while_the_store_is_away_and_goes_on_without_a_repeat(
    new_team: Callable[..., Team], how: str, state: str
) -> None:
    team = new_team(4, _FAILOVER_SECONDS)
    first, second = team.start("first", "second", how=how)
    with Producer(team):
        team.wait_until_balanced(first, second)
        with getattr(team.store, state)():
            gone_at = time.monotonic()
            let_pass(4 * _FAILOVER_SECONDS)
            back_at = time.monotonic()
        team.wait_until(
            lambda: all(one.entries[-1].at > back_at + 1 for one in (first, second)), "records"
        )
        first.stop()
        team.wait_until_balanced(second)
    team.end_with_all_read()
    assert team.repeated() == []
    assert team.entries("LeaseLost", "lost") == []
    # What had been handed out may be finished, as far as it was begun.
    late = [one for one in team.entries("record") if gone_at + _FAILOVER_SECONDS < one.at < back_at]
    assert late == []
