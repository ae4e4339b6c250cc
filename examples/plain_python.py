"""Read a stream without Spark and print what arrives, until Ctrl-C.

Start ``kinesis-publishers local``, copy the properties that it prints into a file, and run

    python examples/plain_python.py FILE.properties

With ``kinesis.stream.recordpublisher=EFO`` and a ``kinesis.stream.efo.consumername`` in the file it
reads by enhanced fan-out.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from kinesis_publishers import KinesisDataFetcher, Properties, RecordBatch, Shard


async def print_records(shard: Shard, batch: RecordBatch) -> None:
    """Print one delivery; the shard is read no further before this returns."""
    for record in batch:
        print(f"{shard} {record.partition_key}: {record.data!r}", flush=True)


async def main(path: Path) -> None:
    properties = Properties.from_file(path)
    async with KinesisDataFetcher.from_properties(properties, print_records) as fetcher:
        await fetcher.run()


if __name__ == "__main__":
    try:
        asyncio.run(main(Path(sys.argv[1])))
    except KeyboardInterrupt:
        sys.exit(130)
