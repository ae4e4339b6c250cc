"""A process that reads with checkpoints, and says on standard output what it has processed."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

from kinesis_publishers import KinesisDataFetcher

if TYPE_CHECKING:
    from kinesis_publishers import RecordBatch, Shard


async def on_batch(shard: Shard, batch: RecordBatch) -> None:
    lines = [f"{shard.shard_id} {one.sequence_number} {one.data.decode()}" for one in batch]
    print("\n".join(lines), flush=True)  # noqa: T201 - the test reads it


async def main() -> None:
    async with KinesisDataFetcher.from_properties(json.loads(sys.argv[1]), on_batch) as fetcher:
        await fetcher.run()


if __name__ == "__main__":
    asyncio.run(main())
