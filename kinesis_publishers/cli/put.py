"""``kinesis-publishers put``: writes records that come from arguments, a file or a pipe."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from typing import BinaryIO, Final

import click
from attrs import define, field, frozen

from kinesis_publishers.assembly import open_record_writer
from kinesis_publishers.aws.record_writer import (
    MAX_RECORD_BYTES,
    OnWritten,
    PutResult,
    RecordPutter,
)
from kinesis_publishers.cli.shared.commands import Checked, CleanCommand
from kinesis_publishers.cli.shared.connection import Connection, connection_options, only_stream
from kinesis_publishers.cli.shared.console import (
    discard_output,
    output_bytes,
    print_json_lines,
    say,
)
from kinesis_publishers.cli.shared.event_loop import read_blocks, run_until_signal
from kinesis_publishers.cli.shared.formats import printable
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.config import Properties
from kinesis_publishers.model import UserRecord
from kinesis_publishers.model.records import LONGEST_PARTITION_KEY
from kinesis_publishers.model.shards import parse_hash_key
from kinesis_publishers.retry import RetryPolicy

_ADVICE: Final = "Raise --retries if the service is expected to recover."


@define
class LineSplitter:
    """Splits bytes into lines as they come; with ``is_whole``, everything is one record."""

    _is_whole: bool = field(default=False, kw_only=True)
    _rest: bytearray = field(factory=bytearray, init=False)

    @property
    def is_too_long(self) -> bool:
        """Whether what has no end yet is more than a stream takes."""
        return len(self._rest) > MAX_RECORD_BYTES

    def split(self, block: bytes) -> list[bytes]:
        """Return the records that end in ``block``."""
        *complete, rest = [block] if self._is_whole else block.split(b"\n")
        if complete:
            complete[0] = bytes(self._rest) + complete[0]
            self._rest.clear()
        self._rest += rest
        return complete

    def end(self) -> list[bytes]:
        """Return the last record: all of a whole, or a line that no line feed has ended."""
        rest = bytes(self._rest)
        self._rest.clear()
        return [rest] if rest or self._is_whole else []


def _check_partition_key(text: str) -> str:
    if not 1 <= len(text) <= LONGEST_PARTITION_KEY:
        raise ValueError("too short or too long")
    text.encode()  # raises for what the command line had that is not UTF-8
    return text


def _check_hash_key(text: str) -> str:
    parse_hash_key(text)
    return text


@frozen(kw_only=True)
class _Input:
    """Where records come from, and what they have in common.

    Without ``texts``, the records themselves, ``file`` is read (``-`` for standard input); without
    a ``partition_key`` each record has its own.
    """

    texts: tuple[str, ...]
    file: str
    is_whole: bool
    partition_key: str | None
    explicit_hash_key: str | None

    def entry(self, data: bytes) -> UserRecord:
        return UserRecord(
            data=data,
            partition_key=self.partition_key or uuid.uuid4().hex,
            explicit_hash_key=self.explicit_hash_key,
        )

    async def groups(self) -> AsyncIterator[list[bytes]]:
        """Yield the payloads, those together that are there at the same time."""
        if self.texts:
            # As they stand on the command line, which need not be UTF-8.
            yield [text.encode("utf-8", "surrogateescape") for text in self.texts]
            return
        with ExitStack() as opened:
            stream = self._open(opened)
            splitter = LineSplitter(is_whole=self.is_whole)
            async for block in read_blocks(stream):
                yield splitter.split(block)
                if splitter.is_too_long:
                    break  # Too long already: the rest need not be read.
            yield splitter.end()

    def _open(self, opened: ExitStack) -> BinaryIO:
        if self.file == "-":
            if sys.stdin is None:
                raise click.UsageError("Standard input is closed: give DATA or --file.")
            return sys.stdin.buffer
        try:
            return opened.enter_context(open(self.file, "rb", buffering=0))
        except OSError as error:
            raise click.UsageError(f"{self.file} cannot be read: {error.strerror}.") from error


@click.command(cls=CleanCommand)
@click.argument("data", nargs=-1)
@click.option(
    "--file",
    default="-",
    show_default="standard input",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Read records from a file, one per line.",
)
@click.option("--whole", is_flag=True, help="All of the file is one record, to the byte.")
@click.option(
    "-k",
    "--partition-key",
    type=Checked("key", _check_partition_key, "got {}, expected 1 to 256 characters."),
    metavar="KEY",
    help="The partition key of all records; each has a random one unless it is given.",
)
@click.option(
    "--explicit-hash-key",
    type=Checked(
        "number", _check_hash_key, "got {}, expected a decimal number from 0 to 2^128 - 1."
    ),
    metavar="NUMBER",
    help="Chooses the shard in place of the partition key: 0 to 2^128 - 1.",
)
@click.option(
    "--retries",
    default=10,
    show_default=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="How often a call is repeated that writes nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per record.")
@click.option("-q", "--quiet", is_flag=True, help="Print how many were written, and no records.")
@connection_options
def put(
    data: tuple[str, ...],
    file: str,
    whole: bool,
    partition_key: str | None,
    explicit_hash_key: str | None,
    retries: int,
    as_json: bool,
    quiet: bool,
    connection: Connection,
) -> None:
    """Write records to a stream: each DATA, else each line of a file or of standard input.

    Prints shard, sequence number and partition key of each record as soon as it is written. Exits
    with 1 if a record was not written. After a broken connection a call is repeated, and its
    records may be there twice.

    \b
    Examples:
      kinesis-publishers put --stream orders --region eu-west-1 'one record' 'another'
      kinesis-publishers put --config my.properties -k customer-7 < lines.txt
      kinesis-publishers put --stream orders --file image.png --whole
    """
    if data and (file != "-" or whole):
        raise click.UsageError("DATA are records themselves: leave out --file and --whole.")
    if as_json and quiet:
        raise click.UsageError("--json and --quiet exclude each other.")
    properties = connection.properties_without_reading()
    stream = only_stream(properties)
    records = _Input(
        texts=data,
        file=file,
        is_whole=whole,
        partition_key=partition_key,
        explicit_hash_key=explicit_hash_key,
    )
    if as_json:
        output_bytes()  # Fails before anything is written if there is no output.
    report = _print_json if as_json else _print_line
    on_written = _until_output_fails((lambda *_: None) if quiet else report)
    run_until_signal(lambda: _put(records, properties, stream, retries, on_written))


async def _put(
    records: _Input, properties: Properties, stream: str, retries: int, report: OnWritten
) -> None:
    async with open_record_writer(properties) as writer:
        policy = RetryPolicy(max_retries=retries, base_seconds=0.1, max_seconds=5.0, exponent=2.0)
        putter = RecordPutter(writer, stream, policy, SystemClock(), report, advice=_ADVICE)
        try:
            async for payloads in records.groups():
                await putter.put(map(records.entry, payloads))
        except asyncio.CancelledError:
            say(f"Interrupted: {putter.written:,} records were written, and perhaps a few more.")
            raise
        say(f"Wrote {putter.written:,} records to {stream}.")


def _until_output_fails(report: OnWritten) -> OnWritten:
    """Return ``report`` such that it does nothing once the output takes nothing more.

    The records are what counts: they are still written. A reader that closes the output means to;
    any other failure is reported once.
    """
    is_open = True

    def guarded(number: int, entry: UserRecord, result: PutResult) -> None:
        nonlocal is_open
        if not is_open:
            return
        try:
            report(number, entry, result)
        except OSError as error:
            is_open = False
            discard_output()
            if isinstance(error, BrokenPipeError):
                return
            with suppress(OSError):  # Messages may go to the same disk.
                say(
                    f"The output cannot be written: {error.strerror or error}. Records are still "
                    f"written; those from number {number:,} on are not listed."
                )

    return guarded


def _print_line(_number: int, entry: UserRecord, result: PutResult) -> None:
    click.echo(f"{result.shard_id}  {result.sequence_number}  {printable(entry.partition_key)}")


def _print_json(number: int, entry: UserRecord, result: PutResult) -> None:
    print_json_lines(
        [
            {
                "number": number,
                "shard_id": result.shard_id,
                "sequence_number": result.sequence_number,
                "partition_key": entry.partition_key,
            }
        ]
    )
