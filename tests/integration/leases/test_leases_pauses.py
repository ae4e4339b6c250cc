"""Workers that stand still: as processes, in a callback, or with their event loop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.leases.lease_team import Producer, Team, keys_of

if TYPE_CHECKING:
    from collections.abc import Callable

_FAILOVER_SECONDS = 2.0

pytestmark = pytest.mark.long
# How records are handed over matters little to leases: the others have their turn in soak.
_SOAK = pytest.mark.soak


@pytest.mark.parametrize(
    "how", ["read", *(pytest.param(how, marks=_SOAK) for how in ("scan", "batches"))]
)
def test_a_paused_worker_delivers_nothing_of_what_others_took_and_says_what_it_has_lost(
    new_team: Callable[..., Team], how: str
) -> None:
    team = new_team(4, _FAILOVER_SECONDS, checkpoint_intervalmillis="500")
    first, second = team.start("first", "second", how=how)
    with Producer(team):
        team.wait_until_balanced(first, second)
        team.wait_until(lambda: min(first.count("record"), second.count("record")) > 50, "records")
        team.pause(first)
        lost = team.held_by(first)
        team.wait_until(lambda: len(team.held_by(second)) == 4, "takeover")
        taken_at = time.monotonic()
        team.wait_until(
            lambda: {one.shard_id for one in second.entries if one.at > taken_at} >= lost,
            "records of the lost shards",
        )
        resumed_at = first.resume()
        team.wait_until_balanced(first, second)
        took_again = [one for one in first.entries if one.at > resumed_at]
        assert any(one.what == "LeaseTaken" for one in took_again)
    team.end_with_all_read()
    assert {one.shard_id for one in team.entries("LeaseLost") if one.worker == "first"} == lost
    if how != "batches":
        assert {one.shard_id for one in team.entries("lost")} == lost
    assert all(before.worker == "first" for before, *_ in team.repeated())


@pytest.mark.parametrize(
    ("how", "what"),
    [("scan", "block"), *(pytest.param(how, "wait", marks=_SOAK) for how in ("read", "batches"))],
)
def test_a_callback_that_takes_long_keeps_its_leases(
    new_team: Callable[..., Team], how: str, what: str
) -> None:
    team = new_team(2, _FAILOVER_SECONDS)
    first, second = team.start("first", "second", how=how)
    team.wait_until_balanced(first, second)
    with Producer(team):
        for key in keys_of(2):
            # The second worker does not obey.
            team.put(f"{key} {what} first {4 * _FAILOVER_SECONDS}", key=key)
        team.wait_until(lambda: first.count("done"), "end of the callback")
    team.end_with_all_read()
    assert team.repeated() == []
    assert team.entries("LeaseLost", "lost") == []


def test_a_loop_that_blocks_the_event_loop_loses_its_shard_and_notices_before_the_next_record(
    new_team: Callable[..., Team],
) -> None:
    team = new_team(2, _FAILOVER_SECONDS)
    first, second = team.start("first", "second")
    team.wait_until_balanced(first, second)
    team.wait_until(lambda: len(team.held_by(first)) == 1, "release")
    (blocked,) = team.held_by(first)
    key = keys_of(2)[int(blocked[-1])]
    before_block = time.monotonic()
    # In one delivery.
    team.put(f"0 block first {4 * _FAILOVER_SECONDS}", *map(str, range(20)), key=key)

    def lost() -> list[str]:
        return [one.shard_id for one in team.entries("lost") if one.at > before_block]

    team.wait_until(lambda: first.count("done"), "end of the block")
    team.wait_until_all_is_read()
    team.wait_until(lambda: blocked in lost(), "call of on_shard_lost")
    team.wait_until_balanced(first, second)
    team.stop()
    team.assert_history()
    (done,) = team.entries("done")
    assert lost() == [done.shard_id] == [blocked]
    repeated = team.repeated()
    # What it had not stored; nothing that came after the block.
    assert done.record in {before.record for before, *_ in repeated}
    assert all(before.worker == "first" and before.at < done.at for before, *_ in repeated)


@pytest.mark.parametrize("how", ["scan", pytest.param("batches", marks=_SOAK)])
def test_a_shard_that_is_not_handed_over_in_time_is_taken_and_its_loss_is_told(
    new_team: Callable[..., Team], how: str
) -> None:
    team = new_team(2, _FAILOVER_SECONDS, lease_handovermillis="1000")
    (first,) = team.start("first", how=how)
    team.wait_until(lambda: len(team.held_by(first)) == 2, "leases of the first worker")
    what = "block" if how == "scan" else "wait"
    for key in keys_of(2):
        team.put(f"0 {what} first {12 * _FAILOVER_SECONDS}", *map(str, range(10)), key=key)
    team.wait_until(lambda: len({one.shard_id for one in team.entries("record")}) == 2, "both")
    (second,) = team.start("second", how=how)
    team.wait_until(lambda: team.held_by(second), "taken shard")
    (taken,) = team.held_by(second)
    # What another worker has taken is cancelled where that is possible.
    finished = 2 if how == "scan" else 1
    team.wait_until(lambda: first.count("done") == finished, "end of the callbacks")
    team.end_with_all_read()
    assert taken in {one.shard_id for one in team.entries("LeaseLost")}
    if how == "scan":
        assert {one.shard_id for one in team.entries("lost")} == {taken}
