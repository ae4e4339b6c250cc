"""Processes that register one consumer at once: their properties and runtime directories are given.

There are as many as there are runtime directories. Each writes the ARN that it got, and leaves at
the end of standard input. They are forked off: twenty interpreters would start one by one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import NoReturn

from kinesis_publishers.assembly import open_control
from kinesis_publishers.config import Properties
from kinesis_publishers.events import ignore_event
from kinesis_publishers.registration import create_registrar

_STREAM_ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


async def register(properties: Properties, ready: int, start: int, stop: int) -> None:
    """Be one of the processes."""
    async with open_control(properties, events=ignore_event) as control:
        registrar = create_registrar(control.registration, control)
        os.write(ready, b".")
        await asyncio.to_thread(os.read, start, 1)
        try:
            arn = await registrar.consumer_arn(_STREAM_ARN)
            os.write(1, f"{os.getpid()} {arn}\n".encode())
            await asyncio.to_thread(os.read, stop, 1)
        finally:
            await registrar.close()


def fork_all(properties: Properties, runtimes: list[str]) -> None:
    """Start one process per runtime directory, let them all go at once, and wait for them."""
    getting_ready, ready = os.pipe()
    start, starting = os.pipe()
    stop, stopping = os.pipe()
    children = []
    for runtime in runtimes:
        child = os.fork()
        if child == 0:
            os.close(starting)
            os.close(stopping)
            os.environ["XDG_STATE_HOME"] = runtime
            run_and_exit(properties, ready, start, stop)
        children.append(child)
    for _ in children:
        os.read(getting_ready, 1)
    os.close(starting)
    sys.stdin.read()
    os.close(stopping)
    for child in children:
        os.waitpid(child, 0)


def run_and_exit(properties: Properties, ready: int, start: int, stop: int) -> NoReturn:
    """Be a process, and never return into what its parent does."""
    code = 1
    try:
        asyncio.run(register(properties, ready, start, stop))
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    fork_all(Properties.parse(json.loads(sys.argv[1])), json.loads(sys.argv[2]))
