"""A bar on a terminal or in a notebook: how far reading has come on its way to the end."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Self

from kinesis_publishers import events as ev
from kinesis_publishers.abc import EventReporter
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import EndingPositionConfig, MetricsConfig, Properties
from kinesis_publishers.errors import InvalidOptionError
from kinesis_publishers.model import ShardKey

if TYPE_CHECKING:
    from rich.console import Console


class ProgressBar(EventReporter):
    """Selected by ``progress``: the share of the time to the end that was read, and the records.

    Without an end it shows the records. Elsewhere than on a terminal, or in a notebook, it shows
    nothing.
    """

    def __init__(
        self, until: datetime | None, clock: Clock, console: Console | None = None
    ) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeElapsedColumn

        console = console or Console(stderr=True)
        columns = ("{task.description}", BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        is_seen = console.is_terminal or console.is_jupyter
        self._bar = Progress(*columns, console=console, disable=not is_seen)
        self._task = self._bar.add_task("0 records", total=None if until is None else 1.0)
        self._until, self._clock = until, clock
        self._records = 0
        # By shard: the distance from the end in the first answer, and the share that remains.
        self._first: dict[ShardKey, float] = {}
        self._left: dict[ShardKey, float] = {}

    @classmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        until = None
        if properties.given_keys(EndingPositionConfig.options()):
            end = EndingPositionConfig.from_properties(properties).positions.default
            until = end.pinned(clock.now()).timestamp
        try:
            return cls(until, clock)
        except ModuleNotFoundError as error:
            key = properties.written_key(MetricsConfig.progress)
            raise InvalidOptionError(
                f"{key} needs {error.name}: pip install 'kinesis-publishers[cli]'"
            ) from error

    def __call__(self, event: ev.Event) -> None:
        match event:
            case ev.RecordsProcessed():
                self._records += event.records
            case ev.ShardStarted():
                self._left[event.shard] = 1.0
            case ev.RecordsFetched() | ev.EventReceived():
                self._note(event.shard, event.millis_behind_latest)
            case ev.ShardEnded() | ev.ShardStopped():
                self._left[event.shard] = 0.0
            case _:
                return
        self._draw()

    def _note(self, shard: ShardKey, lag_millis: int | None) -> None:
        if self._until is not None and lag_millis is not None:
            passed = (self._clock.now() - self._until).total_seconds()
            distance = max(0.0, lag_millis / 1000 - passed)
            first = self._first.setdefault(shard, distance)
            self._left[shard] = min(1.0, distance / first) if first else 0.0

    def _draw(self) -> None:
        done = 0.0
        if self._until is not None and self._left:
            # Children that appear on the way do not move it back.
            done = 1 - sum(self._left.values()) / len(self._left)
            done = max(done, self._bar.tasks[0].completed)
        noun = "record" if self._records == 1 else "records"
        self._bar.update(self._task, completed=done, description=f"{self._records:,} {noun}")

    async def __aenter__(self) -> Self:
        self._bar.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._bar.stop()
