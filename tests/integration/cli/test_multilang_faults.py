"""Processors that do not do what they should, and what is kept of their work."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar

import pytest

from kinesis_publishers.checkpoints import MemoryCheckpointStore
from kinesis_publishers.cli.multilang import child
from kinesis_publishers.cli.multilang.child import ProcessorError
from kinesis_publishers.errors import (
    AccessDeniedError,
    ConnectionFailedError,
    ThroughputExceededError,
)
from kinesis_publishers.testing.local_kinesis import Fault
from tests.integration.cli.daemon_support import STREAM, payloads
from tests.integration.readers.fanout_reader import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.checkpoints.versions import Change, Refusal
    from tests.integration.cli.daemon_support import Daemon


async def test_a_processor_that_ends_fails_the_daemon_and_keeps_its_checkpoint(
    daemon: Daemon,
) -> None:
    daemon.put(3)
    async with daemon.running() as running:
        processor = await daemon.begun()
        message = await processor.expect("processRecords")
        assert await processor.checkpoint(message["records"][0]["sequenceNumber"]) is None
        processor.exit(3)
        with pytest.raises(ProcessorError, match=r"of orders.* has ended with 3"):
            await running
    async with daemon.running():
        processor = await daemon.begun()
        assert payloads(await processor.expect("processRecords")) == [1, 2]


async def test_the_failure_of_one_processor_stops_the_others_in_order(daemon: Daemon) -> None:
    daemon.server.reshard(STREAM, 2)
    async with daemon.running() as running:
        parent = await daemon.begun()
        await parent.expect("shardEnded")
        assert await parent.checkpoint() is None
        parent.done("shardEnded")
        await parent.close()
        first, second = [await daemon.begun() for _ in range(2)]
        for key in ("key-0", "key-1", "key-2"):
            daemon.put(1, key)
        await first.expect("processRecords")
        message = await second.expect("processRecords")
        first.exit(1)
        # It finishes what it has, and may checkpoint.
        second.done("processRecords")
        await second.expect("shutdownRequested")
        assert await second.checkpoint() is None
        second.done("shutdownRequested")
        await second.take("leaseLost")
        await second.close()
        with pytest.raises(ProcessorError, match=first.shard):
            await running
    processed = payloads(message)
    async with daemon.running():
        again = [await daemon.begun() for _ in range(2)]
        repeated = next(one for one in again if one.shard == first.shard)
        taken = await repeated.take_records(1)
        assert not set(taken) & set(processed)


async def test_an_answer_to_another_action_is_a_failure(daemon: Daemon) -> None:
    async with daemon.running() as running:
        processor = await daemon.started()
        await processor.expect("initialize")
        processor.done("processRecords")
        await processor.close()
        with pytest.raises(ProcessorError, match="has answered 'processRecords' to initialize"):
            await running


async def test_a_late_answer_is_a_failure(daemon: Daemon) -> None:
    daemon.put(1)
    async with daemon.running(timeoutInSeconds="1") as running:
        processor = await daemon.begun()
        await processor.expect("processRecords")
        with pytest.raises(
            ProcessorError, match="has not answered processRecords in timeoutInSeconds"
        ):
            await running


async def test_an_end_that_is_not_checkpointed_is_a_failure_and_read_again(
    daemon: Daemon,
) -> None:
    daemon.put(1)
    daemon.server.reshard(STREAM, 2)
    async with daemon.running() as running:
        processor = await daemon.begun()
        await processor.take_records(1)
        await processor.take("shardEnded")
        await processor.close()
        with pytest.raises(ProcessorError, match="has not checkpointed in shardEnded: the end"):
            await running
        assert not daemon.has_started
    async with daemon.running():
        processor = await daemon.begun()
        assert (processor.shard, await processor.take_records(1)) == ("shardId-000000000000", [0])


async def test_other_output_is_passed_over(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, child.__name__)
    async with daemon.running():
        processor = await daemon.started()
        await processor.expect("initialize")
        for line in (
            b"",
            b"import\x1b[2J",
            b"[1]",
            b'{"action": "unheard of"}',
            b"[" * 60_000,
            b"\xff" * 3_000_000,
        ):
            processor.print(line)
        processor.done("initialize")
        daemon.put(1)
        assert await processor.take_records(1) == [0]
    records = [one for one in caplog.records if one.name == child.__name__]
    told = [one.getMessage() for one in records]
    assert told[0] == (
        "The processor of orders/shardId-000000000000 writes to its standard output what is no "
        r"message: import\u001b[2J. Further such lines are logged at level INFO (--debug)"
    )
    # Without --debug, the first line is shown.
    assert [one.levelname for one in records[:4]] == ["WARNING", "INFO", "INFO", "INFO"]
    assert [one.partition("writes: ")[2] for one in told[1:3]] == [
        "[1]",
        '{"action": "unheard of"}',
    ]
    assert told[3].endswith("[" * 200)
    is_too_long = "writes a line too long to be read"
    assert is_too_long in told[4]
    # Its end counts as a line.
    assert all(is_too_long in one or one.endswith("\ufffd" * 200) for one in told[5:])


async def test_a_processor_that_does_not_stop_is_killed_after_the_grace(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.put(1)
    async with daemon.running(shutdownGraceMillis="50") as running:
        processor = await daemon.begun()
        await processor.expect("processRecords")
        daemon.stop()
        await running
    assert "take more than 0.05 seconds (shutdownGraceMillis) are killed: orders/" in caplog.text
    async with daemon.running():
        processor = await daemon.begun()
        assert await processor.take_records(1) == [0]


async def test_a_processor_that_stays_behind_the_end_of_its_input_is_killed(
    daemon: Daemon, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_END_SECONDS", 0.05)
    async with daemon.running() as running:
        processor = await daemon.begun()
        daemon.stop()
        await processor.take("shutdownRequested")
        await processor.take("leaseLost")
        await running
    assert "does not end, and is killed" in caplog.text


async def test_an_executable_that_does_not_start_is_a_failure(daemon: Daemon) -> None:
    script = daemon.folder / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    daemon.more["executableName"] = str(script)
    async with daemon.running() as running:
        with pytest.raises(ProcessorError, match="cannot be started: No such file or directory"):
            await running


async def test_a_failure_of_kinesis_stops_the_processors_in_order(daemon: Daemon) -> None:
    daemon.put(2)
    async with daemon.running() as running:
        processor = await daemon.begun()
        await processor.expect("processRecords")
        listings = len(daemon.server.calls("ListShards"))
        daemon.server.add_fault(
            Fault(operation="ListShards", kind="error", code="AccessDeniedException", status=400)
        )
        await until(lambda: len(daemon.server.calls("ListShards")) > listings)
        # It finishes what it has, and may checkpoint.
        processor.done("processRecords")
        await processor.expect("shutdownRequested")
        assert await processor.checkpoint() is None
        processor.done("shutdownRequested")
        await processor.take("leaseLost")
        await processor.close()
        with pytest.raises(AccessDeniedError, match="ListShards"):
            await running
    daemon.put(1)
    async with daemon.running():
        assert await (await daemon.begun()).take_records(1) == [2]


async def test_the_end_of_reading_ends_the_daemon(daemon: Daemon) -> None:
    daemon.put(1)
    async with daemon.running(
        kinesis_stream_endpos="LATEST", kinesis_lease_enabled="false"
    ) as running:
        processor = await daemon.begun()
        assert await processor.take_records(1) == [0]
        await processor.take("shutdownRequested")
        await processor.take("leaseLost")
        await processor.close()
        await running


async def test_what_a_processor_has_started_is_killed_with_it(daemon: Daemon) -> None:
    """It holds the output of the processor, which would never end."""
    script = daemon.folder / "script"
    script.write_text("#!/bin/sh\nsleep 1000 &\n")
    script.chmod(0o755)
    daemon.more |= {"executableName": str(script), "timeoutInSeconds": "1"}
    async with daemon.running() as running:
        with pytest.raises(ProcessorError, match="has not answered initialize in timeoutInSeconds"):
            await running


class ThrottledStore(MemoryCheckpointStore):
    """A store that refuses every write while ``failure`` is set."""

    failure: ClassVar[Exception | None] = None

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        if self.failure is not None:
            raise self.failure
        return await super()._apply(changes)


@pytest.mark.parametrize(
    ("failure", "name"),
    [
        (ThroughputExceededError("too many writes"), "ThrottlingException"),
        (ConnectionFailedError("no store"), "KinesisClientLibDependencyException"),
    ],
)
async def test_a_store_that_takes_no_writes_is_told_by_the_name_of_the_kcl(
    daemon: Daemon, failure: Exception, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint may be asked for again, and work continues meanwhile."""
    daemon.more["kinesis.checkpoint.store"] = f"{__name__}:{ThrottledStore.__name__}"
    daemon.more["kinesis.checkpoint.store.maxretries"] = "0"
    daemon.put(1)
    async with daemon.running(applicationName=name):
        processor = await daemon.begun()
        await processor.expect("processRecords")
        with monkeypatch.context() as failing:
            failing.setattr(ThrottledStore, "failure", failure)
            assert await processor.checkpoint() == name
        assert await processor.checkpoint() is None
        processor.done("processRecords")
        daemon.put(1)
        assert await processor.take_records(1) == [1]
