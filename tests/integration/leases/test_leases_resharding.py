"""Shards that end and begin while several workers read: parents first, over all of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.integration.leases.lease_team import STREAM, Producer, Team

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.long


def has_read_others(team: Team, known: set[str]) -> bool:
    """Say whether there are records of shards that are not known."""
    return any(one.shard_id not in known for one in team.entries("record"))


@pytest.mark.parametrize("how", ["read", "scan", "batches"])
def test_children_wait_for_their_parents_over_all_workers(
    new_team: Callable[..., Team], how: str
) -> None:
    team = new_team(4, failover_seconds=5)
    workers = team.start("first", "second", "third", how=how)
    with Producer(team, records_per_second=400) as producer:
        team.wait_until_balanced(*workers)
        for count in (8, 4, 6):
            with producer.turn:
                had = {shard_id for shard_id, _ in team.stored()}
                team.server.reshard(STREAM, count)
            team.wait_until(partial(has_read_others, team, had), "records of new shards")
        team.wait_until_balanced(*workers)
    team.end_with_all_read()
    team.assert_parents_first()
    assert team.repeated() == []
