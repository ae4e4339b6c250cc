"""``kinesis-publishers local``: serves a local Kinesis until it is interrupted."""

from __future__ import annotations

import asyncio
import errno
from contextlib import AsyncExitStack, suppress

import click
from click.exceptions import Exit

from kinesis_publishers.cli.shared.commands import LOCAL_PORT, STREAM_NAME, CleanCommand
from kinesis_publishers.cli.shared.event_loop import run_until_signal


@click.command(cls=CleanCommand)
@click.option(
    "--port",
    default=LOCAL_PORT,
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
    type=STREAM_NAME,
    metavar="TEXT",
    help="A stream to create.",
)
@click.option(
    "--shards",
    default=4,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many shards the stream has.",
)
@click.option(
    "--tls",
    is_flag=True,
    help="Serve https, over HTTP/2 and HTTP/1.1, with a certificate made for this run.",
)
@click.option(
    "--ca-file",
    type=click.Path(dir_okay=False),
    help="With --tls: the file for the CA certificate that clients must trust. By default, a "
    "temporary file.",
)
def local(
    port: int, host: str, limits: str, stream: str, shards: int, tls: bool, ca_file: str | None
) -> None:
    """Serve a local Kinesis with one stream, in memory, until Ctrl-C.

    Prints the properties that read the stream, and messages as comments, so that the output is a
    .properties file for --config of the other commands.

    \b
    Example:
      kinesis-publishers local --port 4567 > local.properties &
      kinesis-publishers put --config local.properties 'a record'
      kinesis-publishers tail --config local.properties
    """
    if ca_file is not None and not tls:
        raise click.UsageError("--ca-file needs an https server: add --tls.")

    async def serve() -> None:
        # With --tls, starting the server needs modules that importing it does not.
        from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis

        kind = Limits.aws() if limits == "aws" else Limits.off()
        server = LocalKinesis(kind, host=host, port=port, tls=tls, ca_file=ca_file)
        async with AsyncExitStack() as opened:
            try:
                await opened.enter_async_context(server)
            except OSError as error:
                raise click.ClickException(_describe(error, host, port)) from error
            server.create_stream(stream, shards)
            properties = server.properties(stream) | {"kinesis.stream.initpos": "TRIM_HORIZON"}
            # To the letter, not through rich, which would wrap lines that are meant to be pasted.
            click.echo(
                f"# Kinesis at {server.endpoint_url}, stream {stream!r} with {shards} shards."
            )
            if server.ca_bundle is not None:
                click.echo(f"# Clients must trust the CA certificate in {server.ca_bundle}")
            click.echo("# Ctrl-C stops it. Properties that read the stream from its beginning:\n")
            for key, value in properties.items():
                click.echo(f"{key}={value}")
            await asyncio.Event().wait()

    try:
        # A signal is its orderly end.
        with suppress(Exit):
            run_until_signal(serve())
    except ModuleNotFoundError as error:
        raise click.ClickException(error.msg) from error


def _describe(error: OSError, host: str, port: int) -> str:
    if error.filename is not None:
        return f"Cannot write {error.filename}: {error.strerror}. Choose another with --ca-file."
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} of {host} is in use: choose another with --port (0 takes any free one)."
        )
    return f"Cannot listen on {host}, port {port}: {error.strerror or error}."
