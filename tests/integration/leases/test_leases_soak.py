"""Workers that are killed, paused and stopped at random, while the stream and the store change.

The leases are in PostgreSQL or Redis, which are killed and started again, or in a file of SQLite,
which is locked.
"""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Final

import pytest
from attrs import define, field

from tests.integration.leases.lease_team import (
    STREAM,
    Entry,
    Producer,
    Team,
    Worker,
    let_pass,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

_FAILOVER_SECONDS: Final = 3.0
_WORKERS: Final = 6
_SECONDS: Final = 480.0
_HOWS: Final = ("read", "scan", "batches")


@define(eq=False)
class Chaos:
    """Does things to a team, and remembers when."""

    team: Team
    producer: Producer
    random: Random
    running: list[Worker] = field(factory=list)
    paused: list[tuple[Worker, float]] = field(factory=list)
    stopped: list[tuple[Worker, float]] = field(factory=list)
    # When the store was away, and how far each shard was stored at an instant.
    outages: list[tuple[float, float]] = field(factory=list)
    looks: list[tuple[float, Mapping[str, int]]] = field(factory=list)
    _names: count[int] = field(factory=count)

    def start(self) -> None:
        name, how = f"worker{next(self._names)}", self.random.choice(_HOWS)
        self.running += self.team.start(name, how=how)

    def step(self) -> None:
        """Do one thing, and see to it that there are enough workers."""
        for worker, until in [one for one in self.paused if time.monotonic() >= one[1]]:
            worker.resume()
            self.paused.remove((worker, until))
            self.running.append(worker)
        kinds = [self.kill, self.pause, self.stop, self.reshard, self.lose_store, self.look]
        self.random.choices(kinds, [3, 3, 3, 1, 1, 4])[0]()
        while len(self.running) + len(self.paused) < _WORKERS:
            self.start()

    def _take(self) -> Worker:
        self.random.shuffle(self.running)
        return self.running.pop()

    def kill(self) -> None:
        if len(self.running) > 2:
            self._take().kill()

    def pause(self) -> None:
        if len(self.running) > 2:
            worker = self._take()
            self.team.pause(worker)
            seconds = self.random.uniform(0.1, 3) * _FAILOVER_SECONDS
            self.paused.append((worker, time.monotonic() + seconds))

    def stop(self) -> None:
        if len(self.running) > 2:
            worker = self._take()
            # Before it reads, the signal has its usual effect.
            self.team.wait_until(lambda: worker.count("ShardStarted"), "begin of a worker")
            self.stopped.append((worker, worker.terminate()))

    def reshard(self) -> None:
        with self.producer.turn:
            self.team.server.reshard(STREAM, self.random.randint(20, 40))

    def lose_store(self) -> None:
        seconds = self.random.uniform(0.1, 2) * _FAILOVER_SECONDS
        began_at = time.monotonic()
        with self.team.store.away():
            let_pass(seconds)
        self.outages.append((began_at, time.monotonic()))

    def look(self) -> None:
        """Remember what is stored: from now on nobody may begin to process that again."""
        rows = self.team.rows()
        processed = {shard_id: row.checkpoint.progress.processed for shard_id, row in rows.items()}
        numbers = {shard_id: int(one.sequence_number) for shard_id, one in processed.items() if one}
        self.looks.append((time.monotonic(), numbers))

    def settle(self) -> None:
        """Let everything go on, and all be read."""
        for worker, _ in self.paused:
            worker.resume()
        self.running += [worker for worker, _ in self.paused]
        self.paused.clear()

    def _was_away(self, first: float, last: float) -> bool:
        return any(begin <= last and end >= first for begin, end in self.outages)

    def assert_stopped_well(self) -> None:
        for worker, at in self.stopped:
            code = worker.process.wait(60)
            # What it had processed last could not be stored, and it says so.
            assert code == 0 or self._was_away(at, at + 60), worker.errors

    def assert_repeats_have_reasons(self) -> None:
        """Check that one of the two that processed the same was disturbed.

        The first one before it had stored that, or in the failover time before, in which it would
        have renewed its lease; or the second one since it was handed the record: what was handed
        out before a pause is begun after it all the same.
        """
        workers = {one.name: one for one in self.team.workers}
        for before, *after in self.team.repeated():
            for then in after:
                was_out = any(
                    workers[one.worker].was_out_between(
                        workers[one.worker].handed_out_after(one) - earlier, then.at
                    )
                    for one, earlier in ((before, _FAILOVER_SECONDS), (then, 0.0))
                )
                assert was_out or self._was_away(before.at, then.at), self._history(before, then)
                before = then

    def _history(self, before: Entry, then: Entry) -> str:
        """Tell what happened to a shard around a record that was begun twice."""
        first, last = before.at - 3 * _FAILOVER_SECONDS, then.at + _FAILOVER_SECONDS
        lines = [(began_at, f"no store until {ended_at}") for began_at, ended_at in self.outages]
        for worker in self.team.workers:
            lines += [(at, f"{worker.name} stands until {until}") for at, until in worker.pauses]
            lines += [(at, f"{worker.name} is killed") for at in (worker.was_killed_at,) if at]
            lines += [
                (one.at, f"{one.worker} {one.what} {one.detail}")
                for one in worker.entries
                if one.shard_id in {before.shard_id, "-"}
            ]
        told = "\n".join(f"{at:.6f} {what}" for at, what in sorted(lines) if first <= at <= last)
        return f"{before} and {then} again:\n{told}"

    def assert_nothing_stored_was_processed_again(self) -> None:
        workers = {one.name: one for one in self.team.workers}
        for entries in self.team.processed().values():
            for entry in entries:
                shard_id, number = entry.record
                for at, numbers in self.looks:
                    if at < entry.at and numbers.get(shard_id, -1) >= number:
                        # Before a pause: nobody can take it back from a worker that stands still.
                        assert at >= workers[entry.worker].handed_out_after(entry), (entry, at)


@pytest.mark.soak
@pytest.mark.parametrize("store", ["postgres", "redis_server", "sqlite"], indirect=True)
# One after the other: each of them keeps both processors busy.
@pytest.mark.xdist_group("chaos")
@pytest.mark.timeout(1200)
def test_nothing_is_lost_and_every_repeat_has_a_reason(
    new_team: Callable[..., Team], chance: Random
) -> None:
    team = new_team(40, _FAILOVER_SECONDS, checkpoint_intervalmillis="1000")
    with Producer(team) as producer:
        chaos = Chaos(team, producer, chance)
        for _ in range(_WORKERS):
            chaos.start()
        team.wait_until(lambda: len(team.processed()) > 500, "records")
        chaos.reshard()
        began_at = time.monotonic()
        while time.monotonic() < began_at + _SECONDS:
            chaos.step()
            let_pass(chaos.random.uniform(0.2, 2))
            for worker in team.failed():
                raise AssertionError(worker.errors)
        chaos.settle()
    team.wait_until_all_is_read()
    team.wait_until_balanced(*chaos.running)
    team.stop()
    chaos.assert_stopped_well()
    team.assert_history()
    team.assert_parents_first()
    chaos.assert_repeats_have_reasons()
    chaos.assert_nothing_stored_was_processed_again()
