"""What a processor is told, and what its checkpoints are worth."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import UserRecord
from kinesis_publishers.aggregation import pack_user_records
from tests.integration.cli.daemon_support import STREAM, payloads

if TYPE_CHECKING:
    from tests.integration.cli.daemon_support import Daemon, Played

SHARD = "shardId-000000000000"


async def stopped(daemon: Daemon, processor: Played, running: asyncio.Task[None]) -> None:
    """Stop the daemon, without a further checkpoint."""
    daemon.stop()
    await processor.take("shutdownRequested")
    await processor.take("leaseLost")
    await processor.close()
    await running


async def read_next(daemon: Daemon, count: int) -> list[int]:
    """Return the next records of the next run, which processes none of them."""
    async with daemon.running():
        processor = await daemon.begun()
        return payloads(await processor.expect("processRecords"))[:count]


async def test_a_stop_lets_the_processor_checkpoint_everything_it_has(daemon: Daemon) -> None:
    daemon.put(3)
    async with daemon.running() as running:
        processor = await daemon.started()
        begin = await processor.take("initialize")
        assert begin == {
            "action": "initialize",
            "shardId": SHARD,
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
    assert await read_next(daemon, 1) == [3]


async def test_a_record_has_the_fields_of_the_kcl(daemon: Daemon) -> None:
    daemon.put(1, key="a key")
    (stored,) = daemon.server.records(STREAM)[SHARD]
    async with daemon.running():
        processor = await daemon.begun()
        message = await processor.take("processRecords")
    assert message["records"] == [
        {
            "action": "record",
            "data": "MA==",
            "partitionKey": "a key",
            "sequenceNumber": stored.sequence_number,
            "subSequenceNumber": 0,
            "approximateArrivalTimestamp": round(stored.arrival_time.timestamp() * 1000),
        }
    ]
    assert message["millisBehindLatest"] == 0


async def test_records_wait_until_the_processor_is_done_with_those_before(daemon: Daemon) -> None:
    daemon.put(2)
    async with daemon.running():
        processor = await daemon.begun()
        assert payloads(await processor.expect("processRecords")) == [0, 1]
        daemon.put(2)
        # It is the next message, and no records: those wait for the status.
        assert await processor.checkpoint() is None
        processor.done("processRecords")
        assert await processor.take_records(2) == [2, 3]


async def test_without_a_checkpoint_the_next_run_repeats_all_records(daemon: Daemon) -> None:
    daemon.put(3)
    async with daemon.running() as running:
        processor = await daemon.begun()
        await processor.take_records(3)
        await stopped(daemon, processor, running)
    assert await read_next(daemon, 3) == [0, 1, 2]


@pytest.mark.parametrize("sub", [None, 0])
async def test_a_checkpoint_at_a_record_repeats_those_behind_it(
    daemon: Daemon, sub: int | None
) -> None:
    daemon.put(3)
    async with daemon.running() as running:
        processor = await daemon.begun()
        message = await processor.expect("processRecords")
        number = message["records"][1]["sequenceNumber"]
        assert await processor.checkpoint(number, sub) is None
        processor.done("processRecords")
        await stopped(daemon, processor, running)
    assert await read_next(daemon, 1) == [2]


async def test_the_next_run_is_told_the_checkpoint(daemon: Daemon) -> None:
    daemon.put(2)
    async with daemon.running() as running:
        processor = await daemon.begun()
        message = await processor.expect("processRecords")
        number = message["records"][0]["sequenceNumber"]
        assert await processor.checkpoint(number) is None
        processor.done("processRecords")
        await stopped(daemon, processor, running)
    async with daemon.running():
        begin = await (await daemon.started()).take("initialize")
        assert (begin["sequenceNumber"], begin["subSequenceNumber"]) == (number, 0)


async def test_a_checkpoint_inside_of_an_aggregate_repeats_the_rest_of_it(daemon: Daemon) -> None:
    users = [UserRecord(data=b"%d" % one, partition_key="key") for one in range(4)]
    daemon.server.put_many(STREAM, [("key", pack_user_records(users).data)])
    async with daemon.running() as running:
        processor = await daemon.begun()
        records = (await processor.expect("processRecords"))["records"]
        assert [one["subSequenceNumber"] for one in records] == [0, 1, 2, 3]
        assert await processor.checkpoint(records[1]["sequenceNumber"], 1) is None
        processor.done("processRecords")
        await stopped(daemon, processor, running)
    assert await read_next(daemon, 4) == [2, 3]


async def test_a_whole_aggregate_is_not_repeated(daemon: Daemon) -> None:
    users = [UserRecord(data=b"%d" % one, partition_key="key") for one in range(4)]
    daemon.server.put_many(STREAM, [("key", pack_user_records(users).data)])
    async with daemon.running() as running:
        processor = await daemon.begun()
        last = (await processor.expect("processRecords"))["records"][-1]
        assert await processor.checkpoint(last["sequenceNumber"], 3) is None
        processor.done("processRecords")
        await stopped(daemon, processor, running)
    daemon.put(1)
    assert await read_next(daemon, 4) == [0]


async def test_checkpoints_outside_of_what_was_handed_over_are_refused(daemon: Daemon) -> None:
    daemon.put(3)
    async with daemon.running():
        processor = await daemon.started()
        await processor.expect("initialize")
        assert await processor.checkpoint() == "InvalidStateException"
        processor.done("initialize")
        first, second, last = (await processor.expect("processRecords"))["records"]

        async def error_at(number: Any, sub: Any = None) -> str | None:
            return await processor.checkpoint(number, sub)

        refused = "IllegalArgumentException"
        assert await error_at(second["sequenceNumber"]) is None
        assert await error_at(first["sequenceNumber"]) == refused
        assert await error_at(str(int(last["sequenceNumber"]) + 1)) == refused
        assert await error_at(last["sequenceNumber"], 1) == refused
        assert await error_at(last["sequenceNumber"], -1) == refused
        assert await error_at("None") == refused
        assert await error_at("1", "x") == refused
        assert await error_at(second["sequenceNumber"]) is None
        assert await error_at(int(last["sequenceNumber"])) is None
        assert await error_at(None) is None


async def test_an_idle_shard_calls_the_processor_if_that_is_wanted(daemon: Daemon) -> None:
    daemon.more["callProcessRecordsEvenForEmptyRecordList"] = "true"
    async with daemon.running():
        processor = await daemon.begun()
        for _ in range(2):
            message = await processor.take("processRecords")
            assert message["records"] == []
            assert message["millisBehindLatest"] == 0
        daemon.put(1)
        taken: list[int] = []
        while not taken:
            taken = payloads(await processor.take("processRecords"))
        assert taken == [0]


async def test_parents_end_before_children_begin(daemon: Daemon) -> None:
    daemon.put(1)
    daemon.server.reshard(STREAM, 2)
    daemon.put(1)
    async with daemon.running():
        parent = await daemon.begun()
        await parent.take_records(1)
        await parent.expect("shardEnded")
        assert await parent.checkpoint() is None
        parent.done("shardEnded")
        await parent.close()
        children = [await daemon.begun() for _ in range(2)]
        assert {one.shard for one in children} == {"shardId-000000000001", "shardId-000000000002"}
        reading = [asyncio.create_task(one.take_records(1)) for one in children]
        done, others = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
        assert [one.result() for one in done] == [[1]]
        for one in others:
            one.cancel()


async def test_a_shard_whose_end_is_recorded_does_not_come_again(daemon: Daemon) -> None:
    daemon.put(1)
    daemon.server.reshard(STREAM, 2)
    async with daemon.running() as running:
        parent = await daemon.begun()
        (last,) = (await parent.expect("processRecords"))["records"]
        parent.done("processRecords")
        await parent.expect("shardEnded")
        # The KCL takes the last record of an ended shard for its end, too.
        assert await parent.checkpoint(last["sequenceNumber"], 0) is None
        parent.done("shardEnded")
        await parent.close()
        children = [await daemon.begun() for _ in range(2)]
        daemon.stop()
        for one in children:
            await one.take("shutdownRequested")
            await one.take("leaseLost")
            await one.close()
        await running
    async with daemon.running():
        begun = {(await daemon.begun()).shard for _ in range(2)}
        assert begun == {"shardId-000000000001", "shardId-000000000002"}


async def test_a_large_record_passes(daemon: Daemon) -> None:
    daemon.server.put_many(STREAM, [("key", bytes(1_000_000))])
    async with daemon.running():
        processor = await daemon.begun()
        (record,) = (await processor.take("processRecords"))["records"]
        assert b64decode(record["data"]) == bytes(1_000_000)
