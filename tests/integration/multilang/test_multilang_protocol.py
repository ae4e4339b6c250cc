"""What a processor is told, and what its checkpoints are worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.multilang.daemon_support import payloads

if TYPE_CHECKING:
    from tests.integration.multilang.daemon_support import Daemon


async def test_a_shard_begins_with_its_checkpoint_and_a_stop_lets_it_checkpoint(
    daemon: Daemon,
) -> None:
    daemon.put(3)
    async with daemon.running() as running:
        processor = await daemon.started()
        begin = await processor.take("initialize")
        assert begin == {
            "action": "initialize",
            "shardId": "shardId-000000000000",
            "sequenceNumber": "TRIM_HORIZON",
            "subSequenceNumber": 0,
        }
        assert await processor.take_records(3) == [0, 1, 2]
        daemon.stop()
        await processor.expect("shutdownRequested")
        assert await processor.checkpoint() is None
        processor.done("shutdownRequested")
        await processor.take("leaseLost")
        await processor.close()
        await running
    daemon.put(1)
    async with daemon.running():
        processor = await daemon.begun()
        assert payloads(await processor.take("processRecords")) == [3]
