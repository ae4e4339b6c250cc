"""Progress while a record is in hand, and of a loop that is never closed: it is written as well."""

from __future__ import annotations

import asyncio
import os
import queue
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import BlockingProducer, Record, ScanResult, read, scan
from kinesis_publishers.events import CheckpointsSaved, Event
from tests.docs.doc_pages import ROOT, blocks_of
from tests.integration.processing.processing_support import Orders, numbers, run_program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from tests.servers import PostgresServer

_SLOW = 50


class Saves:
    """Takes events; waits for the checkpoint that stands for everything before the slow record."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._saves: queue.Queue[Event] = queue.Queue()

    def __call__(self, event: Event) -> None:
        if isinstance(event, CheckpointsSaved):
            self._saves.put(event)

    def wait_while_in_hand(self) -> None:
        rows = [row for rows in self._orders.server.records("orders").values() for row in rows]
        (before,) = [row.sequence_number for row in rows if row.data == b"%d" % (_SLOW - 1)]
        while before not in [str(one.processed) for one in self._orders.stored().values()]:
            self._saves.get(timeout=10)


def scan_until_slow(properties: dict[str, str], saves: Saves) -> None:
    def process(record: Record) -> ScanResult | None:
        if int(record.data) < _SLOW:
            return None
        saves.wait_while_in_hand()
        return ScanResult.STOP

    scan(properties, process, events=saves)


def read_until_slow(properties: dict[str, str], saves: Saves) -> None:
    async def loop() -> None:
        async with read(properties, events=saves) as records:
            async for record in records:
                if int(record.data) == _SLOW:
                    await asyncio.to_thread(saves.wait_while_in_hand)
                    return

    asyncio.run(loop())


@pytest.mark.parametrize("reader", [scan_until_slow, read_until_slow])
def test_what_comes_before_a_slow_record_is_written_while_that_is_in_hand(
    orders: Orders, reader: Callable[[dict[str, str], Saves], None]
) -> None:
    orders.put(200, key="one shard")
    reader(orders.properties(checkpoint_intervalmillis="10"), Saves(orders))


@pytest.mark.parametrize("last", [0, 4])
def test_a_bare_loop_that_is_left_writes_what_was_processed_and_prints_nothing(
    orders: Orders, last: int
) -> None:
    """The event loop ends it: the record in hand alone comes again."""
    orders.put(20, key="one shard")
    printed = run_program(f"""
import asyncio
from kinesis_publishers import read

async def main():
    async for record in read({orders.properties()!r}):
        if record.data == b"{last}":
            print("left at {last}", flush=True)
            break

asyncio.run(main())
""")
    assert printed == (f"left at {last}\n", "")

    async def first_of_next_run() -> list[Record]:
        async with read(orders.properties()) as records:
            return [await anext(records)]

    assert numbers(asyncio.run(first_of_next_run())) == [last]


# A trigger runs for each row that is to be inserted, also if it is there already.
_COUNT_ATTEMPTS = """
CREATE TABLE IF NOT EXISTS sales (record_id text PRIMARY KEY, cents bigint NOT NULL);
CREATE SEQUENCE attempts;
CREATE FUNCTION note() RETURNS trigger AS $$ BEGIN
    PERFORM nextval('attempts'); RETURN NEW;
END $$ LANGUAGE plpgsql;
CREATE TRIGGER note BEFORE INSERT ON sales FOR EACH ROW EXECUTE FUNCTION note();
"""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_rows_of_the_recipe_are_there_once_after_kills(
    postgres: PostgresServer, local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    page = blocks_of(ROOT / "docs" / "cookbook-python.md")
    (recipe,) = (block for block in page if "asyncpg" in block.code)
    local_kinesis.create_stream("sales", 2)
    connection = local_kinesis.properties("sales")
    for aggregates, first in ((False, 0), (True, 400)):
        with BlockingProducer.from_properties(
            connection, producer_aggregation=aggregates
        ) as producer:
            producer.put_many(
                (b'{"cents": %d}' % number, f"key-{number}") for number in range(first, first + 400)
            )
    stored = sum(map(len, local_kinesis.records("sales").values()))
    assert 400 < stored < 420, "some are plain, and some in aggregates"
    postgres.execute(_COUNT_ATTEMPTS)
    environment = os.environ | {
        "AWS_ENDPOINT_URL_KINESIS": local_kinesis.endpoint_url,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "DATABASE_URL": postgres.url,
        "XDG_STATE_HOME": str(tmp_path),
    }
    deadline = time.monotonic() + 240
    for enough in (1, 300, 700, 800):
        with subprocess.Popen([sys.executable, "-c", recipe.code], env=environment) as worker:
            while int(postgres.execute("SELECT count(*) FROM sales")) < enough:
                assert worker.poll() is None, "the program has ended"
                assert time.monotonic() < deadline
            worker.kill()
    found = "SELECT count(*), count(DISTINCT cents), sum(cents) FROM sales"
    assert postgres.execute(found) == f"800|800|{sum(range(800))}\n"
    assert int(postgres.execute("SELECT last_value FROM attempts")) > 800, "none came again"
