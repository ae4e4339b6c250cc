"""A program that leaves a loop over records by ``break``, and closes nothing.

Arguments: the properties as JSON, and the number of the last record.
"""

from __future__ import annotations

import asyncio
import json
import sys

from kinesis_publishers import read


async def main() -> None:
    async for record in read(json.loads(sys.argv[1])):
        if record.data.decode() == sys.argv[2]:
            print(f"left at {sys.argv[2]}", flush=True)  # noqa: T201 - the test reads it
            break


if __name__ == "__main__":
    asyncio.run(main())
