"""The output of commands: results to standard output, messages to standard error.

Rich is imported when something is drawn: most commands start faster without it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_DETAILED: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Without a terminal, nothing is wrapped or cut.
_ENDLESS: Final = 100_000


def output_console() -> Console:
    """Return a console on standard output; colours only on a terminal, and not with NO_COLOR."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=_ENDLESS)


def output_bytes() -> BinaryIO:
    """Return standard output for bytes; raises ``UsageError`` if it is closed."""
    if sys.stdout is None:
        raise click.UsageError("Standard output is closed.")
    return sys.stdout.buffer


def new_table(*headings: str, rows: Iterable[Iterable[str]] = (), **column: Any) -> Table:
    """Return a table of ``rows`` with a line below its headings; ``column`` is for each column."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, **column)
    for row in rows:
        add_row(table, *row)
    return table


def add_row(table: Table, *cells: str | Text, style: str = "") -> None:
    """Add a row of literal texts: none is markup, and no control character reaches the terminal."""
    from rich.text import Text

    shown = (Text(printable(one)) if isinstance(one, str) else one for one in cells)
    table.add_row(*shown, style=style)


def shown_lines(text: str) -> str:
    """Return a text of one or more lines without control characters."""
    return "\n".join(map(printable, text.split("\n")))


def print_rich(renderable: RenderableType, *, is_cut: bool = True) -> None:
    """Write to standard output, as wide as a terminal if ``is_cut``; elsewhere without padding."""
    from rich.console import Console

    # With a height as well: otherwise a dumb terminal counts as 80 columns.
    console = output_console() if is_cut else Console(width=_ENDLESS, height=_ENDLESS)
    with console.capture() as capture:
        console.print(renderable)
    text = capture.get()
    if not console.is_terminal:
        text = "\n".join(map(str.rstrip, text.split("\n"))).strip("\n") + "\n"
    click.echo(text, nl=False, color=console.is_terminal)


def print_json_lines(objects: Iterable[Any]) -> None:
    """Write each object as JSON on a line of its own, without control characters."""
    import orjson

    stream = output_bytes()
    for one in objects:
        stream.write(printable(orjson.dumps(one).decode()).encode() + b"\n")
    stream.flush()


def printable(text: str) -> str:
    r"""Return ``text`` on one line, without anything that a terminal would obey.

    Control and format characters are written as JSON does (``\n``, ``\u001b``): JSON stays the same
    JSON. What ``surrogateescape`` has made of a byte is written as ``\xff``.
    """
    return text if text.isprintable() else "".join(map(_printable_character, text))


def _printable_character(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return json.dumps(character)[1:-1].replace("\x7f", r"\u007f")


def say(text: str) -> None:
    """Write a message to standard error; it may quote untrusted text."""
    click.echo(shown_lines(text), err=True)


class _CommandHandler(logging.Handler):
    """Writes log lines to the present standard error, which a live table replaces."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            say(self.format(record))
        except Exception:  # noqa: BLE001 - what cannot be logged must not stop the work
            self.handleError(record)


class _LineFormatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.capitalize()}: {record.message}"


def set_up_logging() -> None:
    """Log to standard error from now on; for the process of a command, not for a library."""
    handler = _CommandHandler()
    handler.setFormatter(_chosen(_LineFormatter()))
    handler.addFilter(_says_more_than_the_error)
    logging.getLogger().addHandler(handler)


def log_everything() -> None:
    """Show what the framework does as well; does nothing without :func:`set_up_logging`.

    Only the framework: botocore's log has session tokens.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _CommandHandler):
            handler.setFormatter(_chosen(logging.Formatter(_DETAILED)))
            handler.removeFilter(_says_more_than_the_error)
            logging.getLogger("kinesis_publishers").setLevel(logging.DEBUG)


def _says_more_than_the_error(record: logging.LogRecord) -> bool:
    """Drop events that repeat the error with which the command ends."""
    # Imported with the first record: `--version` logs none.
    from kinesis_publishers import events as ev

    ends = ev.FetcherStopped | ev.ShardStopped | ev.ProcessingFailed | ev.RecordsFailed
    return not (record.msg == "%s" and any(isinstance(one, ends) for one in record.args or ()))


def _chosen(text: logging.Formatter) -> logging.Formatter:
    # Most commands log nothing, and start faster without events.
    if "KINESIS_PUBLISHERS_LOG_FORMAT" not in os.environ:
        return text
    from kinesis_publishers.errors import ConfigError
    from kinesis_publishers.events import log_formatter

    try:
        return log_formatter(text)
    except ConfigError as error:
        say(f"Error: {error}")
        sys.exit(2)
