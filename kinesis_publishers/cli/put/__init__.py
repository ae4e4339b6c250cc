"""The command ``put``."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, BinaryIO, Final, TypeAlias

import click
from attrs import define, field

from kinesis_publishers.cli.put.inputs import FORMATS, Group, Rows, format_of, lines, texts
from kinesis_publishers.cli.shared.commands import CleanCommand, checked, opened
from kinesis_publishers.cli.shared.connection import Connection, connection_options, only_stream
from kinesis_publishers.cli.shared.console import (
    output_bytes,
    print_json_lines,
    printable,
    say,
)
from kinesis_publishers.cli.shared.event_loop import read_blocks
from kinesis_publishers.cli.shared.formats import counted
from kinesis_publishers.config import ProducerConfig
from kinesis_publishers.config.option import Option
from kinesis_publishers.errors import InvalidRecordError, RecordsNotWrittenError
from kinesis_publishers.model.user_records import UserRecord
from kinesis_publishers.producing import KinesisProducer, PutResult
from kinesis_publishers.producing.records import Row

# Defaults of this command. One call at a time: a refused record is written before those of the next
# call. And a person does not wait for minutes while the service throttles.
_DEFAULTS: Final[Mapping[Option[Any], str | int]] = {
    ProducerConfig.max_in_flight: 1,
    ProducerConfig.ttl_seconds: "30s",
}
# With --rate, a portion has the records of this many seconds.
_PORTION_SECONDS: Final = 0.1
# After Ctrl-C, the time for records in flight.
_CLOSE_SECONDS: Final = 2.0

OnWritten: TypeAlias = Callable[[int, str | None, PutResult], None]
"""Takes the number of a record, counted from 1, its partition key, and where it was written."""

_PARTITION_KEY: Final = checked(
    lambda text: UserRecord(data=b"", partition_key=text).partition_key,
    "got {}, expected 1 to 256 characters.",
)
_HASH_KEY: Final = checked(
    lambda text: UserRecord(data=b"", partition_key="-", explicit_hash_key=text).explicit_hash_key,
    "got {}, expected a decimal number from 0 to 2^128 - 1.",
)


@click.command(cls=CleanCommand)
@click.argument("data", nargs=-1)
@click.option(
    "--file",
    default="-",
    show_default="standard input",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Read records from a file: its lines, or the rows of a table.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="The format of the file. By default, the extension .csv or .parquet decides.",
)
@click.option("--whole", is_flag=True, help="Put the whole file, unchanged, as one record.")
@click.option(
    "--data-column",
    metavar="COLUMN",
    help="The column to put. By default, a row becomes a JSON object of all columns.",
)
@click.option("--key-column", metavar="COLUMN", help="The column with the partition key.")
@click.option(
    "-k",
    "--partition-key",
    type=_PARTITION_KEY,
    metavar="KEY",
    help="The partition key of all records. By default, each record has a random one.",
)
@click.option(
    "--explicit-hash-key",
    type=_HASH_KEY,
    metavar="NUMBER",
    help="The hash key that chooses the shard instead of the partition key.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Put at most N records per second.",
)
@click.option(
    "--aggregate", is_flag=True, help="Pack records into aggregates in the format of the KPL."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per record.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the number of records written.")
@connection_options
async def put(
    data: tuple[str, ...],
    file: str,
    form: str | None,
    whole: bool,
    data_column: str | None,
    key_column: str | None,
    partition_key: str | None,
    explicit_hash_key: str | None,
    rate: float | None,
    aggregate: bool,
    as_json: bool,
    quiet: bool,
    connection: Connection,
) -> None:
    """Write records to a stream: each DATA, else each line of a file or of standard input.

    Prints shard, sequence number and partition key of each record when it is written. Exits with 1
    if a record was not written. After a broken connection a call is repeated, and its records may
    be stored twice.

    \b
    Examples:
      kinesis-publishers put --stream orders --region eu-west-1 'one record' 'another'
      kinesis-publishers put --config my.properties -k customer-7 < lines.txt
      kinesis-publishers put --stream orders --file orders.parquet --key-column customer
      kinesis-publishers put --stream orders --file image.png --whole
    """
    if as_json and quiet:
        raise click.UsageError("Use --json or --quiet, not both.")
    kind = form or format_of(file)
    if data and (file != "-" or whole or form):
        raise click.UsageError("DATA are the records: leave out --file, --format and --whole.")
    if whole and form:
        raise click.UsageError("Use --whole or --format, not both.")
    if (data or whole or kind == "lines") and (data_column or key_column):
        raise click.UsageError("--data-column and --key-column need a table: csv or parquet.")
    if key_column and (partition_key or explicit_hash_key):
        raise click.UsageError(
            "--key-column excludes --partition-key and --explicit-hash-key: say once what decides "
            "the shard."
        )
    properties = connection.properties_without_reading()
    written_to = only_stream(properties).reference
    values = {key: one for key, one in _DEFAULTS.items() if not properties.is_given(key)}
    if aggregate:
        values[ProducerConfig.aggregates] = True
    properties = properties.with_values(values)
    if as_json:
        output_bytes()  # Fails before anything is written if there is no output.
    report = _print_json if as_json else None if quiet else _print_line

    opening = nullcontext() if data else opened(file, advice="give DATA or --file")
    with opening as stream:
        if stream is None:
            groups = texts(data)
        elif whole or kind == "lines":
            groups = lines(read_blocks(stream), is_whole=whole)
        else:
            name = "Standard input" if file == "-" else file
            groups = Rows(name, kind, data_column, key_column).groups(stream)
        async with KinesisProducer.from_properties(properties) as producer:
            writing = Writing(
                producer=producer,
                groups=groups,
                partition_key=partition_key,
                # Without a partition key, each record has a random one, too.
                explicit_hash_key=explicit_hash_key,
                rate=rate,
                on_written=report,
            )
            with _progress(writing, stream, is_quiet=quiet):
                await writing.run()
            say(f"Wrote {counted(writing.written, 'record')} to {written_to}.")


@contextmanager
def _progress(writing: Writing, stream: BinaryIO | None, *, is_quiet: bool) -> Iterator[None]:
    """Draw a bar on a terminal where no records are listed meanwhile."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    lists_there = not is_quiet and sys.stdout is not None and sys.stdout.isatty()
    if stream is None or not is_terminal or lists_there:
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        # The size of a pipe is not known.
        size = os.fstat(stream.fileno()).st_size if stream.seekable() else None
        task = bar.add_task("", total=size)

        def draw() -> None:
            done = size if size is None or stream.closed else stream.tell()
            text = f"{counted(writing.written, 'record')} written"
            bar.update(task, completed=done, description=text)

        writing.on_progress = draw
        yield


def _print_line(_number: int, key: str | None, result: PutResult) -> None:
    click.echo(printable(f"{result.shard_id}  {result.sequence_number}  {key or '-'}"))


def _print_json(number: int, key: str | None, result: PutResult) -> None:
    fields = {
        "number": number,
        "shard_id": result.shard_id,
        "sequence_number": result.sequence_number,
        "partition_key": key,
    }
    print_json_lines([fields])


@define(kw_only=True, eq=False)
class Writing:
    """Puts groups of records, at most ``rate`` per second, and closes the producer.

    The keys are those of records without a partition key of their own. ``on_written`` is called
    with each written record, in order, until the output fails; ``on_progress`` after each change of
    ``written``.
    """

    _producer: KinesisProducer
    _groups: AsyncIterator[Group]
    _partition_key: str | None
    _explicit_hash_key: str | None
    _rate: float | None
    _on_written: OnWritten | None
    written: int = field(default=0, init=False)
    on_progress: Callable[[], None] = field(default=lambda: None, init=False)
    _reading: asyncio.Task[None] = field(init=False)
    _put: int = field(default=0, init=False)
    _next_at: float = field(default=0.0, init=False)
    # Groups that are not reported yet: partition keys, and the future of the results.
    _pending: deque[tuple[Sequence[str | None], asyncio.Future[Sequence[PutResult]]]] = field(
        factory=deque, init=False
    )
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
        async for group in self._groups:
            most = max(1, len(group) if self._rate is None else int(self._rate * _PORTION_SECONDS))
            for start in range(0, len(group), most):
                portion = group[start : start + most]
                if self._rate is not None:
                    now = self._producer.clock.monotonic()
                    await self._producer.clock.sleep(max(0.0, self._next_at - now))
                    self._next_at = max(self._next_at, now) + len(portion) / self._rate
                await self._put_portion(portion)

    async def _put_portion(self, portion: Group) -> None:
        checker, hash_key = self._producer.checker, self._explicit_hash_key
        rows: list[Row] = []
        problem: InvalidRecordError | None = None
        try:
            for data, own_key in portion:
                row = checker.row_of((data, own_key or self._partition_key, hash_key))
                await checker.check_size(row[0], row[1])
                rows.append(row)
        except InvalidRecordError as error:
            problem = error
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
                number = self.written + len(self._failures) + 1
                if isinstance(outcome, PutResult):
                    self.written += 1
                    self._list(number, key, outcome)
                elif isinstance(outcome, Exception):
                    self._failures.append((number, outcome))
                    self._reading.cancel()
            self.on_progress()

    def _list(self, number: int, key: str | None, result: PutResult) -> None:
        if self._on_written is None:
            return
        try:
            self._on_written(number, key, result)
        except OSError as error:
            self._on_written = None
            sys.stdout = None  # Flushing it would be an error again.
            # A reader that closes the output does so on purpose.
            if isinstance(error, BrokenPipeError):
                return
            with suppress(OSError):  # Messages may go to the same disk.
                say(
                    f"The output cannot be written: {error.strerror or error}. Records are still "
                    f"written; those from number {number:,} on are not listed."
                )
