"""A producer that puts numbers until it is killed: ``spilling_process.py <options> <count>``.

It says how many of them are stored, in the stream or on disk, each time it has put some.
"""

from __future__ import annotations

import asyncio
import json
import sys

from kinesis_publishers import KinesisProducer


async def _put(options: dict[str, str], count: int) -> None:
    async with KinesisProducer.from_properties(options) as producer:
        # The buffer has room for one of them, which dies with the process.
        memory = await producer.put(b"in memory", "k")
        for number in range(count):
            await producer.put(b"%d" % number, "k")
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
        await memory
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_put(json.loads(sys.argv[1]), int(sys.argv[2])))
