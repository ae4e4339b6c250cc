"""Histories of a stream in simulated time, and of a query that finds ranges in it."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from attrs import evolve, frozen
from hypothesis import currently_in_test_context, note

from kinesis_publishers import Properties, ShardKey, ShardProgress
from kinesis_publishers.events import Event, ShardLeftBehind
from kinesis_publishers.readers import Ends, KinesisRangeFinder, ReadLimit
from kinesis_publishers.readers.ranges import rules
from kinesis_publishers.testing.local_kinesis import Behaviour, Fault
from kinesis_publishers.testing.local_kinesis.in_process import InProcessDataPlane
from tests.integration.readers.simulated_world import STREAM, SimulatedWorld

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesis_publishers import RecordPage, Shard, StartingPosition, StreamProgress
    from kinesis_publishers.readers.ranges.seen_records import RangeEnd
    from kinesis_publishers.testing.local_kinesis.service import KinesisService

PROPERTIES = Properties.parse(
    {
        "aws.region": "us-east-1",
        "kinesis.streams": STREAM,
        "kinesis.stream.initpos": "TRIM_HORIZON",
        # Faults add up: how often one call may fail is not what is tested here.
        "kinesis.shard.getrecords.maxretries": "1000",
        "kinesis.shard.getiterator.maxretries": "1000",
        "kinesis.list.shards.maxretries": "1000",
    }
)


def tell(text: str) -> None:
    """Note what happens, for an example that fails."""
    if currently_in_test_context():
        note(text)


class CountingPlane(InProcessDataPlane):
    """Counts the calls for each shard."""

    def __init__(self, service: KinesisService) -> None:
        super().__init__(service)
        self.counts: Counter[tuple[str, str]] = Counter()

    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        self.counts["GetShardIterator", shard.shard_id] += 1
        return await super().get_shard_iterator(shard, position)

    async def get_records(self, shard: Shard, shard_iterator: str, limit: int) -> RecordPage:
        self.counts["GetRecords", shard.shard_id] += 1
        return await super().get_records(shard, shard_iterator, limit)


class Looking(SimulatedWorld):
    """A finder over the service, and a reader that takes every range out of what is stored."""

    def __init__(
        self, behaviour: Behaviour, piece_records: int | None, patience_seconds: float | None
    ) -> None:
        super().__init__(behaviour)
        self.piece_records, self.patience_seconds = piece_records, patience_seconds
        self.data_plane: CountingPlane = CountingPlane(self.service)
        self.handed_out: dict[str, list[int]] = {}
        self.ended: set[str] = set()
        self.taken_before: dict[str, int] = {}
        self.cut_count = 0
        # Shards that were left behind, until they have come to where the others are.
        self.left_behind: set[str] = set()
        self.finder = self._new_finder(None)

    def _new_finder(self, resume: dict[str, StreamProgress] | None) -> KinesisRangeFinder:
        parts = self.parts(PROPERTIES, self._note)
        return KinesisRangeFinder(
            parts,
            resume=resume,
            piece_records=self.piece_records,
            patience_seconds=self.patience_seconds,
        )

    def _note(self, event: Event) -> None:
        tell(f"{self.clock.monotonic():.2f} {event}")
        if isinstance(event, ShardLeftBehind):
            self.left_behind.add(event.shard.shard_id)

    async def restart(self) -> None:
        """Go on in a new process with what is durable."""
        self.finder = self._new_finder(self.finder.progress)
        await self.within_time(self.finder.prepare())

    def readable(self) -> dict[str, list[int]]:
        """Return what the shards hold that are not behind a parent."""
        with self.service.lock:
            shards = dict(self.service.state.find_active(STREAM).shards)
        return {
            shard_id: numbers
            for shard_id, numbers in self.numbers().items()
            if self.ended.issuperset(shards[shard_id].parent_ids)
        }

    @staticmethod
    def check_calls(calls: Counter[tuple[str, str]], seconds: int) -> None:
        """A busy shard that fell silent costs what it allows in one or two seconds, and a page."""
        for (operation, shard_id), count in calls.items():
            assert count <= 5 * min(seconds, 2) + (operation == "GetRecords"), (
                f"{count} times {operation} for {shard_id} in one round"
            )

    async def round(
        self, find: Callable[[], Awaitable[Ends]], *, limit: ReadLimit | None = None
    ) -> int:
        """Look once, and read what was found; return how many records that are."""
        before = {key.shard_id: one for key, one in _by_key(self.finder.progress).items()}
        already_ended = set(self.ended)
        found = await self.within_time(find())
        records = 0
        for key, end in found.items():
            read = self._read(key, before.get(key.shard_id), end.progress)
            if end.first is not None and read:
                assert read[0] == int(end.first.sequence_number)
            records += len(read)
            self._check_cuts(end, read)
            self._check_parents(key, already_ended)
            if end.progress.is_ended:
                self.ended.add(key.shard_id)
        if limit is not None:
            assert limit.records is None or records <= limit.records
        self._check_alignment(is_aligned=limit is not None and self.patience_seconds is not None)
        return records

    def _check_alignment(self, *, is_aligned: bool) -> None:
        """What was handed out arrived before all that is still unread, in any shard."""
        with self.service.lock:
            stored = self.service.state.read(STREAM)
            shards = self.service.state.find_active(STREAM).shards
            # Children are read after their parents.
            for shard_id in sorted(shards):
                if not self.left_behind.isdisjoint(shards[shard_id].parent_ids):
                    self.left_behind.add(shard_id)
        reached, first_unread = 0.0, {}
        for shard_id, records in stored.items():
            done = self.handed_out.get(shard_id, [])
            arrivals = [one.arrival_time.timestamp() for one in records]
            first_unread[shard_id] = min(arrivals[len(done) :], default=math.inf)
            taken = arrivals[self.taken_before.get(shard_id, 0) : len(done)]
            if shard_id not in self.left_behind:
                reached = max([reached, *taken])
            self.taken_before[shard_id] = len(done)
        lost = {key.shard_id for key in self.finder.rounds.lost}
        assert lost <= self.left_behind
        self.left_behind -= {
            one for one in self.left_behind - lost if first_unread.get(one, 0.0) >= reached
        }
        until = self.finder.aligned_until
        assert reached <= (until.timestamp() if until is not None else 0.0)
        left = min(
            (first_unread[one] for one in first_unread.keys() - self.left_behind), default=math.inf
        )
        # One that was at its tip a moment ago, and cannot be asked, holds nobody back yet.
        assert not is_aligned or reached <= left + 1.6

    def _read(self, key: ShardKey, start: ShardProgress | None, end: ShardProgress) -> list[int]:
        stored = self.numbers()[key.shard_id]
        done = self.handed_out.setdefault(key.shard_id, [])
        number = end.position.sequence_number
        if number is None or (start is not None and end.position == start.position):
            # To the end of a shard that is closed.
            assert end.is_ended
            fresh = stored[len(done) :]
        else:
            assert int(number.sequence_number) in stored, "a range ends with a record or before one"
            is_with = end.processed is not None
            fresh = stored[len(done) : stored.index(int(number.sequence_number)) + is_with]
        done += fresh
        if end.is_ended:
            assert done == stored, "a shard has ended only when all of it is in ranges"
        return fresh

    def _check_cuts(self, end: RangeEnd, read: list[int]) -> None:
        """The pieces of a range are parts of it, one after the other, and not empty.

        Only the last one may be, where the record that the range ends with was not seen.
        """
        cuts = [read.index(int(cut.progress.processed.sequence_number)) for cut in end.cuts]
        assert cuts == sorted(set(cuts))
        if cuts:
            assert self.piece_records is not None
            is_seen = end.progress.processed is not None and not end.progress.is_ended
            assert cuts[-1] < len(read) - is_seen
        self.cut_count += len(cuts)

    def _check_parents(self, key: ShardKey, ended: set[str]) -> None:
        with self.service.lock:
            shard = self.service.state.find_active(STREAM).shards[key.shard_id]
        assert ended.issuperset(shard.parent_ids), "a child comes a round after its parents"


def _by_key(progress: dict[str, StreamProgress]) -> dict[ShardKey, ShardProgress]:
    return {
        ShardKey(arn, shard_id): one
        for arn, stream in progress.items()
        for shard_id, one in stream.shards.items()
    }


@frozen
class Change:
    """A method of the world, which changes the stream."""

    name: str
    number: int

    async def __call__(self, world: Looking) -> None:
        getattr(world, self.name)(self.number)


@frozen
class Break:
    fault: Fault

    async def __call__(self, world: Looking) -> None:
        with world.service.lock:
            world.service.state.faults.add(self.fault)


@frozen
class Restart:
    async def __call__(self, world: Looking) -> None:
        await world.restart()


@frozen
class Look:
    limit: ReadLimit

    async def __call__(self, world: Looking) -> None:
        before, began_at = world.data_plane.counts.copy(), world.clock.monotonic()
        await world.round(lambda: world.finder.find(self.limit), limit=self.limit)
        seconds = math.ceil(world.clock.monotonic() - began_at)
        world.check_calls(world.data_plane.counts - before, max(1, seconds))


@frozen
class LookAhead:
    """A look while Spark works, whatever is asked for next."""

    limit: ReadLimit

    async def __call__(self, world: Looking) -> None:
        progress = world.finder.progress
        await world.within_time(world.finder.look_ahead(self.limit))
        told = _by_key(world.finder.progress)
        for key, one in _by_key(progress).items():
            # The times of the last round may become known with a listing.
            assert one.as_of is None or told[key].as_of >= one.as_of
            assert evolve(told[key], as_of=one.as_of) == one


@frozen
class LookForAll:
    async def __call__(self, world: Looking) -> None:
        there = world.readable()
        await world.round(world.finder.find_tip)
        for shard_id, numbers in there.items():
            assert set(numbers) <= set(world.handed_out.get(shard_id, []))


@frozen
class CatchUp:
    limit: ReadLimit

    async def __call__(self, world: Looking) -> None:
        # What is there arrived before this instant, not at it.
        await world.clock.advance(0.001)
        until, there = world.clock.now(), world.numbers()
        for _ in range(4000):
            found = await world.round(
                lambda: world.finder.find(self.limit, until=until), limit=self.limit
            )
            if not found and world.finder.is_caught_up(until):
                break
            await world.clock.advance(0.1)
        else:
            raise AssertionError("AvailableNow does not end")
        for shard_id, numbers in there.items():
            assert world.handed_out.get(shard_id, []) == numbers


PATIENCE_SECONDS = 600.0


async def run(
    script: list[tuple[float, Callable[[Looking], Awaitable[None]]]],
    behaviour: Behaviour,
    *last: Callable[[Looking], Awaitable[None]],
    piece_records: int | None = None,
    patience_seconds: float | None = PATIENCE_SECONDS,
    is_portioned: bool = False,
) -> Looking:
    world = Looking(behaviour, piece_records, patience_seconds)
    world.put(20)
    await world.within_time(world.finder.prepare())
    with pytest.MonkeyPatch.context() as patch:
        # Few records are worth a task of their own.
        patch.setattr(rules, "_PAGE_RECORDS", 5)
        if is_portioned:
            patch.setattr(rules, "_RANGE_BYTES", 1_000)
        for pause, happening in script:
            await world.clock.advance(pause)
            tell(f"{world.clock.monotonic():8.2f} {happening}")
            await happening(world)
        for happening in last:
            await happening(world)
    return world
