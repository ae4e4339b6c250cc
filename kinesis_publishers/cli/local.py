"""``kinesis-publishers local``: serves a local Kinesis until it is interrupted."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import click

from kinesis_publishers.config import StreamSelector

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

__all__ = ["local"]


@click.command()
@click.option(
    "--port",
    default=4567,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port to listen on; 0 takes any free one.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--limits",
    default="aws",
    show_default=True,
    type=click.Choice(["aws", "off"]),
    help="Refuse what AWS refuses (calls, bytes and sizes per shard), or nothing.",
)
@click.option(
    "--stream",
    default="demo",
    show_default=True,
    callback=lambda _context, _option, name: _checked_name(name),
    help="A stream to create.",
)
@click.option(
    "--shards",
    default=4,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many shards the stream has.",
)
def local(port: int, host: str, limits: str, stream: str, shards: int) -> None:
    """Serve a local Kinesis with one stream, in memory, until Ctrl-C."""
    try:
        from kinesis_publishers.testing.local_kinesis import Limits, run_server
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"'local' needs {error.name!r}, which is not installed.\n"
            "Install it with: pip install 'kinesis-publishers[local]'"
        ) from error

    try:
        run_server(
            host,
            port,
            Limits.aws() if limits == "aws" else Limits.off(),
            _announce(stream, shards),
        )
    except OSError as error:
        raise click.ClickException(_describe(error, host, port)) from error


def _checked_name(name: str) -> str:
    try:
        return StreamSelector.parse(name).name
    except ValueError as error:
        raise click.BadParameter(
            f"{name!r} is not the name of a stream: 1 to 128 letters, digits, '_', '.' or '-'."
        ) from error


def _announce(stream: str, shards: int) -> Callable[[LocalKinesis], None]:
    def announce(server: LocalKinesis) -> None:
        server.create_stream(stream, shards)
        # To the letter, not through rich, which would wrap lines that are meant to be pasted.
        click.echo(f"Kinesis at {server.endpoint_url}, stream {stream!r} with {shards} shards.")
        click.echo("Ctrl-C stops it. Properties that read the stream from its beginning:\n")
        properties = server.properties(stream) | {"kinesis.stream.initpos": "TRIM_HORIZON"}
        for key, value in properties.items():
            click.echo(f"{key}={value}")

    return announce


def _describe(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} of {host} is in use: choose another with --port (0 takes any free one)."
        )
    return f"Cannot listen on {host}, port {port}: {error.strerror or error}."
