"""Shards that end and begin while several workers read: parents first, over all of them."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.integration.leases.lease_team import STREAM, Producer, Team, by_shard

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.long


def assert_parents_first(team: Team) -> None:
    """Check that no record of a child was processed before the last one of its parents."""
    processed = by_shard(team.entries("record"))
    with closing(team.server.client()) as client:
        shards = client.list_shards(StreamName=STREAM)["Shards"]
    for shard in shards:
        for name in ("ParentShardId", "AdjacentParentShardId"):
            before, after = processed.get(shard.get(name, "")), processed.get(shard["ShardId"])
            if before and after:
                assert before[-1].at < after[0].at, (before[-1], after[0])


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
            team.wait_until(
                lambda had=had: {one.shard_id for one in team.entries("record")} - had,
                "records of new shards",
            )
        team.wait_until_balanced(*workers)
    team.wait_until_all_is_read()
    team.stop()
    team.assert_history()
    assert_parents_first(team)
    assert team.repeated() == []
