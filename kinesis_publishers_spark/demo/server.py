"""The local Kinesis of the demo, in a process of its own: its work must not be Spark's."""

from __future__ import annotations

import multiprocessing
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

__all__ = ["ServerFailedError", "serve_stream"]


class ServerFailedError(Exception):
    """The server did not start."""


@contextmanager
def serve_stream(stream: str, shards: int) -> Iterator[dict[str, str]]:
    """Run a server with one stream while the context lasts; yield the properties that read it."""
    # Not fork: this process has threads, and later a JVM.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_serve, args=(theirs, stream, shards), name="local-kinesis", daemon=True
    )
    with ours:
        _start(process)
        theirs.close()
        try:
            yield _receive_properties(ours)
        finally:
            # It keeps nothing that would have to be saved.
            process.kill()
            process.join()


def _start(process: SpawnProcess) -> None:
    # Ctrl-C reaches every process of the terminal; the one that starts this one ends it in order.
    # Inherited, because a process that is still importing could not ignore it by itself.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, before)


def _receive_properties(connection: Connection) -> dict[str, str]:
    try:
        properties: dict[str, str] = connection.recv()
    except EOFError as error:
        raise ServerFailedError("The local Kinesis server did not start.") from error
    return properties


def _serve(connection: Connection, stream: str, shards: int) -> None:
    from kinesis_publishers.testing import Limits, LocalKinesis

    with LocalKinesis.in_thread(Limits.aws()) as server:
        server.create_stream(stream, shards)
        # Nothing is ever received: this ends when the process at the other end does.
        with suppress(EOFError, BrokenPipeError):
            connection.send(server.properties(stream))
            connection.recv()
