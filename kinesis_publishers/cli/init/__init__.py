"""The command ``init``: a small project that works, to begin with."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

import click

from kinesis_publishers.cli.shared.commands import CleanCommand
from kinesis_publishers.cli.shared.console import say

KINDS: Final = {
    "plain": "a consumer in Python",
    "spark": "a job of Spark Structured Streaming",
    "publisher": "a record publisher of your own, with the tests that every publisher passes",
}
# So that no tool takes the templates for modules of this package.
_SUFFIX: Final = ".txt"


@click.command(cls=CleanCommand)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--kind",
    type=click.Choice(list(KINDS)),
    default="plain",
    show_default=True,
    help="; ".join(f"{name}: {text}" for name, text in KINDS.items()) + ".",
)
def init(folder: Path, kind: str) -> None:
    """Write a small project that works: a program, its tests, and a README with the next steps.

    It runs against 'kinesis-publishers local' until its properties name a stream of your own.

    \b
    Examples:
      kinesis-publishers init orders
      kinesis-publishers init orders-job --kind spark
    """
    made = {
        folder / one.name.removesuffix(_SUFFIX): one
        for one in files(__package__).joinpath(kind).iterdir()
        if one.name.endswith(_SUFFIX)
    }
    existing = sorted(path.name for path in made if path.exists())
    if existing:
        raise click.UsageError(
            f"{folder} has {', '.join(existing)} already: nothing was written. Name another folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path, template in sorted(made.items()):
        path.write_bytes(template.read_bytes())
        click.echo(path)
    say(f"Go on with {folder / 'README.md'}.")
