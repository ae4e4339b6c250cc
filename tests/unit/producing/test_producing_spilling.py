"""What becomes of records while the service is away and the buffer is full."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers.errors import (
    AccessDeniedError,
    BufferFullError,
    ClosedError,
    RecordsNotWrittenError,
)
from kinesis_publishers.events import RecordsFailed, SpoolFound
from kinesis_publishers.testing.local_kinesis import Fault
from tests.unit.producing.producing_support import KEYS, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractAsyncContextManager

    from kinesis_publishers import KinesisProducer
    from tests.unit.producing.producing_support import Writing

_AWAY = [
    Fault("PutRecords", "reset", times=None),
    Fault("PutRecords", "internal_failure", times=None),
    # Each entry by itself: the call succeeds.
    Fault("PutRecords", "internal_failure", times=None, shard_id=SECOND),
]
_KEY = KEYS[SECOND]
# The disk takes its own time.
_LONG = 10_000.0


class Spilling:
    """A producer whose buffer has room for two records of a shard."""

    def __init__(self, writing: Writing, path: Path) -> None:
        self.writing, self.path = writing, path

    def open(self, **options: Any) -> AbstractAsyncContextManager[KinesisProducer]:
        defaults = {"spill_path": str(self.path), "buffer_maxrecords": 3}
        return self.writing.producer(**defaults | options)

    async def fill(self, producer: KinesisProducer) -> list[asyncio.Future[Any]]:
        """Fill the buffer, and wait until the producer knows that the service is away."""
        futures = [await producer.put(b"%d" % number, _KEY) for number in range(2)]
        await self.writing.clock.advance(1)
        return futures

    async def put(self, producer: KinesisProducer, *numbers: int) -> list[asyncio.Future[Any]]:
        """Put records, which does not wait for the service."""
        return [await producer.put(b"%d" % number, _KEY) for number in numbers]

    async def leave(self, *numbers: int) -> None:
        """Leave records on disk."""
        self.writing.server.add_fault(_AWAY[0])
        async with self.open() as producer:
            await self.fill(producer)
            await self.put(producer, *numbers)
            with pytest.raises(RecordsNotWrittenError):
                await self.writing.run(producer.close(timeout_seconds=0))
        self.writing.server.clear_faults()

    async def results(self, futures: list[asyncio.Future[Any]]) -> list[Any]:
        await self.writing.until_done(futures, within=_LONG)
        return [one.exception() or one.result() for one in futures]

    @property
    def file(self) -> Path:
        (found,) = self.path.glob("*.sqlite")
        return found

    @property
    def on_disk(self) -> list[bytes]:
        with closing(sqlite3.connect(self.file)) as connection:
            return [one for (one,) in connection.execute("SELECT data FROM record ORDER BY id")]

    @contextmanager
    def without_disk(self) -> Iterator[None]:
        """Let nothing be read or written in the meantime."""
        file = self.file
        away = file.rename(self.path / "away")
        yield
        away.rename(file)


@pytest.fixture
def spilling(writing: Writing, tmp_path: Path) -> Spilling:
    return Spilling(writing, tmp_path)


@pytest.mark.parametrize("fault", _AWAY, ids=["reset", "failure", "entries"])
@pytest.mark.parametrize("options", [{}, {"aggregation": True}, {"buffer_whenfull": "fail"}])
async def test_records_go_to_disk_and_are_written_once_the_service_is_back(
    spilling: Spilling, fault: Fault, options: dict[str, Any]
) -> None:
    writing = spilling.writing
    writing.server.add_fault(fault)
    async with spilling.open(**options) as producer:
        futures = await spilling.fill(producer)
        futures += await spilling.put(producer, *range(2, 12))
        assert spilling.on_disk == [b"%d" % number for number in range(2, 12)]
        assert producer.pending_records == 12
        writing.server.clear_faults()
        results = await spilling.results(futures)
        assert {one.shard_id for one in results} == {SECOND}
    assert sorted(writing.data(), key=int) == [b"%d" % number for number in range(12)]
    # Those on disk waited as long as they did, not only since they came back from there.
    assert results[0].seconds == pytest.approx(results[2].seconds + 1, abs=1)
    assert spilling.on_disk == []


@pytest.mark.parametrize("aggregation", [False, True], ids=["plain", "aggregated"])
async def test_the_order_of_keys_survives_the_disk(spilling: Spilling, aggregation: bool) -> None:
    writing = spilling.writing
    writing.server.add_fault(_AWAY[0])
    async with spilling.open(ordering="key", aggregation=aggregation) as producer:
        await spilling.fill(producer)
        await spilling.put(producer, *range(2, 6))
        many = await producer.put_many([(b"%d" % number, _KEY) for number in range(6, 30)])
        writing.server.clear_faults()
        # While records come back from the disk, further ones are put.
        last = await spilling.put(producer, *range(30, 40))
        await spilling.results([many, *last])
        assert [one.shard_id for one in many.result()] == [SECOND] * 24
    assert writing.data(SECOND) == [b"%d" % number for number in range(40)]


async def test_who_waits_when_the_service_goes_away_is_taken_to_the_disk(
    spilling: Spilling,
) -> None:
    writing = spilling.writing
    writing.server.add_fault(_AWAY[0])
    async with spilling.open(ordering="key") as producer:
        await spilling.put(producer, 0, 1)
        waiting = [asyncio.ensure_future(spilling.put(producer, number)) for number in (2, 3, 4)]
        await writing.until_done(waiting, within=_LONG)
        assert spilling.on_disk == [b"2", b"3", b"4"]
        writing.server.clear_faults()
        await spilling.results([future for one in waiting for future in one.result()])
    assert writing.data(SECOND) == [b"%d" % number for number in range(5)]


async def test_a_shard_that_throttles_is_not_away(spilling: Spilling) -> None:
    writing = spilling.writing
    writing.server.add_fault(Fault("PutRecords", "throttle", times=None))
    async with spilling.open() as producer:
        await spilling.fill(producer)
        waiting = asyncio.ensure_future(producer.put(b"2", _KEY))
        await writing.clock.advance(30)
        assert not waiting.done()
        assert spilling.on_disk == []
        writing.server.clear_faults()
        await spilling.results([await writing.result(waiting, within=_LONG)])


async def test_with_fail_the_disk_has_room_for_records_of_a_shard_that_throttles(
    spilling: Spilling,
) -> None:
    writing = spilling.writing
    writing.server.add_fault(Fault("PutRecords", "throttle", times=None))
    async with spilling.open(buffer_whenfull="fail") as producer:
        futures = await spilling.fill(producer) + await spilling.put(producer, 2)
        assert spilling.on_disk == [b"2"]
        writing.server.clear_faults()
        await spilling.results(futures)


async def test_records_do_not_expire_while_the_service_is_away(spilling: Spilling) -> None:
    writing = spilling.writing
    writing.server.add_fault(_AWAY[0])
    async with spilling.open(recordttlmillis="10s") as producer:
        futures = await spilling.fill(producer) + await spilling.put(producer, 2)
        await writing.clock.advance(300)
        assert not any(one.done() for one in futures)
        writing.server.clear_faults()
        assert {one.shard_id for one in await spilling.results(futures)} == {SECOND}


async def test_put_waits_when_the_disk_has_its_fill(spilling: Spilling) -> None:
    writing = spilling.writing
    writing.server.add_fault(_AWAY[0])
    async with spilling.open(spill_maxbytes=10) as producer:
        futures = await spilling.fill(producer) + await spilling.put(producer, 2, 3, 4, 5, 6)
        waiting = [asyncio.ensure_future(producer.put(b"%d" % n, _KEY)) for n in (7, 8, 9)]
        await writing.clock.advance(30)
        assert not any(one.done() for one in waiting)
        # One that gives up leaves nothing behind.
        waiting[1].cancel()
        writing.server.clear_faults()
        await writing.until_done(waiting, within=_LONG)
        futures += [waiting[0].result(), waiting[2].result()]
        await spilling.results(futures)
    assert sorted(writing.data()) == [b"%d" % number for number in (0, 1, 2, 3, 4, 5, 6, 7, 9)]


async def test_with_fail_a_record_without_room_on_disk_is_an_error(spilling: Spilling) -> None:
    writing = spilling.writing
    writing.server.add_fault(_AWAY[0])
    async with spilling.open(spill_maxbytes=4, buffer_whenfull="fail") as producer:
        await spilling.fill(producer)
        *_, failed = await spilling.put(producer, 2, 3, 4)
        assert isinstance(failed.exception(), BufferFullError)
        assert "kinesis.producer.spill.maxbytes" in str(failed.exception())
        writing.server.clear_faults()
        with pytest.raises(RecordsNotWrittenError, match="1 of the records for orders"):
            await writing.run(producer.flush(), within=_LONG)
    assert sorted(writing.data()) == [b"0", b"1", b"2", b"3"]


async def test_a_disk_that_fails_fails_the_record_and_later_ones_are_stored(
    spilling: Spilling,
) -> None:
    writing = spilling.writing
    writing.server.add_fault(_AWAY[0])
    async with spilling.open() as producer:
        await spilling.fill(producer)
        with spilling.without_disk():
            (failed,) = await spilling.put(producer, 2)
        assert isinstance(failed.exception(), RecordsNotWrittenError)
        assert str(spilling.path) in str(failed.exception())
        (stored,) = await spilling.put(producer, 3)
        writing.server.clear_faults()
        await spilling.results([stored])
        with pytest.raises(RecordsNotWrittenError, match="cannot be used"):
            await writing.run(producer.flush(), within=_LONG)
    assert sorted(writing.data()) == [b"0", b"1", b"3"]


async def test_a_disk_that_cannot_be_read_is_tried_again(
    spilling: Spilling, caplog: pytest.LogCaptureFixture
) -> None:
    writing = spilling.writing
    writing.server.add_fault(_AWAY[0])
    async with spilling.open() as producer:
        futures = await spilling.fill(producer) + await spilling.put(producer, *range(2, 10))
        with spilling.without_disk():
            writing.server.clear_faults()
            # What was taken before is in memory, and cannot be removed.
            while "This is tried again" not in caplog.text:
                await writing.clock.advance(1)
        await spilling.results(futures)
    assert sorted(writing.data(), key=int) == [b"%d" % number for number in range(10)]
    assert spilling.on_disk == []


async def test_what_is_not_written_at_the_end_stays_for_the_next_producer(
    spilling: Spilling,
) -> None:
    writing = spilling.writing
    writing.server.add_fault(_AWAY[0])
    async with spilling.open(recordttlmillis="5s") as producer:
        memory = await spilling.fill(producer)
        futures = await spilling.put(producer, *range(2, 7))
        with pytest.raises(RecordsNotWrittenError, match="not written"):
            await writing.run(producer.close())
    assert all(isinstance(one.exception(), ClosedError) for one in [*memory, *futures])
    assert str(spilling.path) in str(futures[-1].exception())
    assert str(spilling.path) not in str(memory[0].exception())
    writing.server.clear_faults()
    async with spilling.open():
        pass
    assert sorted(writing.data()) == [b"%d" % number for number in range(2, 7)]
    assert writing.count(SpoolFound, "records") == {5: 1}
    async with spilling.open():
        pass
    assert len(writing.data()) == 5


async def test_what_may_have_been_written_is_put_again_and_counted(spilling: Spilling) -> None:
    writing = spilling.writing
    await spilling.leave(2, 3, 4, 5)
    # Written, but the answers are lost.
    writing.server.add_fault(Fault("PutRecords", "truncate", times=None))
    async with spilling.open() as producer:
        while not writing.data():
            await writing.clock.advance(0.1)
        with pytest.raises(RecordsNotWrittenError):
            await writing.run(producer.close(timeout_seconds=0))
    before = writing.data()
    writing.server.clear_faults()
    async with spilling.open():
        pass
    again = writing.data()[len(before) :]
    assert sorted(again) == [b"2", b"3", b"4", b"5"]
    found = [one.unknown for one in writing.events if isinstance(one, SpoolFound)]
    assert 1 <= len(set(before)) <= found[-1]


async def test_a_record_without_a_caller_stays_on_disk_if_it_is_refused_for_good(
    spilling: Spilling,
) -> None:
    writing = spilling.writing
    await spilling.leave(2)
    writing.server.add_fault(Fault("PutRecords", "error", code="AccessDeniedException"))
    with pytest.raises(RecordsNotWrittenError, match="kinesis:PutRecords"):
        async with spilling.open():
            pass
    async with spilling.open():
        pass
    assert writing.data() == [b"2"]


async def test_what_stays_on_disk_for_good_takes_no_room_from_others(spilling: Spilling) -> None:
    writing = spilling.writing
    await spilling.leave(2)
    denied = Fault("PutRecords", "error", code="AccessDeniedException")
    writing.server.add_fault(denied)
    async with spilling.open(spill_maxbytes=2) as producer:
        while not writing.count(RecordsFailed, "code")["AccessDeniedException"]:
            await writing.clock.advance(0.1)
        writing.server.add_fault(_AWAY[0])
        futures = await spilling.fill(producer) + await spilling.put(producer, 3)
        waiting = asyncio.ensure_future(producer.put(b"4", _KEY))
        await writing.clock.advance(1)
        assert spilling.on_disk == [b"2", b"3"]
        writing.server.clear_faults()
        await spilling.results([*futures, await writing.result(waiting, within=_LONG)])
        with pytest.raises(RecordsNotWrittenError, match="1 of the records"):
            await writing.run(producer.close())
    assert sorted(writing.data()) == [b"0", b"1", b"3", b"4"]
    assert spilling.on_disk == [b"2"]


async def test_a_caller_who_has_the_error_may_put_the_record_again(spilling: Spilling) -> None:
    writing = spilling.writing
    writing.server.add_fault(_AWAY[0])
    async with spilling.open() as producer:
        await spilling.fill(producer)
        (refused,) = await spilling.put(producer, 2)
        writing.server.clear_faults()
        writing.server.add_fault(
            Fault("PutRecords", "error", code="AccessDeniedException", times=None)
        )
        await spilling.results([refused])
        assert isinstance(refused.exception(), AccessDeniedError)
        writing.server.clear_faults()
        with pytest.raises(RecordsNotWrittenError):
            await writing.run(producer.flush(), within=_LONG)
        await spilling.results(await spilling.put(producer, 2))
    async with spilling.open():
        pass
    assert writing.data() == [b"2"]


async def test_records_for_the_disk_that_wait_for_room_are_refused_at_the_end(
    spilling: Spilling,
) -> None:
    writing = spilling.writing
    writing.server.add_fault(_AWAY[0])
    async with spilling.open(spill_maxbytes=2) as producer:
        await spilling.fill(producer)
        await spilling.put(producer, 2)
        waiting = asyncio.ensure_future(producer.put(b"3", _KEY))
        await writing.clock.settle()
        with pytest.raises(RecordsNotWrittenError):
            await writing.run(producer.close(timeout_seconds=1), within=_LONG)
        await writing.until_done([waiting])
        assert isinstance(waiting.exception(), ClosedError)
