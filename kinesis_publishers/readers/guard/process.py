"""The guard process itself: waits for the end of the reader, then leaves the consumers."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.aws import Boto3ControlPlane
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.config import AwsConfig, RegistrationConfig
from kinesis_publishers.errors import KinesisPublishersError
from kinesis_publishers.events import log_event
from kinesis_publishers.readers.guard.messages import READY, GuardRequest
from kinesis_publishers.registration import ConsumerLease, deregister_consumer
from kinesis_publishers.registration.consumer_arns import deregister_command
from kinesis_publishers.registration.lease_files import lease_directory
from kinesis_publishers.tasks import TaskScope, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_publishers.abc import ControlPlane
    from kinesis_publishers.clock import Clock
    from kinesis_publishers.config import Properties

__all__ = ["LOG_NAME", "main"]

_LOGGER = logging.getLogger(__name__)

# A query that is started again at once, as after an error, takes its own lease meanwhile: it finds
# its consumer there, and its subscriptions do not wait for a new one.
_LINGER_SECONDS = 5.0
# Beside the leases, for what has to be known when nobody listens any more.
LOG_NAME = "consumer-guard.log"


def main() -> None:
    """Guard what standard input says, until it ends."""
    # Ctrl-C is for the reader, whose end this process sees anyway.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _set_up_logging()
    line = sys.stdin.buffer.readline()
    if line.endswith(b"\n"):  # else the reader is gone already
        request = GuardRequest.from_line(line)
        guard = _Guard(
            properties=request.properties,
            config=RegistrationConfig.from_properties(request.properties),
            clock=SystemClock(),
        )
        asyncio.run(guard.run(request.stream_arns))


def _set_up_logging() -> None:
    # Standard error goes to the driver's log for as long as the reader lives. Spark closes it with
    # the reader, and a pipe that is closed is no reason to complain.
    logging.raiseExceptions = False
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    with suppress(OSError):
        file = logging.FileHandler(lease_directory() / LOG_NAME, encoding="utf-8", delay=True)
        file.setLevel(logging.WARNING)
        handlers.append(file)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", handlers=handlers)
    logging.getLogger("kinesis_publishers").setLevel(logging.INFO)


@frozen(kw_only=True)
class _Guard:
    properties: Properties
    config: RegistrationConfig
    clock: Clock

    async def run(self, stream_arns: Iterable[str]) -> None:
        # At once, because it reads files, which may be the job's own: they go when the job does.
        async with Boto3ControlPlane(AwsConfig.from_properties(self.properties)) as control_plane:
            leases = [await self._acquire_lease(arn) for arn in stream_arns]
            _say_ready()
            await self._wait_for_the_end()
            remove = partial(self._remove, control_plane)
            async with TaskScope() as scope:
                for lease in leases:
                    scope.spawn(lease.release(remove), name="leave a consumer")

    async def _acquire_lease(self, stream_arn: str) -> ConsumerLease:
        name = self.config.consumer_name
        assert name is not None, "NONE needs no guard"
        return await ConsumerLease.acquire(
            stream_arn, name, clock=self.clock, endpoint_url=self.config.endpoint_url
        )

    async def _wait_for_the_end(self) -> None:
        """Wait until the reader has ended, and a little longer unless somebody is in a hurry."""
        loop = asyncio.get_running_loop()
        is_urgent = asyncio.Event()
        # A machine that shuts down tells everybody at once. The reader's end is waited for all the
        # same: while it reads, its own lease keeps the consumer, and nobody would remove it later.
        loop.add_signal_handler(signal.SIGTERM, is_urgent.set)
        pipe = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(pipe), sys.stdin.buffer)
        await pipe.read()
        await wait_for_event(is_urgent, timeout_seconds=_LINGER_SECONDS, clock=self.clock)

    async def _remove(self, control_plane: ControlPlane, consumer_arn: str) -> bool:
        try:
            # Twice: the calls may take as long as the wait for their effect.
            async with self.clock.timeout(2 * self.config.deregister_timeout_seconds):
                return await deregister_consumer(
                    consumer_arn,
                    control_plane=control_plane,
                    config=self.config,
                    clock=self.clock,
                    events=log_event,
                )
        except Exception as error:  # The outermost: nobody is left who would see it.
            is_expected = isinstance(error, (KinesisPublishersError, TimeoutError))
            _LOGGER.warning(
                "The stream consumer could not be removed (%s). When nobody uses it any more: %s",
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
