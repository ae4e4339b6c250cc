"""A process that writes one checkpoint again and again, beside others that do the same.

Arguments: the properties of the store as JSON, and how often to try. It prints how often it won.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kinesis_publishers import Properties, SequenceNumber, ShardKey, ShardProgress, StartingPosition
from kinesis_publishers.assembly import checkpoint_store_class
from kinesis_publishers.config import CheckpointConfig
from kinesis_publishers.errors import StaleCheckpointError
from kinesis_publishers.model import Checkpoint, CheckpointWrite
from kinesis_publishers.testing.contracts.checkpoint_store import store_context

if TYPE_CHECKING:
    from kinesis_publishers.abc import CheckpointStore

KEY = ShardKey("arn:aws:kinesis:us-east-1:123456789012:stream/orders", "shardId-000000000000")


def store_of(properties: dict[str, str]) -> CheckpointStore:
    """Return the store of the application billing that ``properties`` name."""
    parsed = Properties.parse(properties)
    kind = checkpoint_store_class(CheckpointConfig.from_properties(parsed).store)
    return kind.from_properties(parsed, store_context("billing"))


async def try_once(store: CheckpointStore) -> bool:
    """Write what comes after that which is stored; say whether no other was quicker."""
    stored = (await store.load()).get(KEY)
    expected = None if stored is None else stored.version
    number = 0 if stored is None else int(str(stored.checkpoint.progress.processed))
    checkpoint = Checkpoint(
        shard=KEY,
        stream_created_at=datetime(2026, 1, 1, tzinfo=UTC),
        progress=ShardProgress(position=StartingPosition.after(SequenceNumber(str(number + 1)))),
    )
    try:
        await store.save([CheckpointWrite(checkpoint=checkpoint, expected=expected)])
    except StaleCheckpointError:
        return False
    return True


async def main() -> None:
    async with store_of(json.loads(sys.argv[1])) as store:
        print("ready", flush=True)  # noqa: T201
        await asyncio.to_thread(sys.stdin.readline)
        wins = [await try_once(store) for _ in range(int(sys.argv[2]))]
    print(sum(wins), flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
