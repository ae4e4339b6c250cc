"""The examples in the documentation of checkpoints run as they stand there."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import javaproperties

from kinesis_publishers import Properties
from kinesis_publishers.checkpoints.sql import SqlCheckpointStore
from kinesis_publishers.testing.contracts.checkpoint_store import store_context

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_PAGE = Path(__file__).parents[3] / "docs" / "checkpoints.md"
_TEXT = _PAGE.read_text(encoding="utf-8")
RECORD, CONTRACT = re.findall(r"^```python\n(.*?)^```", _TEXT, re.DOTALL | re.MULTILINE)
APPLICATION = re.findall(r"^```properties\n(.*?)^```", _TEXT, re.DOTALL | re.MULTILINE)[0]
READ = f"""
import asyncio
from kinesis_publishers import KinesisDataFetcher

properties = {{
    **{javaproperties.loads(APPLICATION)!r},
    "aws.region": "us-east-1",
    "kinesis.streams": "orders",
    "kinesis.stream.initpos": "TRIM_HORIZON",
    "kinesis.checkpoint.maxrecords": 1,
}}


async def on_batch(shard, batch):
    for record in batch:
        print(record.partition_key, record.data, flush=True)


async def main():
    async with KinesisDataFetcher.from_properties(properties, on_batch) as fetcher:
        await fetcher.run()


asyncio.run(main())
"""


def test_a_killed_reader_goes_on_with_the_first_properties(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    local_kinesis.create_stream("orders")
    environ = {
        "AWS_ENDPOINT_URL_KINESIS": local_kinesis.endpoint_url,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "XDG_STATE_HOME": str(tmp_path),
    }
    for number in range(2):
        local_kinesis.put_many("orders", [("key", b"%d" % number)])
        with subprocess.Popen(
            [sys.executable, "-c", READ],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environ,
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == f"key b'{number}'\n"
                wait_for_writes(tmp_path / "kinesis-publishers" / "checkpoints.sqlite3", number + 1)
            finally:
                process.kill()


def wait_for_writes(path: Path, count: int) -> None:
    """Wait until the only shard has had so many checkpoints after its first one."""
    query = "SELECT count(*) FROM checkpoint WHERE sequence_number IS NOT NULL AND version > ?"
    with closing(sqlite3.connect(path)) as connection:
        while connection.execute(query, (count,)).fetchone() == (0,):
            time.sleep(0.01)  # the process has no other way to say that it has written


async def test_the_second_example_records_each_record(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    local_kinesis.create_stream("orders")
    local_kinesis.put_many("orders", [("key", b"%d" % number) for number in range(3)])
    names: dict[str, Any] = {}
    exec(compile(RECORD, str(_PAGE), "exec"), names)
    properties = {
        **local_kinesis.properties("orders"),
        "kinesis.stream.initpos": "TRIM_HORIZON",
        "kinesis.checkpoint.application": "docs",
        "kinesis.checkpoint.sqlite.path": str(tmp_path / "x.sqlite3"),
    }
    done = asyncio.Event()
    on_batch = names["RecordByRecord"].on_batch

    async def and_stop(self: Any, shard: Any, batch: Any) -> None:
        await on_batch(self, shard, batch)
        self.fetcher.stop()
        done.set()

    names["RecordByRecord"].on_batch = and_stop
    async with asyncio.timeout(20):
        await names["read"](properties)
    assert done.is_set()
    async with SqlCheckpointStore.from_properties(
        Properties.parse(properties), store_context("docs")
    ) as store:
        found = [one.checkpoint.progress for one in (await store.load()).values()]
    (progress,) = (one for one in found if one.processed is not None)
    assert progress.as_of is not None, "an old checkpoint must be told from lost records"


def test_the_third_example_is_a_test_module_that_passes(tmp_path: Path) -> None:
    module = tmp_path / "test_my_store.py"
    module.write_text(CONTRACT)
    testing = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(module)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(_PAGE.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert " passed" in testing.stdout, testing.stdout
    assert testing.returncode == 0
