"""What all commands have in common: how they fail, and ``--debug``."""

from __future__ import annotations

import traceback
from typing import Any

import click

from kinesis_publishers.cli.interruptions import INTERRUPTED
from kinesis_publishers.cli.logs import log_everything
from kinesis_publishers.errors import KinesisPublishersError

__all__ = ["CleanCommand", "CleanGroup"]

_DEBUG = "kinesis_publishers.cli.debug"


def _note_debug(context: click.Context, _: click.Parameter, is_debug: bool) -> None:
    context.meta[_DEBUG] = is_debug
    if is_debug:
        log_everything()


class CleanCommand(click.Command):
    """A command whose errors of the framework are one message, and whose Ctrl-C is silent.

    The exit code is 1 after an error, 2 after wrong usage, and 128 plus the number of the signal
    after an interruption.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        debug = click.Option(
            ["--debug"],
            is_flag=True,
            expose_value=False,
            callback=_note_debug,
            help="Show where in the code an error comes from, and all that is logged.",
        )
        self.params.append(debug)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KinesisPublishersError as error:
            if ctx.meta.get(_DEBUG):
                click.echo(traceback.format_exc(), err=True, nl=False)
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


class CleanGroup(click.Group):
    """A group of such commands."""

    command_class = CleanCommand
