"""Processes that write the same checkpoint at the same time: never do two of them succeed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.integration.framework.racing_writer import KEY, store_of
from tests.servers import SERVERS

if TYPE_CHECKING:
    from kinesis_publishers.model import StoredCheckpoint
    from tests.servers import Server

_WRITER = Path(__file__).with_name("racing_writer.py")
_PROCESSES = 3
_BASE = {"kinesis.streams": "orders", "kinesis.checkpoint.application": "billing"}


def wins_of_all(properties: dict[str, str], rounds: int) -> int:
    """Let processes race; return how many writes succeeded."""
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, str(_WRITER), json.dumps(properties), str(rounds)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(_PROCESSES)
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        return sum(int(writer.communicate()[0]) for writer in writers)


def assert_each_win_is_one_step(properties: dict[str, str], rounds: int) -> None:
    """Every writer adds one to what it has loaded: a write that was lost would be missing."""
    wins = wins_of_all(properties, rounds)
    assert wins >= rounds

    async def load() -> StoredCheckpoint:
        async with store_of(properties) as store:
            return (await store.load())[KEY]

    stored = asyncio.run(load())
    assert str(stored.checkpoint.progress.processed) == str(wins)
    assert stored.version.number == wins


def test_in_one_file(tmp_path: Path) -> None:
    properties = _BASE | {
        "kinesis.checkpoint.store": "sqlite",
        "kinesis.checkpoint.sqlite.path": str(tmp_path / "checkpoints.sqlite3"),
    }
    assert_each_win_is_one_step(properties, 25)


def test_in_one_table(dynamodb_url: str) -> None:
    properties = _BASE | {
        "kinesis.checkpoint.store": "dynamodb",
        "kinesis.checkpoint.dynamodb.table": f"races-{uuid4()}",
        "kinesis.checkpoint.dynamodb.endpoint": dynamodb_url,
        "aws.region": "us-east-1",
        "aws.credentials.provider.basic.accesskeyid": "local",
        "aws.credentials.provider.basic.secretkey": "local",
    }
    assert_each_win_is_one_step(properties, 8)


@pytest.mark.long
@pytest.mark.parametrize("server", SERVERS)
def test_on_one_server(server: str, request: pytest.FixtureRequest) -> None:
    running: Server = request.getfixturevalue(server)
    assert_each_win_is_one_step(_BASE | running.properties, 25)
