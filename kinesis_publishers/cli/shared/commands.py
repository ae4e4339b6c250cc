"""What all commands share: the form of their errors, ``--debug``, and types of options."""

from __future__ import annotations

import errno
import re
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import click

from kinesis_publishers.cli.shared import SuggestingGroup
from kinesis_publishers.cli.shared.console import log_everything, shown_lines
from kinesis_publishers.cli.shared.event_loop import run_until_signal
from kinesis_publishers.config import AwsConfig, CheckpointConfig, StreamsConfig, StreamSelector
from kinesis_publishers.config.assignments import SHORT_NAMES
from kinesis_publishers.errors import ConfigErrors, KinesisPublishersError, MissingOptionError

_T = TypeVar("_T")

OPTION_KEYS: Final = {
    "streams": StreamsConfig.names.full_key,
    "region": AwsConfig.region.full_key,
    "endpoint": AwsConfig.endpoint_url.full_key,
    "application": CheckpointConfig.application.full_key,
}
"""The keys that options of the command line stand for, by the names of their parameters."""
_POSITION_KEYS: Final = {name: SHORT_NAMES[name].full_key for name in ("start", "end")}
_DEBUG = "kinesis_publishers.cli.debug"
# Errors of writing, or of a terminal that has gone.
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def _note_debug(context: click.Context, _: click.Parameter, is_debug: bool) -> None:
    context.meta[_DEBUG] = is_debug
    if is_debug:
        log_everything()


class CleanCommand(click.Command):
    """A command that reports an error as one message, and ends silently on Ctrl-C.

    It may be an async function, which is run until a signal.

    An error that is neither the framework's nor the system's is a bug. If the reader of the output
    has gone, as with ``| head -1``, click ends silently. The exit code is 1 after an error, 2 after
    wrong usage, and 128 plus the number of the signal after an interruption.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        text = "Show the traceback of an error, and the whole log."
        self.params.append(
            click.Option(
                ["--debug"], is_flag=True, expose_value=False, callback=_note_debug, help=text
            )
        )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            return run_until_signal(result) if isinstance(result, Coroutine) else result
        except click.ClickException as error:
            # Changed in place: its class decides the exit code.
            error.message = shown_lines(error.message)  # type: ignore[misc]
            raise
        except KinesisPublishersError as error:
            # Without a file, the mistake in the properties is on the command line.
            is_config = isinstance(error, ConfigErrors | MissingOptionError)
            is_usage = is_config and not ctx.params.get("config")
            kind = click.UsageError if is_usage else click.ClickException
            raise _message(ctx, _in_words_of(ctx, error), kind) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            _drop_lost_output()
            raise _message(ctx, _describe(error)) from error
        except KeyboardInterrupt:
            ctx.exit(128 + signal.SIGINT)


def _in_words_of(ctx: click.Context, error: KinesisPublishersError) -> str:
    """Return the message of ``error``, with names of options in place of the keys that they set."""
    single = isinstance(error, ConfigErrors) and len(error.problems) == 1
    text = str(error.problems[0] if single else error)  # type: ignore[attr-defined]
    own = {option.name: option.opts[-1] for option in ctx.command.params}
    for name, key in (OPTION_KEYS | _POSITION_KEYS).items():
        # A problem of the file keeps the words of the file.
        is_line = name in OPTION_KEYS and not ctx.params.get("config")
        if name in own and (is_line or ctx.params.get(name)):
            text = re.sub(rf"(?<![\w.]){re.escape(key)}(?![\w.])", own[name], text)
    return text


def _message(
    ctx: click.Context, text: str, kind: type[click.ClickException] = click.ClickException
) -> click.ClickException:
    if ctx.meta.get(_DEBUG):
        click.echo(traceback.format_exc(), err=True, nl=False)
    return kind(shown_lines(text))


def _describe(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.filename is None and error.errno in _NO_ROOM:
        return f"The output cannot be written: {reason}. Write it to another place."
    place = "" if error.filename is None else f"{error.filename}: "
    return f"{place}{reason}. With --debug it says where that happened."


def _drop_lost_output() -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        # It would be an error again when the interpreter ends.
        sys.stdout = None


class CleanGroup(SuggestingGroup):
    command_class = CleanCommand


def opened(path: str | Path, *, advice: str = "name a file") -> AbstractContextManager[BinaryIO]:
    """Open a file, or standard input for ``-``; the ``advice`` is for one that is closed."""
    if path == "-":
        if sys.stdin is None:
            raise click.UsageError(f"Standard input is closed: {advice}.")
        return nullcontext(sys.stdin.buffer)
    try:
        return open(path, "rb")
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}.") from error


def read_file(path: str | Path) -> bytes:
    """Return the content of a file, or of standard input for ``-``."""
    with opened(path) as stream:
        return stream.read()


yes_option: Final = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, *, refusal: str) -> None:
    """Ask on the terminal; an answer other than yes is an error, which says the ``refusal``."""
    click.echo(f"{question} [y/N]: ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise click.ClickException(f"Not confirmed: {refusal}. In scripts, use --yes.")


def checked(check: Callable[[str], _T], refusal: str) -> Callable[[str], _T]:
    """Return ``check`` as a type of option, which refuses a text with ``refusal``.

    ``{}`` in it is the text. ``check`` raises ``ValueError`` or ``OverflowError``.
    """

    def convert(text: str) -> _T:
        try:
            return check(text)
        except (ValueError, OverflowError):
            raise click.BadParameter(refusal.format(repr(text))) from None

    return convert


def _stream_name(text: str) -> str:
    if ":" in text:
        raise ValueError("an ARN, which also says in which region")
    return StreamSelector.parse(text).name


STREAM_NAME: Final = checked(
    _stream_name,
    "{} is not the name of a stream: 1 to 128 letters, digits, '_', '.' or '-'.",
)
LOCAL_PORT: Final = 4567
"""Where the command ``local`` serves, and ``--local`` finds it."""
