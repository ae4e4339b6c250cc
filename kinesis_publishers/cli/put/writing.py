"""Puts the records of an input, and reports each in the order of the input."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

import click
from attrs import define, field

from kinesis_publishers.cli.put.inputs import Entry, Input
from kinesis_publishers.cli.shared.console import say
from kinesis_publishers.cli.shared.formats import counted
from kinesis_publishers.clock import Clock
from kinesis_publishers.errors import InvalidRecordError, RecordsNotWrittenError
from kinesis_publishers.producing import KinesisProducer, PutResult

# With --rate, a portion has the records of this many seconds.
_PORTION_SECONDS: Final = 0.1
# After Ctrl-C, the time for records in flight.
_CLOSE_SECONDS: Final = 2.0

OnWritten: TypeAlias = Callable[[int, str | None, PutResult], None]
"""Takes the number of a record, counted from 1, its partition key, and where it was written."""


@define(kw_only=True, eq=False)
class Writing:
    """Puts the records of an input, at most ``rate`` per second, and closes the producer.

    The keys are those of records without a partition key of their own. ``on_written`` is called
    with each written record, in order; ``on_progress`` after each change of ``written``.
    """

    _producer: KinesisProducer
    _input: Input
    _partition_key: str | None
    _explicit_hash_key: str | None
    _rate: float | None
    _clock: Clock
    _on_written: OnWritten
    written: int = field(default=0, init=False)
    on_progress: Callable[[], None] = field(default=lambda: None, init=False)
    _reading: asyncio.Task[None] = field(init=False)
    _put: int = field(default=0, init=False)
    _next_at: float = field(default=0.0, init=False)
    # Groups that are not reported yet: partition keys, and the future of the results.
    _pending: deque[tuple[Sequence[str | None], asyncio.Future[Sequence[PutResult]]]] = field(
        factory=deque, init=False
    )
    _reported: int = field(default=0, init=False)
    # The numbers of records that were not written, with the reasons.
    _failures: list[tuple[int, Exception]] = field(factory=list, init=False)

    async def run(self) -> None:
        """Put everything, and return when it is written; stop after a failure, and raise it."""
        self._reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait({self._reading})
        except asyncio.CancelledError:
            await self._end(_CLOSE_SECONDS)
            unknown = f", and perhaps {len(self._failures):,} more" if self._failures else ""
            say(f"Interrupted: {counted(self.written, 'record')} written{unknown}.")
            raise
        await self._end()
        if self._failures:
            raise click.ClickException(self._failure(is_all=not self._reading.cancelled()))
        try:
            self._reading.result()
        except click.UsageError:
            raise
        except click.ClickException as error:
            before = f"Wrote {counted(self.written, 'record')} before that."
            raise click.ClickException(f"{error.message} {before}") from error

    async def _end(self, timeout_seconds: float | None = None) -> None:
        self._reading.cancel()
        await asyncio.wait({self._reading})
        # The futures have the errors.
        with suppress(RecordsNotWrittenError):
            await self._producer.close(timeout_seconds=timeout_seconds)
        self._report()

    def _failure(self, *, is_all: bool) -> str:
        number, error = self._failures[0]
        rest = "" if is_all else f" What comes after number {self._put:,} was not put."
        return (
            f"{len(self._failures):,} of {counted(self._put, 'record')} were not written, or not "
            f"for certain; the first is number {number:,}: {error}{rest}"
        )

    async def _read(self) -> None:
        async for group in self._input.groups():
            most = max(1, len(group) if self._rate is None else int(self._rate * _PORTION_SECONDS))
            for start in range(0, len(group), most):
                portion = group[start : start + most]
                if self._rate is not None:
                    now = self._clock.monotonic()
                    await self._clock.sleep(max(0.0, self._next_at - now))
                    self._next_at = max(self._next_at, now) + len(portion) / self._rate
                await self._put_portion(portion)

    async def _put_portion(self, portion: Sequence[Entry]) -> None:
        checker = self._producer.checker
        rows = []
        problem: InvalidRecordError | None = None
        for data, own_key in portion:
            key = own_key or self._partition_key
            try:
                row = checker.row_of((data, key, self._explicit_hash_key))
                await checker.check_size(row[0], row[1])
            except InvalidRecordError as error:
                problem = error
                break
            rows.append(row)
        self._put += len(rows)
        results = await self._producer.put_many(rows)
        self._pending.append((list(map(self._producer.key_of, rows)), results))
        results.add_done_callback(lambda _: self._report())
        if problem is not None:
            raise click.ClickException(
                f"Record {self._put + 1:,} cannot be put: {problem}."
            ) from problem

    def _report(self) -> None:
        """Report the finished groups up to the first unfinished one."""
        while self._pending and self._pending[0][1].done():
            keys, future = self._pending.popleft()
            error = future.exception()
            outcomes: Sequence[object] = (
                error.results if isinstance(error, RecordsNotWrittenError) else future.result()
            )
            for key, outcome in zip(keys, outcomes, strict=True):
                self._reported += 1
                if isinstance(outcome, PutResult):
                    self.written += 1
                    self._on_written(self._reported, key, outcome)
                elif isinstance(outcome, Exception):
                    self._failures.append((self._reported, outcome))
                    self._reading.cancel()
            self.on_progress()
