"""The local Kinesis of the demo, in a process of its own, so that it does not slow Spark down."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from kinesis_publishers_spark.demo import DemoError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


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
        # Ctrl-C reaches every process of the terminal; the one that starts this one ends it in
        # order. Inherited: a process that is still importing could not ignore the signal itself.
        with handled_signals(signal.SIGINT, handler=signal.SIG_IGN):
            process.start()
        theirs.close()
        try:
            # A server on this machine that is gone does not come back.
            yield {**_receive_properties(ours), "kinesis.retry.outagemillis": "30000"}
        finally:
            # It has nothing to save.
            process.kill()
            process.join()


@contextmanager
def handled_signals(*numbers: int, handler: Any = None) -> Iterator[None]:
    """Restore the handlers of signals when the context ends; ``handler`` replaces them in it."""
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        if handler is not None:
            for number in numbers:
                signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _receive_properties(connection: Connection) -> dict[str, str]:
    try:
        properties: dict[str, str] = connection.recv()
    except EOFError as error:
        raise DemoError("The local Kinesis server did not start.") from error
    return properties


def _serve(connection: Connection, stream: str, shards: int) -> None:
    from kinesis_publishers.testing import Limits, LocalKinesis

    with LocalKinesis.in_thread(Limits.aws()) as server:
        server.create_stream(stream, shards)
        # Nothing is ever sent: receiving ends when the process at the other end does.
        with suppress(EOFError, BrokenPipeError):
            connection.send(server.properties(stream))
            connection.recv()
