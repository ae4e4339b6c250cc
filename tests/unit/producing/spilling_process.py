"""A producer that puts numbers until it is killed: ``... <options> <count> <kind>``.

It says how many of them are stored, in the stream or on disk, each time it has put some.
"""

from __future__ import annotations

import asyncio
import json
import sys

from kinesis_publishers import BlockingProducer, KinesisProducer


def _say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


async def _put(options: dict[str, str], count: int) -> None:
    async with KinesisProducer.from_properties(options) as producer:
        # The buffer has room for one of them, which dies with the process.
        memory = await producer.put(b"in memory", "k")
        for number in range(count):
            await producer.put(b"%d" % number, "k")
            _say(number)
        await memory
        await asyncio.Event().wait()


def _put_blocking(options: dict[str, str], count: int) -> None:
    with BlockingProducer.from_properties(options) as producer:
        producer.put(b"in memory", "k")
        for number in range(count):
            producer.put(b"%d" % number, "k")
            _say(number)


if __name__ == "__main__":
    given = json.loads(sys.argv[1]), int(sys.argv[2])
    if sys.argv[3] == "blocking":
        _put_blocking(*given)
    else:
        asyncio.run(_put(*given))
