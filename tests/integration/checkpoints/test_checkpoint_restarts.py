"""Readers with checkpoints that stop, are killed and start again, against a local Kinesis."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from kinesis_publishers import (
    KinesisDataFetcher,
    Properties,
    Record,
    RecordBatch,
    Shard,
    read,
)
from kinesis_publishers.checkpoints.sql import SqlCheckpointStore
from kinesis_publishers.errors import CheckpointError, ConfigError, RetriesExhaustedError
from kinesis_publishers.testing.contracts.checkpoint_store import store_context
from kinesis_publishers.testing.local_kinesis import Limits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_publishers.model import ShardKey, ShardProgress
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_TOTAL = 600
_READER = Path(__file__).with_name("checkpointed_reader.py")
_OFTEN = {
    "kinesis.shard.getrecords.intervalmillis": "20",
    "kinesis.shard.discovery.intervalmillis": "200",
    "kinesis.checkpoint.intervalmillis": "20",
}
_FAN_OUT = {
    "kinesis.stream.recordpublisher": "EFO",
    "kinesis.stream.efo.consumername": "billing",
    "kinesis.stream.efo.http-version": "1.1",
}


def properties_of(server: LocalKinesis, directory: Path) -> dict[str, str]:
    return {
        **server.properties("orders"),
        **_OFTEN,
        "kinesis.stream.initpos": "TRIM_HORIZON",
        "kinesis.checkpoint.application": "billing",
        "kinesis.checkpoint.sqlite.path": str(directory / "checkpoints.sqlite3"),
    }


def in_table(properties: dict[str, str], endpoint: str) -> dict[str, str]:
    """Return the properties of the same reader with a table for its checkpoints."""
    others = {key: one for key, one in properties.items() if ".sqlite." not in key}
    table = {"store": "dynamodb", "dynamodb.endpoint": endpoint}
    return others | {f"kinesis.checkpoint.{key}": one for key, one in table.items()}


def file_of(properties: dict[str, str]) -> Path:
    return Path(properties["kinesis.checkpoint.sqlite.path"])


async def stored(properties: dict[str, str]) -> dict[ShardKey, ShardProgress]:
    """Return what the store has."""
    parsed = Properties.parse(properties)
    async with SqlCheckpointStore.from_properties(parsed, store_context("billing")) as store:
        found = await store.load()
    return {k: one.checkpoint.progress for k, one in found.items() if k.shard_id != "*"}


def numbered(start: int, stop: int) -> list[tuple[str, bytes]]:
    return [(f"key-{number % 20}", b"%d" % number) for number in range(start, stop)]


async def read_all(properties: dict[str, str], count: int) -> list[Record]:
    """Read so many records, and leave when the last of them has been processed."""
    async with asyncio.timeout(30), read(properties) as records:
        return [await anext(records) for _ in range(count)]


def numbers(records: Iterable[Record]) -> list[int]:
    return sorted(int(record.data) for record in records)


@pytest.mark.parametrize(
    ("first", "second", "table"),
    [({}, {}, ""), ({}, _FAN_OUT, ""), (_FAN_OUT, {}, ""), ({}, {}, f"restarts-{uuid4()}")],
    ids=["polling", "polling to fan-out", "fan-out to polling", "a table"],
)
async def test_a_restart_repeats_and_loses_nothing_with_any_publisher(
    local_kinesis: LocalKinesis,
    dynamodb_url: str,
    tmp_path: Path,
    first: dict[str, str],
    second: dict[str, str],
    table: str,
) -> None:
    local_kinesis.create_stream("orders", 3)
    local_kinesis.put_many("orders", numbered(0, 500))
    properties = properties_of(local_kinesis, tmp_path)
    if table:
        properties = in_table(properties, dynamodb_url) | {
            "kinesis.checkpoint.dynamodb.table": table
        }
    assert numbers(await read_all(properties | first, 500)) == list(range(500))
    local_kinesis.put_many("orders", numbered(500, 1000))
    assert numbers(await read_all(properties | second, 500)) == list(range(500, 1000))


async def test_resharding_across_a_restart_loses_nothing_and_keeps_the_order(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    local_kinesis.create_stream("orders", 2)
    local_kinesis.put_many("orders", numbered(0, 300))
    properties = properties_of(local_kinesis, tmp_path)
    await read_all(properties, 300)
    for turn in range(1, 4):
        local_kinesis.put_many("orders", numbered(300 * turn, 300 * turn + 150))
        local_kinesis.reshard("orders", 2 + turn)
        local_kinesis.put_many("orders", numbered(300 * turn + 150, 300 * turn + 300))
        records = await read_all(properties, 300)
        assert numbers(records) == list(range(300 * turn, 300 * turn + 300))
        for key in {record.partition_key for record in records}:
            own = [record for record in records if record.partition_key == key]
            assert [int(record.data) for record in own] == numbers(own)
    ended = [one for one in (await stored(properties)).values() if one.is_ended]
    assert len(ended) >= 2


def test_a_killed_reader_repeats_only_what_came_after_its_last_checkpoint(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    local_kinesis.create_stream("orders", 2)
    properties = properties_of(local_kinesis, tmp_path) | {
        "kinesis.shard.getrecords.maxrecordcount": "7"
    }
    local_kinesis.limits = Limits.off()
    seen: set[int] = set()
    local_kinesis.put_many("orders", numbered(0, _TOTAL))
    for kill_after in (40, 150, _TOTAL):
        before = asyncio.run(stored(properties))
        processed = {k.shard_id: one.processed for k, one in before.items()}
        for shard_id, number, data in lines_until_killed(properties, kill_after, seen):
            last = processed.get(shard_id)
            assert last is None or int(number) > int(last.sequence_number)
            seen.add(int(data))
        let_the_last_start_be_long_ago(properties)
    assert seen == set(range(_TOTAL))
    assert all(processed.values()), "the last process had a checkpoint to continue from"


def let_the_last_start_be_long_ago(properties: dict[str, str]) -> None:
    """Else the next reader looks for a while whether the one that was killed is alive."""
    with closing(sqlite3.connect(file_of(properties), isolation_level=None)) as connection:
        connection.execute("UPDATE checkpoint SET as_of = NULL WHERE shard_id = '*'")


def lines_until_killed(
    properties: dict[str, str], kill_after: int, seen: set[int]
) -> list[tuple[str, str, str]]:
    """Kill a reader after so many lines and a checkpoint per shard; return what it processed."""
    lines: list[str] = []
    numbers = set(seen)
    with subprocess.Popen(
        [sys.executable, str(_READER), json.dumps(properties)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        while len(lines) < kill_after and len(numbers) < _TOTAL:
            lines.append(process.stdout.readline())
            numbers.add(int(lines[-1].split()[2]))
        while not all(one.processed for one in asyncio.run(stored(properties)).values()):
            assert process.poll() is None
        process.kill()
        # What it had said by then counts; a line that was cut off was not processed.
        lines += [line for line in process.stdout if line.endswith("\n")]
    return [tuple(line.split()) for line in lines]  # type: ignore[misc]


async def test_a_store_that_cannot_be_opened_is_said_before_anything_is_asked(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    local_kinesis.create_stream("orders")
    properties = properties_of(local_kinesis, tmp_path)
    file_of(properties).write_text("something else")
    with pytest.raises(CheckpointError, match=r"checkpoints\.sqlite3"):
        await read_all(properties, 1)
    assert local_kinesis.calls() == []


async def test_a_table_that_cannot_be_reached_is_an_error_after_the_retries(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    properties = in_table(properties_of(local_kinesis, tmp_path), "http://127.0.0.1:9") | {
        "kinesis.checkpoint.store.maxretries": "2",
        "kinesis.checkpoint.store.backoff.max": "1",
    }
    with pytest.raises(RetriesExhaustedError, match="DescribeTable"):
        await read_all(properties, 1)
    assert local_kinesis.calls() == []


async def on_batch(shard: Shard, batch: RecordBatch) -> None:
    raise AssertionError("never called")


async def test_resume_beside_a_store_is_refused_before_anything_is_opened(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    properties = properties_of(local_kinesis, tmp_path)
    opening = KinesisDataFetcher.from_properties(properties, on_batch, resume={})
    with pytest.raises(ConfigError, match="give one of them"):
        await opening.__aenter__()
    assert not file_of(properties).exists()
