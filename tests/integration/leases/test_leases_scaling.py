"""Workers that come, that are asked to stop, and that are killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.leases.lease_team import Producer, Team, Worker, by_shard

if TYPE_CHECKING:
    from collections.abc import Callable

_FAILOVER_SECONDS = 3.0
_HANDOVER_SECONDS = 2.0


def handover_seconds(team: Team) -> list[float]:
    """Return how long nobody read a shard, each time that it was handed over."""
    gaps = []
    for entries in by_shard(team.entries("ShardStopped", "ShardStarted")).values():
        pairs = zip(entries, entries[1:], strict=False)
        gaps += [then.at - one.at for one, then in pairs if then.what == "ShardStarted"]
    return gaps


@pytest.mark.parametrize("how", ["read", "scan", pytest.param("batches", marks=pytest.mark.long)])
def test_shards_are_handed_to_workers_that_come_and_by_one_that_stops_without_a_repeat(
    new_team: Callable[..., Team], record_property: Callable[[str, object], None], how: str
) -> None:
    team = new_team(8, failover_seconds=5)
    with Producer(team):
        (first,) = team.start("first", how=how)
        team.wait_until(lambda: first.count("record") > 50, "records of the only worker")
        second, third = team.start("second", "third", how=how)
        team.wait_until_balanced(first, second, third)
        stopped_at = first.terminate()
        team.wait_until_balanced(second, third)
        first.stop()
    team.wait_until_all_is_read()
    team.stop()
    assert team.repeated() == []
    team.assert_order()
    gaps = handover_seconds(team)
    record_property("handover_seconds", gaps)
    taken = [one for one in team.entries("LeaseTaken") if one.at > stopped_at]
    assert max(gaps) < _HANDOVER_SECONDS, gaps
    assert max(one.at for one in taken) - stopped_at < _HANDOVER_SECONDS
    print(sorted(gaps), max(one.at for one in taken) - stopped_at)
