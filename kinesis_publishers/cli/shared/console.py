"""Where commands write: results to standard output, messages to standard error.

Rich is imported when something is drawn: most commands start faster without it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, RenderableType
    from rich.tree import Tree

__all__ = [
    "discard_output",
    "output_bytes",
    "output_console",
    "print_json_lines",
    "print_rich",
    "print_tree",
    "say",
]

# Nothing is wrapped or cut where no terminal says how wide it is.
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


def discard_output() -> None:
    """Discard all further output, after its reader has gone.

    What is buffered would otherwise be an error when the interpreter ends.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_rich(renderable: RenderableType) -> None:
    """Write a table to standard output; where that is no terminal, without padding."""
    console = output_console()
    if console.is_terminal:
        console.print(renderable)
        return
    with console.capture() as capture:
        console.print(renderable)
    lines = [line.rstrip() for line in capture.get().strip("\n").split("\n")]
    click.echo("\n".join(lines).strip("\n"))


def print_tree(tree: Tree) -> None:
    """Write a tree to standard output with whole lines, which a terminal may wrap itself.

    Deep branches would otherwise be cut at its width, and their labels with them.
    """
    from rich.console import Console

    # With a height as well: otherwise a dumb terminal counts as 80 columns.
    console = Console(width=_ENDLESS, height=_ENDLESS)
    with console.capture() as capture:
        console.print(tree)
    click.echo(capture.get(), nl=False, color=console.is_terminal)


def print_json_lines(objects: Iterable[Any]) -> None:
    """Write each object as JSON on a line of its own."""
    import orjson

    stream = output_bytes()
    for one in objects:
        stream.write(orjson.dumps(one, option=orjson.OPT_APPEND_NEWLINE))
    stream.flush()


def say(text: str) -> None:
    """Write a message to standard error."""
    click.echo(text, err=True)
