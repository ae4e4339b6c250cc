"""A program that uses a stream consumer until it is killed, as Spark's reader does.

Arguments: the properties as JSON, the ARN of the stream, how many seconds the guard lingers. It
prints the process ids of its guard and of a child that outlives it, and the ARN of the consumer.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import psutil

from kinesis_publishers import Properties
from kinesis_publishers.assembly import open_control
from kinesis_publishers.readers.guard import ConsumerGuard
from kinesis_publishers.registration import create_registrar


def main() -> None:
    properties, stream_arn = Properties.parse(json.loads(sys.argv[1])), sys.argv[2]
    guard = ConsumerGuard(properties, linger_seconds=float(sys.argv[3]))
    guard.hold([stream_arn])
    (guard_process,) = psutil.Process().children()
    # With all that it could inherit: it must not keep the pipe to the guard open.
    child = subprocess.Popen(["sleep", "600"], close_fds=False, stdout=subprocess.DEVNULL)
    print(guard_process.pid, child.pid, end=" ")  # noqa: T201 - half of the answer
    asyncio.run(use_consumer(properties, stream_arn))


async def use_consumer(properties: Properties, stream_arn: str) -> None:
    async with open_control(properties) as control:
        registrar = create_registrar(control.registration, control)
        print(await registrar.consumer_arn(stream_arn), flush=True)  # noqa: T201 - the other half
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
