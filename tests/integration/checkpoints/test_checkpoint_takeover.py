"""A rolling deployment: two readers of one application over one store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from kinesis_publishers import RecordStream, read
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.errors import ReaderReplacedError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis


class QuickClock(SystemClock):
    """Delays take a tenth of their time."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 10)


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def properties(
    request: pytest.FixtureRequest, local_kinesis: LocalKinesis, tmp_path: Path
) -> dict[str, str]:
    local_kinesis.create_stream("orders", 2)
    store = {
        "memory": {},
        "sqlite": {"kinesis.checkpoint.sqlite.path": str(tmp_path / "checkpoints.sqlite3")},
        "dynamodb": {"kinesis.checkpoint.dynamodb.table": f"takeover-{uuid4()}"},
    }[request.param]
    if request.param == "dynamodb":
        store["kinesis.checkpoint.dynamodb.endpoint"] = request.getfixturevalue("dynamodb_url")
    return {
        **local_kinesis.properties("orders"),
        "kinesis.stream.initpos": "TRIM_HORIZON",
        "kinesis.shard.getrecords.intervalmillis": "100",
        "kinesis.checkpoint.application": tmp_path.name,
        "kinesis.checkpoint.intervalmillis": "200",
        "kinesis.checkpoint.store": request.param,
        **store,
    }


async def read_until(records: RecordStream, expected: Iterable[int]) -> list[int]:
    """Read until all of these numbers have come; return all that have come."""
    missing, numbers = {*expected}, list[int]()
    async with asyncio.timeout(20):
        while missing:
            numbers.append(int((await anext(records)).data))
            missing.discard(numbers[-1])
    return numbers


async def test_the_newer_wins_the_older_stops_and_waits_when_it_is_started_again(
    properties: dict[str, str], local_kinesis: LocalKinesis, caplog: pytest.LogCaptureFixture
) -> None:
    older, newer, again = [read(properties, clock=QuickClock()) for _ in range(3)]

    def put(*numbers: int) -> None:
        local_kinesis.put_many("orders", [(f"key {number}", b"%d" % number) for number in numbers])

    async def start_again() -> list[int]:
        async with again:
            return await read_until(again, range(30, 40))

    put(*range(10))
    await read_until(older, range(10))
    async with asyncio.TaskGroup() as tasks:
        async with newer:
            put(*range(10, 20))
            await read_until(newer, range(10, 20))
            with pytest.raises(ReaderReplacedError, match="has taken over"):
                await read_until(older, [10**9])
            waiting = tasks.create_task(start_again())
            while "this one waits until" not in caplog.text:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0)
            put(*range(20, 30))
            await read_until(newer, range(20, 30))
            assert not waiting.done()
        put(*range(30, 40))
    assert sorted(waiting.result()) == list(range(30, 40))
