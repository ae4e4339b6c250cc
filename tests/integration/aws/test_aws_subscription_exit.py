"""A process that used pyreqwest ends as it should, no matter what is open."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
import trustme

from tests.integration.aws.aws_harness import (
    INITIAL,
    Exchange,
    ScriptedService,
    event,
    server_tls,
)

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import asyncio, sys, threading
from kinesis_publishers import StartingPosition
from kinesis_publishers.aws.data_plane import AioDataPlane
from tests.integration.aws.aws_harness import (
    CONSUMER_ARN, SHARD, aws_config, http_config
)

url, ca_bundle, way = sys.argv[1:]
enough = threading.Event()
events = 0

async def read(plane):
    global events
    position = StartingPosition.trim_horizon()
    async with plane.subscribe_to_shard(SHARD, CONSUMER_ARN, position) as subscription:
        while await subscription.wait_for_event() is not None:
            await subscription.receive()
            events += 1
            if events == 100:
                enough.set()

async def main():
    async with AioDataPlane(aws_config(url, ca_bundle), http=http_config("pyreqwest")) as plane:
        readers = [asyncio.ensure_future(read(plane)) for _ in range(4)]
        while not enough.is_set():
            await asyncio.sleep(0.001)
        if way == "error":
            raise ValueError("the application fails")
        if way == "exit":
            sys.exit(3)
        if way == "stop":
            asyncio.get_running_loop().stop()
            await asyncio.sleep(1000)
        if way == "daemon":
            await asyncio.wait(readers)
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)

if way == "daemon":
    threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
    enough.wait()
elif way == "stop":
    loop = asyncio.new_event_loop()
    running = loop.create_task(main())
    loop.run_forever()
else:
    asyncio.run(main())
"""
EXIT_CODES = {"normal": 0, "error": 1, "exit": 3, "stop": 0, "daemon": 0}


async def trickle(exchange: Exchange) -> None:
    await exchange.answer()
    await exchange.send(INITIAL)
    while True:
        await exchange.send(event(1, "QUJD"))
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    "times", [1, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(900)])]
)
@pytest.mark.parametrize("way", EXIT_CODES)
async def test_a_process_ends_with_the_right_code(way: str, times: int, tmp_path: Path) -> None:
    authority = trustme.CA()
    ca_bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca_bundle)
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    async with ScriptedService(trickle, server_tls(authority, ["h2"])).serve() as service:
        arguments = [sys.executable, str(program), service.url, str(ca_bundle), way]
        for _ in range(times):
            code = await asyncio.to_thread(run, arguments)
            assert code == EXIT_CODES[way]


def run(arguments: list[str]) -> int:
    done = subprocess.run(arguments, timeout=60, stderr=subprocess.DEVNULL, check=False)
    return done.returncode
