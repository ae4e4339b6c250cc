"""The group ``kinesis-publishers``: its own commands and those that other packages announce."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, version
from typing import Final, NoReturn

import click

from kinesis_publishers.cli.shared import SuggestingGroup
from kinesis_publishers.cli.shared.console import set_up_logging

COMMANDS_GROUP: Final = "kinesis_publishers.commands"
"""The entry-point group in which a package announces click commands."""

# What the list of commands says of each, which is loaded only when it is used.
_OWN: Final = {
    "create": "Create a stream, and wait until it is ACTIVE.",
    "describe": "Show what streams are: status, mode, retention, shards and stream consumers.",
    "list": "List the streams of a region.",
    "config": "Show what can be configured, and check configurations and permissions.",
    "consumers": "Manage the stream consumers of enhanced fan-out by hand.",
    "init": "Write a small project that works: a program, its tests, and a README.",
    "leases": "Show and change which worker reads which shard, and how far.",
    "multilang": "Run the processors of a MultiLangDaemon's .properties FILE, without Java.",
    "local": "Serve a local Kinesis with one stream, in memory, until Ctrl-C.",
    "put": "Write records to a stream: each DATA, else each line of a file or of standard input.",
    "shards": (
        "Show the shards of streams: which are open, their share of the hash keys, their parents."
    ),
    "tail": "Read streams and show what arrives, until Ctrl-C.",
}
# The module and the function of a command, where they do not have its name.
_PLACES: Final = {
    "create": ("streams", "create"),
    "describe": ("streams", "describe"),
    "list": ("streams", "list_streams"),
    "shards": ("streams", "shards"),
}


class LazyGroup(SuggestingGroup):
    """Has our commands and those of :data:`COMMANDS_GROUP`; loads them when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*_OWN, *_announced()})

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without loading our own."""
        points = _announced().items()
        others = {name: _loaded(point) for name, point in points if name not in _OWN}
        own = {name: click.Command(name, help=text) for name, text in _OWN.items()}
        click.Group(commands=others | own).format_commands(ctx, formatter)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; one that cannot be loaded says why as soon as it is run."""
        if cmd_name in _OWN:
            module, function = _PLACES.get(cmd_name, (cmd_name, cmd_name))
            own: click.Command
            own = getattr(import_module(f"kinesis_publishers.cli.{module}"), function)
            return own
        point = _announced().get(cmd_name)
        return _loaded(point) if point else None


def _announced() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=COMMANDS_GROUP)}


def _loaded(point: EntryPoint) -> click.Command:
    try:
        loaded: object = point.load()
    except ImportError as error:
        return _unavailable(point, error)
    if not isinstance(loaded, click.Command):
        raise click.ClickException(f"{point.value}, announced as {point.name!r}, is no command.")
    return loaded


def _unavailable(point: EntryPoint, error: ImportError) -> click.Command:
    missing = (error.name or str(error)).partition(".")[0]
    needed = f"the package that has {point.module}"
    if point.dist is not None:
        extras = point.dist.metadata.get_all("Provides-Extra") or ()
        extra = f"[{point.name}]" if point.name in extras else ""
        needed = f"'{point.dist.name}{extra}'"

    def fail() -> NoReturn:
        raise click.ClickException(
            f"{point.name!r} needs {missing!r}, which cannot be imported ({error}).\n"
            f"Install it with: pip install {needed}"
        ) from error

    return click.Command(
        point.name,
        callback=fail,
        # All options lead to the same answer.
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
        short_help=f"(not available: {missing} is not installed)",
    )


def _print_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        # Imported here: `--help` needs none of the framework.
        from kinesis_publishers.model.native import find_native

        click.echo(f"kinesis-publishers, version {version('kinesis-publishers')}")
        click.echo(f"Records are decoded in {find_native()[1]}.")
        context.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and what decodes records.",
)
def main() -> None:
    """Read Amazon Kinesis Data Streams from Python and from Spark."""


def run() -> None:
    """Run as a process, which logs to standard error."""
    set_up_logging()
    main()


if __name__ == "__main__":
    run()
