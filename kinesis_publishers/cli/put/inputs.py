"""The inputs of ``put``: arguments, lines, a whole file, the rows of a table."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from decimal import Decimal
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final, TypeAlias

import click
import orjson
from attrs import frozen

from kinesis_publishers.cli.shared.event_loop import read_blocks
from kinesis_publishers.model.shards import MAX_RECORD_BYTES

Entry: TypeAlias = tuple[bytes, str | None]
"""The data of a record, and its partition key if it has one of its own."""
Group: TypeAlias = Sequence[Entry]
"""Records that have become available; an input yields groups until an error ends it."""

# The number of rows in a group.
_ROWS: Final = 500
FORMATS: Final = ("lines", "csv", "parquet")


def format_of(file: str) -> str:
    """Return which of :data:`FORMATS` the extension of a file means."""
    extension = os.path.splitext(file)[1].lower().removeprefix(".")
    return extension if extension in ("csv", "parquet") else "lines"


async def texts(values: Sequence[str]) -> AsyncIterator[Group]:
    # The bytes of the command line, which need not be UTF-8.
    yield [(text.encode("utf-8", "surrogateescape"), None) for text in values]


async def lines(blocks: AsyncIterator[bytes], *, is_whole: bool = False) -> AsyncIterator[Group]:
    """Yield the lines in ``blocks``, ended by LF or CRLF, or all of them as one record."""
    rest = b""
    async for block in blocks:
        block = rest + block
        *complete, rest = [block] if is_whole else block.split(b"\n")
        yield [(line.removesuffix(b"\r"), None) for line in complete]
        if len(rest) > MAX_RECORD_BYTES:
            break  # Too long already: the rest need not be read.
    # The whole, or a line without a line feed.
    if rest or is_whole:
        yield [(rest, None)]


@frozen
class Rows:
    """The rows of a table, each as a JSON object, or the value of one column.

    A pipe is read to its end first.
    """

    _name: str
    _format: str
    _data_column: str | None
    _key_column: str | None

    async def groups(self, stream: BinaryIO) -> AsyncIterator[Group]:
        with ExitStack() as stack:
            if not stream.seekable():
                stored = stack.enter_context(TemporaryFile())
                async for block in read_blocks(stream):
                    stored.write(block)
                stored.seek(0)
                stream = stored
            group: list[Entry] = []
            try:
                for entry in map(self._entry_of, self._rows(stream), itertools.count(1)):
                    group.append(entry)
                    if len(group) == _ROWS:
                        yield group
                        group = []
            except click.ClickException:
                yield group
                raise
            yield group

    def _rows(self, stream: BinaryIO) -> Iterator[dict[str, Any]]:
        try:
            yield from (self._csv if self._format == "csv" else self._parquet)(stream)
        except UnicodeDecodeError as error:
            raise self._error(f"is not UTF-8: {error}") from error
        except (csv.Error, ArithmeticError, ValueError) as error:
            raise self._error(f"cannot be read as {self._format}: {error}") from error

    def _csv(self, stream: BinaryIO) -> Iterator[dict[str, Any]]:
        csv.field_size_limit(MAX_RECORD_BYTES)
        with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text, strict=True)
            names = next(reader, [])
            self._check_names(names)
            # Without empty lines.
            for row in filter(None, reader):
                if len(row) != len(names):
                    raise self._error(
                        f"has {len(row)} fields in line {reader.line_num:,}, and its first line "
                        f"names {len(names)}"
                    )
                yield dict(zip(names, row, strict=True))

    def _parquet(self, stream: BinaryIO) -> Iterator[dict[str, Any]]:
        # Slow to import, and most commands do without.
        try:
            from pyarrow import ArrowException
            from pyarrow.parquet import ParquetFile
        except ModuleNotFoundError as error:
            raise click.ClickException(
                "Parquet needs pyarrow: pip install 'kinesis-publishers[arrow]'"
            ) from error

        try:
            file = ParquetFile(stream)
            self._check_names(file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=_ROWS):
                yield from batch.to_pylist()
        except ArrowException as error:
            raise self._error(f"cannot be read as parquet: {error}") from error

    def _check_names(self, names: Sequence[str]) -> None:
        double = {one for one in names if names.count(one) > 1}
        if double:
            raise self._error(f"has several columns with the name {min(double)!r}")
        for column in (self._data_column, self._key_column):
            if column is not None and column not in names:
                known = ", ".join(map(repr, names))
                raise click.UsageError(
                    f"{self._name} has no column {column!r}; its columns are {known}."
                )

    def _entry_of(self, row: dict[str, Any], number: int) -> Entry:
        key = None
        if self._key_column is not None:
            key = row[self._key_column]
            # NaN, which is where a number is missing, is not equal to itself.
            if key is None or key == "" or key != key or isinstance(key, bytes | list | dict):
                raise self._error(f"has no partition key in row {number:,}, but {key!r:.100}")
            key = str(key)
        if self._data_column is None:
            try:
                return orjson.dumps(row, default=_json_value), key
            except TypeError as error:
                raise self._error(f"has what JSON has not in row {number:,}: {error}") from error
        data = row[self._data_column]
        if not isinstance(data, bytes | str):
            raise self._error(f"has neither bytes nor text in row {number:,}, but {data!r:.100}")
        return data.encode() if isinstance(data, str) else data, key

    def _error(self, problem: str) -> click.ClickException:
        return click.ClickException(f"{self._name} {problem}.")


def _json_value(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    # The times of pandas, which have nanoseconds.
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    raise TypeError(f"{type(value).__name__} is not a type of JSON")
