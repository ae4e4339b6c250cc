"""Progress while a record is in hand, and of a loop that is never closed: it is written as well."""

from __future__ import annotations

import asyncio
import os
import queue
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import asyncpg
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


# A trigger runs for each row that is to be inserted, also if it is there already. Some wait for the
# lock of the test, which kills the program meanwhile: their rows are committed after its end.
_KILLS = (1, 300, 700)
_COUNT_ATTEMPTS = f"""
CREATE TABLE IF NOT EXISTS sales (record_id text PRIMARY KEY, cents bigint NOT NULL);
CREATE SEQUENCE attempts;
CREATE FUNCTION note() RETURNS trigger AS $$ BEGIN
    IF nextval('attempts') IN {_KILLS} THEN PERFORM pg_advisory_xact_lock(1); END IF;
    RETURN NEW;
END $$ LANGUAGE plpgsql;
CREATE TRIGGER note BEFORE INSERT ON sales FOR EACH ROW EXECUTE FUNCTION note();
"""
_WAITS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_the_rows_of_the_recipe_are_there_once_after_kills(
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
    environment = os.environ | {
        "AWS_ENDPOINT_URL_KINESIS": local_kinesis.endpoint_url,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "DATABASE_URL": postgres.url,
        "XDG_STATE_HOME": str(tmp_path),
    }
    database = await asyncpg.connect(postgres.url)
    await database.execute(_COUNT_ATTEMPTS)

    async def run_until(question: str, answer: int) -> None:
        command = (sys.executable, "-c", recipe.code)
        worker = await asyncio.create_subprocess_exec(*command, env=environment)
        try:
            while await database.fetchval(question) < answer:
                assert worker.returncode is None, "the program has ended"
        finally:
            with suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()

    for _ in _KILLS:
        await database.execute("SELECT pg_advisory_lock(1)")
        await run_until(_WAITS, 1)
        await database.execute("SELECT pg_advisory_unlock(1)")
    await run_until("SELECT count(*) FROM sales", 800)
    found = await database.fetchrow("SELECT count(*), count(DISTINCT cents), sum(cents) FROM sales")
    assert tuple(found) == (800, 800, sum(range(800)))
    attempts = await database.fetchval("SELECT last_value FROM attempts")
    assert attempts >= 800 + len(_KILLS), "those in hand came again"
    await database.close()
