"""Workers with fan-out: one stream consumer, whose subscriptions move with the leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.leases.lease_team import STREAM, Producer, Team

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.long

_CONSUMER = "reports"


def fan_out_team(
    new_team: Callable[..., Team], shards: int, *, failover_seconds: float = 5
) -> Team:
    return new_team(
        shards,
        failover_seconds=failover_seconds,
        stream_recordpublisher="EFO",
        stream_efo_consumername=_CONSUMER,
        **{"stream_efo_http-version": "1.1"},
    )


def refused_subscriptions(team: Team) -> list[str]:
    calls = team.server.calls("SubscribeToShard", STREAM)
    return [f"{one.shard_id} {one.code}" for one in calls if one.code]


def test_subscriptions_move_with_the_leases_and_no_call_comes_too_early(
    new_team: Callable[..., Team],
) -> None:
    team = fan_out_team(new_team, 6)
    with Producer(team):
        (first,) = team.start("first")
        team.wait_until(lambda: first.count("record") > 50, "records of the only worker")
        second, third = team.start("second", "third", how="scan")
        team.wait_until_balanced(first, second, third)
        had = second.count("record"), third.count("record")
        team.wait_until(
            lambda: second.count("record") > had[0] and third.count("record") > had[1], "records"
        )
        first.stop()
        team.wait_until_balanced(second, third)
    team.wait_until_all_is_read()
    assert team.server.consumers(STREAM).keys() == {_CONSUMER}
    team.stop()
    assert len(team.server.calls("RegisterStreamConsumer")) <= 3
    assert team.repeated() == []
    team.assert_history()
    assert refused_subscriptions(team) == []
    assert team.server.consumers(STREAM) == {}


def test_killed_workers_are_replaced_and_their_subscriptions_and_consumer_with_them(
    new_team: Callable[..., Team],
) -> None:
    # What a killed worker subscribed to after its last renewal is more than 5 s ago then.
    team = fan_out_team(new_team, 4, failover_seconds=10)
    first, second = team.start("first", "second")
    with Producer(team):
        team.wait_until_balanced(first, second)
        team.wait_until(lambda: min(first.count("record"), second.count("record")) > 20, "records")
        first.kill()
        team.wait_until_balanced(second)
    second.kill()
    (third,) = team.start("third")
    team.wait_until_balanced(third)
    assert team.server.consumers(STREAM).keys() == {_CONSUMER}
    team.end_with_all_read()
    assert all(before.worker != "third" for before, *_ in team.repeated())
    assert refused_subscriptions(team) == []
    assert team.server.consumers(STREAM) == {}
