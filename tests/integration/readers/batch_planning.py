"""A local Kinesis whose time a test sets, and which is asked for plans of batches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kinesis_publishers import Properties, ShardRange, SystemClock
from kinesis_publishers.model import PositionType
from kinesis_publishers.readers.bounded_read import Narrowing, plan_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers.testing.local_kinesis import LocalKinesis, StoredRecord
    from kinesis_publishers.testing.manual_clock import ManualClock

__all__ = ["FIRST", "NOON", "OWN_PUBLISHER", "BatchServer"]

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FIRST = "shardId-000000000000"
# It may not see the tip, so that each range is given a last record.
OWN_PUBLISHER = "tests.unit.config.test_config_plugin_fit:PollsAndSaysSo"


class _ServersClock(SystemClock):
    """The server's time, which goes on where something waits."""

    def __init__(self, clock: ManualClock, wait: Callable[[float], None]) -> None:
        self._clock = clock
        self._wait = wait

    def now(self) -> datetime:
        return self._clock.now()

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._wait(seconds)
        await super().sleep(0)


class BatchServer:
    """A local Kinesis whose time a test sets, and which is asked for plans."""

    def __init__(self, server: LocalKinesis, clock: ManualClock) -> None:
        self.server = server
        self._clock = clock

    def at(self, seconds: float) -> datetime:
        """Return the instant ``seconds`` after noon."""
        return NOON + timedelta(seconds=seconds)

    def put(self, count: int, *, every: float, stream: str = "orders") -> None:
        """Put records, one every so many seconds."""
        for number in range(count):
            self.server.put_many(stream, [(f"key-{number}", b"%d" % number)])
            self.wait(every)

    def wait(self, seconds: float) -> None:
        self.server.run(self._clock.advance(seconds))

    def stored(self, shard_id: str = FIRST, stream: str = "orders") -> list[StoredRecord]:
        return self.server.records(stream)[shard_id]

    async def plan(
        self,
        narrowing: Narrowing | None = None,
        *,
        streams: str = "orders",
        machine_ahead: float = 0,
        on_wait: Callable[[], None] | None = None,
        **options: object,
    ) -> list[ShardRange]:
        """Plan a batch that is loaded now.

        Args:
            machine_ahead: by how many seconds the clock that says when is ahead of the server's.
            on_wait: called before each wait of the planning.
        """
        values = {f"kinesis.{key.replace('_', '.')}": str(value) for key, value in options.items()}
        # The server's time stands still while it is asked: the pace would, too.
        values["kinesis.shard.getrecords.intervalmillis"] = "0"
        properties = Properties.parse({**self.server.properties(streams), **values})
        loaded_at = self._clock.now() + timedelta(seconds=machine_ahead)

        def wait(seconds: float) -> None:
            if on_wait is not None:
                on_wait()
            self.wait(seconds)

        clock = _ServersClock(self._clock, wait)
        return await plan_batch(properties, loaded_at, narrowing or Narrowing(), clock=clock)

    def ends(self, ranges: list[ShardRange]) -> dict[str, str]:
        """Return the last record of each range that has records, by shard id."""
        rows = {one.shard.shard_id: self.rows_of([one]) for one in ranges}
        return {shard_id: numbers[-1] for shard_id, numbers in rows.items() if numbers}

    def rows_of(self, ranges: list[ShardRange], stream: str = "orders") -> list[str]:
        """Return the sequence numbers of what the ranges have, shard after shard."""
        rows: list[str] = []
        for one in ranges:
            stored = self.stored(one.shard.shard_id, stream)
            numbers = [record.sequence_number for record in stored]
            last = _first_since(one.until, stored) if one.until else len(numbers)
            if one.end is not None:
                last = numbers.index(str(one.end)) + (not one.excludes_end)
            rows += numbers[_begin_of(one, stored) : last]
        return rows


def _first_since(instant: datetime, stored: list[StoredRecord]) -> int:
    later = (at for at, record in enumerate(stored) if record.arrival_time >= instant)
    return next(later, len(stored))


def _begin_of(one: ShardRange, stored: list[StoredRecord]) -> int:
    if one.start.timestamp is not None:
        return _first_since(one.start.timestamp, stored)
    if one.start.sequence_number is None:
        return 0
    numbers = [record.sequence_number for record in stored]
    is_after = one.start.type is PositionType.AFTER_SEQUENCE_NUMBER
    return numbers.index(str(one.start.sequence_number)) + is_after
