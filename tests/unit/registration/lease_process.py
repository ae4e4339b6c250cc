"""A process that uses a consumer: ``lease_process.py <what it does> <log> <seed>``.

``hold`` registers a consumer unless there is one, says so, and leaves at the end of its standard
input. ``fork`` does too, and has a child that lives as long as its standard input. ``compete`` does
that at random, again and again, and is sometimes killed in the middle.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

from kinesis_publishers.clock import SystemClock
from kinesis_publishers.registration import ConsumerLease

STREAM_ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
CONSUMER_NAME = "billing"
_ROUNDS = 20


class User:
    """What a process does with the consumer, written to a log that all of them share."""

    def __init__(self, log: Path, seed: str) -> None:
        self._log = log
        self._clock = SystemClock()
        self.random = random.Random(seed)

    async def join(self) -> ConsumerLease:
        """Take a lease, and register the consumer unless another process has."""
        lease = await ConsumerLease.acquire(STREAM_ARN, CONSUMER_NAME, clock=self._clock)
        async with lease.registering():
            if lease.created_arn is None:
                number = f"{os.getpid()}{self.random.randrange(10**9):09}"
                lease.note_created(f"{STREAM_ARN}/consumer/{CONSUMER_NAME}:{number}")
                self.write(f"create {lease.created_arn}")
        return lease

    async def leave(self, lease: ConsumerLease) -> None:
        """Give the lease back."""

        async def remove(arn: str) -> None:
            await self.wait()
            self.write(f"remove {arn}")

        await lease.release(remove)

    async def wait(self) -> None:
        """Let others come in between."""
        await asyncio.sleep(self.random.random() * 0.03)

    def write(self, line: str) -> None:
        """Add a line to the log, in one piece."""
        descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)


async def hold(user: User) -> None:
    lease = await user.join()
    print("held", flush=True)  # noqa: T201 - the test waits for it
    await asyncio.to_thread(sys.stdin.read)
    await user.leave(lease)


async def fork(user: User) -> None:
    lease = await user.join()
    if os.fork() == 0:
        print("held", flush=True)  # noqa: T201 - the test waits for it
        os.read(0, 1)
        os._exit(0)
    await asyncio.Event().wait()
    lease.close()


async def compete(user: User) -> None:
    for round_number in range(_ROUNDS):
        lease = await user.join()
        before = lease.created_arn
        await user.wait()
        if lease.created_arn != before:
            user.write("removed while it was used")
        if round_number > _ROUNDS // 2 and user.random.random() < 0.1:
            os.kill(os.getpid(), signal.SIGKILL)
        await user.leave(lease)
        await user.wait()


if __name__ == "__main__":
    work = {"hold": hold, "fork": fork, "compete": compete}[sys.argv[1]]
    asyncio.run(work(User(Path(sys.argv[2]), sys.argv[3])))
