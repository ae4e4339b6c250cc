"""Short names for what the tests of the simple API say."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

from attrs import define, field

from kinesis_publishers import UserRecord
from kinesis_publishers.aggregation import pack_user_records
from kinesis_publishers.assembly import open_checkpointer
from kinesis_publishers.config import Properties

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kinesis_publishers import Record, ShardProgress
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

__all__ = ["STREAM", "Orders", "numbers", "run_program"]

STREAM = "orders"


@define
class Orders:
    """A stream of numbered records, and where its readers keep their checkpoints."""

    server: LocalKinesis
    path: Path
    count: int = field(default=0, init=False)

    def put(self, count: int, *, key: str | None = None, is_aggregated: bool = False) -> list[int]:
        """Put the next ``count`` numbers, over both shards or all with ``key``; return them."""
        numbers = list(range(self.count, self.count + count))
        self.count += count
        records = [(key or f"key-{n}", b"%d" % n) for n in numbers]
        if is_aggregated:
            assert key is not None
            users = [UserRecord(data=data, partition_key=key) for _, data in records]
            records = [(key, pack_user_records(users).data)]
        self.server.put_many(STREAM, records)
        return numbers

    def properties(self, **more: str) -> dict[str, str]:
        """Return what a reader needs; ``more`` goes by the last parts of its keys."""
        return {
            **self.server.properties(STREAM),
            "kinesis.stream.initpos": "TRIM_HORIZON",
            "kinesis.shard.getrecords.intervalmillis": "20",
            "kinesis.shard.discovery.intervalmillis": "100",
            "kinesis.checkpoint.application": "tests",
            "kinesis.checkpoint.sqlite.path": str(self.path),
            **{f"kinesis.{key.replace('_', '.')}": value for key, value in more.items()},
        }

    def stored(self) -> dict[str, ShardProgress]:
        """Return the stored progress of each shard, by shard id; of another event loop's time."""

        async def load() -> dict[str, ShardProgress]:
            properties = Properties.parse(self.properties())
            async with open_checkpointer(properties) as checkpointer:
                assert checkpointer is not None
                streams = await checkpointer.take_over({})
            (stream,) = streams.values()
            return dict(stream.shards)

        return asyncio.run(load())


def numbers(records: Iterable[Record]) -> list[int]:
    """Return the numbers that ``records`` hold."""
    return [int(record.data) for record in records]


def run_program(code: str) -> tuple[str, str]:
    """Run Python in a process of its own to its good end; return what it has printed and said."""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout, done.stderr
