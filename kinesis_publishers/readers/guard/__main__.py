"""The guard process itself, which a reader starts, and which leaves the consumers after its end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from kinesis_publishers.assembly import ControlServices, open_control
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import Properties
from kinesis_publishers.errors import KinesisPublishersError
from kinesis_publishers.events import log_formatter
from kinesis_publishers.readers.guard.guard import READY
from kinesis_publishers.registration import ConsumerLease, deregister_consumer
from kinesis_publishers.registration.consumers import deregister_command
from kinesis_publishers.registration.lease_files import lease_directory
from kinesis_publishers.tasks import TaskScope, wait_for_event

_LOGGER = logging.getLogger("kinesis_publishers.readers.guard")

# In the directory of the leases, for what a person must know after the reader's end.
LOG_NAME = "consumer-guard.log"


def main() -> None:
    """Guard the consumers that standard input names, until it ends."""
    # Ctrl-C is for the reader; this process sees the reader's end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _set_up_logging()
    line = sys.stdin.buffer.readline()
    if line.endswith(b"\n"):  # else the reader is gone already
        properties, stream_arns, linger_seconds = json.loads(line)
        asyncio.run(_guard(Properties.parse(properties), stream_arns, linger_seconds))


def _set_up_logging() -> None:
    # Standard error goes to the driver's log while the reader lives. Spark closes it with the
    # reader: writing to a closed pipe is no error.
    logging.raiseExceptions = False
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    with suppress(OSError):
        file = logging.FileHandler(lease_directory() / LOG_NAME, encoding="utf-8", delay=True)
        file.setLevel(logging.WARNING)
        handlers.append(file)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    for handler in handlers:
        handler.setFormatter(log_formatter(text))
    logging.basicConfig(handlers=handlers)
    logging.getLogger("kinesis_publishers").setLevel(logging.INFO)


async def _guard(properties: Properties, stream_arns: Iterable[str], linger_seconds: float) -> None:
    # Opened at once: it reads files, which may be the job's own and disappear with it.
    async with open_control(properties) as control:
        await control.control_plane.load()
        name = control.registration.required_name()
        leases = [
            await ConsumerLease.acquire(
                arn, name, clock=control.clock, endpoint_url=control.registration.endpoint_url
            )
            for arn in stream_arns
        ]
        _say_ready()
        await _wait_for_the_end(linger_seconds, control.clock)
        async with TaskScope() as scope:
            for lease in leases:
                scope.spawn(lease.release(partial(_remove, control)), name="leave a consumer")


async def _wait_for_the_end(linger_seconds: float, clock: Clock) -> None:
    """Wait until the reader has ended, and linger unless this process is told to terminate."""
    loop = asyncio.get_running_loop()
    is_urgent = asyncio.Event()
    # A machine that shuts down terminates every process at once. This one still waits for the
    # reader's end: until then the reader's lease keeps the consumer, and nothing removes it later.
    loop.add_signal_handler(signal.SIGTERM, is_urgent.set)
    pipe = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(pipe), sys.stdin.buffer)
    await pipe.read()
    await wait_for_event(is_urgent, timeout_seconds=linger_seconds, clock=clock)


async def _remove(control: ControlServices, consumer_arn: str) -> bool:
    try:
        # Twice: the calls may take as long as the wait for their effect.
        async with control.clock.timeout(2 * control.registration.deregister_timeout_seconds):
            return await deregister_consumer(consumer_arn, control.registration, control)
    except Exception as error:  # The outermost: no caller is left to see it.
        is_expected = isinstance(error, (KinesisPublishersError, TimeoutError))
        _LOGGER.warning(
            "The stream consumer could not be removed (%s). Once nothing uses it, remove it: %s",
            str(error) or "it took too long",
            deregister_command(consumer_arn),
            exc_info=None if is_expected else error,
        )
        return False


def _say_ready() -> None:
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    # The reader has closed its end, and nothing more is said.
    with Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


if __name__ == "__main__":
    main()
