"""How a scan is ended from another thread, and what becomes of a program's own signal handlers."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from kinesis_publishers import Record, ScanResult, read, records, scan
from kinesis_publishers.checkpoints import MemoryCheckpointStore
from tests.integration.processing.processing_support import Orders, run_program
from tests.integration.processing.scanning_support import Collector, scanned, scanned_in_next_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.checkpoints.versions import Change, Refusal


def scanning(properties: dict[str, str], process: Any, stop: threading.Event) -> threading.Thread:
    arguments = (properties, process)
    return threading.Thread(target=scan, args=arguments, kwargs={"stop": stop}, daemon=True)


def test_an_event_ends_a_scan_in_another_thread_that_waits(orders: Orders) -> None:
    orders.put(20)
    stop, has_all = threading.Event(), threading.Event()
    seen: list[int] = []

    def process(record: Record) -> None:
        seen.append(int(record.data))
        if len(seen) == 20:
            has_all.set()

    service = scanning(orders.properties(), process, stop)
    service.start()
    assert has_all.wait(30)
    assert service.is_alive()
    stop.set()
    service.join(30)
    assert not service.is_alive()
    assert scanned_in_next_run(orders) == []


def test_an_event_that_a_call_sets_ends_the_scan_without_losing_its_record(orders: Orders) -> None:
    orders.put(20, key="one shard")
    stop = threading.Event()
    collector = Collector(10**9, before=lambda n: stop.set() if n == 7 else None)
    scan(orders.properties(), collector, stop=stop)
    assert len(collector.seen) >= 8
    assert collector.seen + scanned_in_next_run(orders) == list(range(20))


def test_an_event_ends_a_scan_whose_store_cannot_be_opened(orders: Orders) -> None:
    orders.put(20)
    scanned(orders, 20)
    stop = threading.Event()
    service = scanning(orders.properties(checkpoint_store_maxretries="1000"), print, stop)
    with closing(sqlite3.connect(orders.path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        service.start()
        stop.set()
        service.join(30)
    assert not service.is_alive()


async def test_a_handler_that_the_program_installs_while_reading_stays(orders: Orders) -> None:
    orders.put(20, key="one shard")

    def handler(one: int, frame: object) -> None:
        raise AssertionError("never called")

    before = signal.getsignal(signal.SIGTERM)
    try:
        async with read(orders.properties()) as records:
            await anext(records)
            signal.signal(signal.SIGTERM, handler)
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_reader_left_open_in_a_closed_loop_does_not_keep_the_handlers(orders: Orders) -> None:
    async def leave_open() -> None:
        await anext(aiter(read(orders.properties())))

    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    orders.put(1)
    asyncio.run(leave_open())
    with records(orders.properties()):
        pass
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == before


async def test_readers_that_overlap_restore_the_handlers(orders: Orders) -> None:
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    outer, inner = read(orders.properties()), records(orders.properties())
    async with outer:
        inner.__enter__()
    inner.close()
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_reader_that_another_thread_closes_leaves_signals_to_later_ones(orders: Orders) -> None:
    orders.put(1)
    before = signal.getsignal(signal.SIGTERM)
    try:
        stream = records(orders.properties())
        next(stream)
        closing = threading.Thread(target=stream.close)
        closing.start()
        closing.join()
        with records(orders.properties()) as stream:
            next(stream)
        assert signal.getsignal(signal.SIGTERM) is before
        with records(orders.properties()):
            assert signal.getsignal(signal.SIGTERM) is not before
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_handler_of_a_later_event_loop_stays(orders: Orders) -> None:
    async def leave() -> None:
        async for _ in read(orders.properties()):
            break

    async def handle() -> None:
        called = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, called.set)
        async with read(orders.properties()):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(called.wait(), 5)

    orders.put(1)
    asyncio.run(leave())
    asyncio.run(handle())


_FORKS = """
import asyncio, os, signal
from kinesis_publishers import KinesisDataFetcher, ScanResult, read, records, scan
from kinesis_publishers.errors import ClosedError

def fork():
    if (child := os.fork()) == 0:
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        return True
    os.waitpid(child, 0)
    return False

with_records = records(where)
def by_records():
    with with_records as stream:
        next(stream)
        if fork():
            next(stream)

async def by_read():
    async with read(where) as stream:
        await anext(stream)
        if fork():
            try:
                await anext(stream)
            except ClosedError as error:
                os.write(2, str(error).encode())
            os._exit(0)

async def by_fetcher():
    async with KinesisDataFetcher.from_properties(where, print) as fetcher:
        if fork():
            try:
                await fetcher.run()
            except ClosedError as error:
                os.write(2, str(error).encode())
            os._exit(0)

def by_scan():
    def process(record):
        return None if fork() else ScanResult.STOP

    scan(where, process)
"""


@pytest.mark.parametrize(
    "program",
    ["by_records()", "asyncio.run(by_read())", "asyncio.run(by_fetcher())", "by_scan()"],
)
def test_a_fork_cannot_use_the_reader_of_its_parent(orders: Orders, program: str) -> None:
    orders.put(20, key="one shard")
    _, said = run_program(f"where = {orders.properties()!r}{_FORKS}\n{program}")
    assert said.count("was opened before this process was forked: open one in each process") == 1


def test_a_fork_that_closes_the_reader_of_its_parent_keeps_its_own_handler(orders: Orders) -> None:
    orders.put(1)
    printed, _ = run_program(f"""where = {orders.properties()!r}{_FORKS}
next(with_records)
if fork():
    signal.signal(signal.SIGTERM, print)
    with_records.close()
    print(signal.getsignal(signal.SIGTERM) is print, flush=True)
    os._exit(0)
""")
    assert printed == "True\n"


def test_a_signal_to_a_fork_does_not_stop_its_parent(orders: Orders) -> None:
    orders.put(20, key="one shard")
    printed, _ = run_program(f"""where = {orders.properties()!r}{_FORKS}
async def main():
    async with read(where) as stream:
        await anext(stream)
        if fork():
            signal.signal(signal.SIGTERM, lambda *_: None)
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        for number in range(1, 20):
            await asyncio.sleep(0)
            print((await anext(stream)).data.decode(), flush=True)

asyncio.run(main())
""")
    assert printed.split() == [str(number) for number in range(1, 20)]


_TWO_READERS = """
import asyncio, os, signal
from kinesis_publishers import read

is_busy, is_closed = asyncio.Event(), asyncio.Event()

async def wait(**checkpoints):
    async with read(idle, **checkpoints) as stream:
        async for _ in stream:
            pass
    is_closed.set()

async def work():
    async for record in read(orders):
        if not is_busy.is_set():
            handler = signal.getsignal(signal.SIGINT)
            is_busy.set()
            await is_closed.wait()
            while signal.getsignal(signal.SIGINT) is handler:
                await asyncio.sleep(0.01)
            print("finished", record.data.decode(), flush=True)
    print("never")

async def nest(**checkpoints):
    async with read(orders) as stream:
        record = await anext(stream)
        is_busy.set()
        await wait(**checkpoints)
        print("finished", record.data.decode(), flush=True)

async def leave():
    async for _ in read(orders, application="other"):
        break

async def interrupt():
    await is_busy.wait()
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize(
    "main",
    [
        "await asyncio.gather(work(), wait(), interrupt())",
        "await asyncio.gather(nest(), interrupt())",
        # Its store opens in a thread: the signal comes meanwhile.
        "await asyncio.gather(nest(application='idle'), interrupt())",
        "is_closed.set(); _ = asyncio.create_task(interrupt()); await leave(); await work()",
    ],
    ids=["two tasks", "nested", "nested and opening", "one was left"],
)
def test_the_last_of_two_readers_raises_ctrl_c(orders: Orders, main: str) -> None:
    orders.put(20, key="one shard")
    orders.server.create_stream("idle")
    idle = orders.server.properties("idle")
    printed, said = run_program(f"""orders, idle = {orders.properties()!r}, {idle!r}{_TWO_READERS}
async def main():
    {main}

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("KeyboardInterrupt")
""")
    assert (printed, said) == ("finished 0\nKeyboardInterrupt\n", "")
    assert scanned_in_next_run(orders) == list(range(1, 20))


def test_a_reader_that_was_not_opened_is_for_a_fork_as_well(orders: Orders) -> None:
    orders.put(20, key="one shard")
    printed, said = run_program(f"""where = {orders.properties()!r}{_FORKS}
if fork():
    with with_records:
        print(next(with_records).data, flush=True)
""")
    assert (printed, said) == ("b'0'\n", "")


def test_scans_in_many_threads_do_not_meet(orders: Orders) -> None:
    """A signal cannot come to any of them: they have nothing in common."""
    orders.server.create_stream("empty")
    properties = orders.server.properties("empty")
    stop = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(3):
                scan(properties, Collector(1), stop=stop)
        except BaseException as error:
            failures.append(error)
            raise

    services = [threading.Thread(target=run, daemon=True) for _ in range(6)]
    stop.set()
    for service in services:
        service.start()
    for service in services:
        service.join(60)
    assert failures == []


class HangingStore(MemoryCheckpointStore):
    """Does not answer the first write that says how far a shard was processed."""

    answers: ClassVar[list[bool]] = []

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        if any(row is not None and row.progress.processed for _, row in changes):
            self.answers.append(bool(self.answers))
            if self.answers == [False]:
                await asyncio.Event().wait()
        return await super()._apply(changes)


def test_a_last_write_that_a_worker_gives_up_for_its_leases_is_made_again(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HangingStore, "answers", [])
    orders.put(3, key="key")
    store = f"{__name__}:{HangingStore.__name__}"
    properties = orders.properties(
        checkpoint_store=store,
        # What the store keeps lives as long as this process.
        checkpoint_application=orders.path.parent.name,
        lease_enabled="true",
        lease_failovermillis="3000",
    )
    del properties["kinesis.checkpoint.sqlite.path"]

    def process(record: Record) -> ScanResult | None:
        return ScanResult.STOP if record.data == b"2" else None

    scan(properties, process)
    assert HangingStore.answers[:2] == [False, True]
    orders.put(1, key="key")
    assert [one.data for one in islice(records(properties), 1)] == [b"3"]
