"""The group ``kinesis-publishers``: its own commands and those that other packages announce."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Final, NoReturn

import click

from kinesis_publishers.cli.config.commands import config
from kinesis_publishers.cli.consumers.commands import consumers
from kinesis_publishers.cli.local import local
from kinesis_publishers.cli.logs import set_up_logging
from kinesis_publishers.cli.put.command import put
from kinesis_publishers.cli.shards import shards
from kinesis_publishers.cli.tail.command import tail

__all__ = ["COMMANDS_GROUP", "PluginGroup", "main", "run"]

COMMANDS_GROUP: Final = "kinesis_publishers.commands"
"""The entry-point group in which a package announces click commands."""


class PluginGroup(click.Group):
    """A group that also has the commands of :data:`COMMANDS_GROUP`, loaded when used or listed.

    The framework never imports pyspark; a command that needs it belongs to another package.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in alphabetical order."""
        return sorted({*super().list_commands(ctx), *_announced()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; one that cannot be loaded says why as soon as it is run."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        point = _announced().get(cmd_name)
        if point is None:
            return None
        try:
            loaded: object = point.load()
        except ImportError as error:
            return _unavailable(point, error)
        if not isinstance(loaded, click.Command):
            raise click.ClickException(f"{point.value}, announced as {cmd_name!r}, is no command.")
        return loaded


def _announced() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=COMMANDS_GROUP)}


def _unavailable(point: EntryPoint, error: ImportError) -> click.Command:
    missing = (error.name or str(error)).partition(".")[0]

    def fail() -> NoReturn:
        raise click.ClickException(
            f"{point.name!r} needs {missing!r}, which cannot be imported ({error}).\n"
            f"Install it with: pip install {_requirement(point)}"
        ) from error

    return click.Command(
        point.name,
        callback=fail,
        # Whatever the options are: the answer is that the command is not there.
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
        short_help=f"(not available: {missing} is not installed)",
    )


def _requirement(point: EntryPoint) -> str:
    if point.dist is None:
        return f"the package that has {point.module}"
    extras = point.dist.metadata.get_all("Provides-Extra") or ()
    extra = f"[{point.name}]" if point.name in extras else ""
    return f"'{point.dist.name}{extra}'"


@click.group(cls=PluginGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kinesis-publishers")
def main() -> None:
    """Read Amazon Kinesis Data Streams from Python and from Spark."""


for _command in (local, tail, put, shards, consumers, config):
    main.add_command(_command)


def run() -> None:
    """Be the process of a command: what is logged goes to standard error, too."""
    set_up_logging()
    main()


if __name__ == "__main__":
    run()
