"""Processes that write the same checkpoint at the same time: never do two of them succeed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kinesis_publishers import Properties
from kinesis_publishers.checkpoints.dynamodb import DynamoDbCheckpointStore
from kinesis_publishers.checkpoints.sqlite import SqliteCheckpointStore
from kinesis_publishers.testing.contracts.checkpoint_store import store_context
from tests.integration.framework.racing_writer import KEY

if TYPE_CHECKING:
    from kinesis_publishers.abc import CheckpointStore
    from kinesis_publishers.model import StoredCheckpoint

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
        return sum(int(writer.communicate("go\n")[0]) for writer in writers)


async def stored_by(kind: type[CheckpointStore], properties: dict[str, str]) -> StoredCheckpoint:
    store = kind.from_properties(Properties.parse(properties), store_context("billing"))
    async with store:
        return (await store.load())[KEY]


def assert_each_win_was_one_step(stored: StoredCheckpoint, wins: int) -> None:
    """Every writer adds one to what it has loaded: a write that was lost would be missing."""
    assert str(stored.checkpoint.progress.processed) == str(wins)
    assert stored.version.number == wins


def test_in_one_file(tmp_path: Path) -> None:
    properties = _BASE | {
        "kinesis.checkpoint.store": "sqlite",
        "kinesis.checkpoint.sqlite.path": str(tmp_path / "checkpoints.sqlite3"),
    }
    wins = wins_of_all(properties, 25)
    assert wins >= 25
    assert_each_win_was_one_step(asyncio.run(stored_by(SqliteCheckpointStore, properties)), wins)


def test_in_one_table(moto_url: str) -> None:
    properties = _BASE | {
        "kinesis.checkpoint.store": "dynamodb",
        "kinesis.checkpoint.dynamodb.table": "races",
        "kinesis.checkpoint.dynamodb.endpoint": moto_url,
        "aws.region": "us-east-1",
        "aws.credentials.provider.basic.accesskeyid": "local",
        "aws.credentials.provider.basic.secretkey": "local",
    }
    wins = wins_of_all(properties, 8)
    assert wins >= 8
    assert_each_win_was_one_step(asyncio.run(stored_by(DynamoDbCheckpointStore, properties)), wins)
