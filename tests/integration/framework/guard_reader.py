"""A program that uses a stream consumer until it is killed, as Spark's reader does.

Arguments: the properties as JSON, the ARN of the stream. It prints the process ids of its guard and
of a child that outlives it, and the ARN of the consumer.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import psutil

from kinesis_publishers import Properties, PublisherContext, SystemClock, log_event
from kinesis_publishers.aws import AioDataPlane, Boto3ControlPlane
from kinesis_publishers.config import AwsConfig, RegistrationConfig
from kinesis_publishers.readers.guard import ConsumerGuard
from kinesis_publishers.registration import create_registrar


def main() -> None:
    properties, stream_arn = Properties.parse(json.loads(sys.argv[1])), sys.argv[2]
    guard = ConsumerGuard(properties)
    guard.hold([stream_arn])
    (guard_process,) = psutil.Process().children()
    # With all that it could inherit: it must not keep the pipe to the guard open.
    child = subprocess.Popen(["sleep", "600"], close_fds=False, stdout=subprocess.DEVNULL)
    print(guard_process.pid, child.pid, end=" ")  # noqa: T201 - half of the answer
    asyncio.run(use_consumer(properties, stream_arn))


async def use_consumer(properties: Properties, stream_arn: str) -> None:
    aws = AwsConfig.from_properties(properties)
    async with Boto3ControlPlane(aws) as control_plane:
        context = PublisherContext(
            data_plane=AioDataPlane(aws),
            control_plane=control_plane,
            clock=SystemClock(),
            events=log_event,
        )
        registrar = create_registrar(RegistrationConfig.from_properties(properties), context)
        print(await registrar.consumer_arn(stream_arn), flush=True)  # noqa: T201 - the other half
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
