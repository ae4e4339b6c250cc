"""The command ``put``: its options, and where its records come from."""

from __future__ import annotations

import asyncio
import sys
import uuid
from contextlib import ExitStack, suppress
from itertools import takewhile
from typing import TYPE_CHECKING, BinaryIO

import click
from attrs import frozen

from kinesis_publishers.assembly import open_record_writer
from kinesis_publishers.cli.commands import CleanCommand
from kinesis_publishers.cli.connection import Connection, connection_options, only_stream
from kinesis_publishers.cli.console import discard_output, output_bytes, print_json_lines, say
from kinesis_publishers.cli.formats import printable
from kinesis_publishers.cli.interruptions import run_until_signal
from kinesis_publishers.cli.parameters import Checked
from kinesis_publishers.cli.put.entries import (
    LineSplitter,
    batches,
    check_hash_key,
    check_partition_key,
    is_acceptable,
    too_large_error,
)
from kinesis_publishers.cli.put.writing import PutSession, put_policy
from kinesis_publishers.cli.streams import read_blocks
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.model import UserRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers.aws import PutResult
    from kinesis_publishers.cli.put.writing import OnWritten
    from kinesis_publishers.config import Properties

__all__ = ["put"]


@frozen(kw_only=True)
class _Input:
    """Where records come from, and what they have in common.

    Attributes:
        texts: the records themselves; without any, ``file`` is read.
        file: a file, ``-`` for standard input.
        is_whole: whether all of the file is one record.
        partition_key: the key of all records; ``None`` gives each one of its own.
        explicit_hash_key: the hash key of all records.
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
                    break  # It is going to be refused, however much of it is still to come.
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
    type=Checked("key", check_partition_key, "1 to 256 characters"),
    metavar="KEY",
    help="The partition key of all records; each has a random one unless it is given.",
)
@click.option(
    "--explicit-hash-key",
    type=Checked("number", check_hash_key, "a decimal number from 0 to 2^128 - 1"),
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
        output_bytes()  # Refused before anything is written if there is no output.
    report = _print_nothing if quiet else _print_json if as_json else _print_line
    on_written = _until_output_fails(report)
    run_until_signal(lambda: _put(records, properties, stream, retries, on_written))


async def _put(
    records: _Input, properties: Properties, stream: str, retries: int, report: OnWritten
) -> None:
    async with open_record_writer(properties) as writer:
        session = PutSession(writer, stream, put_policy(retries), SystemClock(), report)
        try:
            await _write_all(records, session)
        except asyncio.CancelledError:
            say(f"Interrupted: {session.written:,} records were written, and perhaps a few more.")
            raise
        say(f"Wrote {session.written:,} records to {stream}.")


async def _write_all(records: _Input, session: PutSession) -> None:
    count = 0
    async for payloads in records.groups():
        entries = [records.entry(data) for data in payloads]
        accepted = list(takewhile(is_acceptable, entries))
        count += len(accepted)
        for batch in batches(accepted):
            await session.write(batch)
        if len(accepted) < len(entries):
            raise too_large_error(count + 1)


def _until_output_fails(report: OnWritten) -> OnWritten:
    """Return ``report`` such that it does nothing once the output takes nothing more.

    The records are what counts: they are written all the same. Whoever stops reading the output
    means to; anything else is said once.
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
                    f"The output cannot be written: {error.strerror or error}. Records are written "
                    f"all the same; those from number {number:,} on are not listed."
                )

    return guarded


def _print_nothing(_number: int, _entry: UserRecord, _result: PutResult) -> None:
    pass


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
