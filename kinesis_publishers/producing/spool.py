"""Records on disk that have no room in memory while the service is away, in a SQLite file."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from attrs import define, evolve, field

from kinesis_publishers.assembly import WritingServices
from kinesis_publishers.config import ProducerConfig, WhenFull
from kinesis_publishers.errors import (
    BufferFullError,
    ClosedError,
    InvalidOptionError,
    RecordsNotWrittenError,
)
from kinesis_publishers.events import SpoolFound
from kinesis_publishers.producing.buffer import Buffer
from kinesis_publishers.producing.records import (
    Putting,
    Row,
    Run,
    Written,
    columns_of_rows,
    row_bytes,
)
from kinesis_publishers.producing.routing import RandomKey
from kinesis_publishers.registration.lease_files import FileLock

if TYPE_CHECKING:
    import sqlite3

_T = TypeVar("_T")
_LOGGER = logging.getLogger(__name__)
# What is taken from the disk at once: the entries of a call.
_CHUNK_RECORDS: Final = 500
_CHUNK_BYTES: Final = 1024 * 1024

_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS record (id INTEGER PRIMARY KEY, data BLOB NOT NULL,"
    " partition_key TEXT NOT NULL, explicit_hash_key TEXT, marker TEXT,"
    " is_random_key INTEGER NOT NULL, is_taken INTEGER NOT NULL)"
)
_COUNT: Final = (
    "SELECT count(*), coalesce(sum(is_taken), 0), coalesce(max(id), 0),"
    " coalesce(sum(length(data) + length(CAST(partition_key AS BLOB))), 0) FROM record"
)


@define(eq=False)
class Spool:
    """Records in a directory that this object has to itself; they survive a power failure.

    The methods wait for the disk, and are for one thread at a time. If the disk has failed or is
    full, they raise a ``RecordsNotWrittenError``, and nothing has changed.

    Attributes:
        records, size: the number of records, and the bytes of their data and partition keys.
        unknown: how many records an earlier process had taken and not removed when it ended.
    """

    directory: Path
    _lock: FileLock
    _path: Path = field(init=False)
    records: int = field(default=0, init=False)
    unknown: int = field(default=0, init=False)
    last_id: int = field(default=0, init=False)
    size: int = field(default=0, init=False)

    @classmethod
    def locked(cls, directory: Path) -> Self:
        """Return a spool that is not loaded yet.

        Raises:
            InvalidOptionError: the directory cannot be used, or another producer uses it.
        """
        key = ProducerConfig.spill_path.full_key
        if directory.is_symlink() or not directory.is_dir():
            raise InvalidOptionError(f"{key}: {directory} must be a directory, and no link to one")
        try:
            lock = FileLock.try_take(directory, exclusive=True)
        except OSError as error:
            raise InvalidOptionError(f"{key}: {directory} cannot be locked: {error}") from error
        if lock is None:
            raise InvalidOptionError(
                f"{key}: another producer uses {directory}: give each one a directory of its own"
            )
        return cls(directory, lock)

    def load(self, stream_arn: str) -> None:
        """Count the records for a stream, which are in a file of its own.

        Raises:
            InvalidOptionError: the file cannot be used.
        """
        self._path = self.directory / f"{stream_arn.replace('/', ':')}.sqlite"
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600))
            with self._transaction() as connection:
                connection.execute(_SCHEMA)
                found = connection.execute(_COUNT).fetchone()
        except (OSError, RecordsNotWrittenError) as error:
            raise InvalidOptionError(f"{ProducerConfig.spill_path.full_key}: {error}") from error
        self.records, self.unknown, self.last_id, self.size = found

    def append(self, rows: Sequence[Row]) -> range:
        """Store records behind all others, and return their numbers."""
        first = self.last_id + 1
        numbered = enumerate(rows, first)
        columns = [(number, *row, type(row[1]) is RandomKey, False) for number, row in numbered]
        with self._transaction() as connection:
            connection.executemany("INSERT INTO record VALUES (?, ?, ?, ?, ?, ?, ?)", columns)
        self.last_id += len(rows)
        self.records += len(rows)
        self.size += sum(map(row_bytes, rows))
        return range(first, self.last_id + 1)

    def take(self, after: int, *, most: int, most_bytes: int) -> dict[int, Row]:
        """Return the first records after a number, at least one, and mark them as taken."""
        taken: dict[int, Row] = {}
        query = "SELECT * FROM record WHERE id > ? ORDER BY id LIMIT ?"
        with self._transaction() as connection:
            for number, data, key, *rest, is_random, _ in connection.execute(query, (after, most)):
                taken[number] = (data, RandomKey(key) if is_random else key, *rest)
                most_bytes -= row_bytes(taken[number])
                if most_bytes <= 0:
                    break
            marked = after, max(taken, default=after)
            connection.execute("UPDATE record SET is_taken = 1 WHERE id > ? AND id <= ?", marked)
        return taken

    def remove(self, sizes: dict[int, int]) -> None:
        """Remove records, by their numbers and with their sizes."""
        with self._transaction() as connection:
            connection.executemany("DELETE FROM record WHERE id = ?", [(one,) for one in sizes])
        self.records -= len(sizes)
        self.size -= sum(sizes.values())

    def close(self) -> None:
        """Let others use the directory."""
        self._lock.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        import sqlite3  # Most programs keep no records on disk.

        # Each has a connection of its own: a forked process must share none.
        uri = f"{self._path.absolute().as_uri()}?mode=rw"
        try:
            # The inner one commits, or rolls back after an error.
            with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as own, own:
                own.execute("PRAGMA synchronous = EXTRA")
                own.execute("BEGIN IMMEDIATE")
                yield own
        except sqlite3.Error as error:
            raise RecordsNotWrittenError(
                f"{self._path} cannot be used ({error}): see to its disk, and make room there"
            ) from error


def open_spool(directory: str | None) -> AbstractContextManager[Spool | None]:
    """Return a context with the locked spool of a directory; see :meth:`Spool.locked`."""
    return nullcontext() if directory is None else closing(Spool.locked(Path(directory)))


@define(eq=False)
class Spilling:
    """Puts records on disk, and from there into the buffer, in their order.

    As long as a record on disk is not in the buffer, every further one goes to the disk, which
    keeps the order of keys. A record stays on disk until it is written, or until its caller has
    the error; if its caller has ended, until it is written.

    To the producer it is the ``put`` of the records from the disk; their places are their numbers.
    """

    _services: WritingServices
    _spool: Spool
    _buffer: Buffer
    _enter: Callable[[Run], Awaitable[None]]
    _taken_up_to: int = field(default=0, init=False)
    _entered_up_to: int = field(default=0, init=False)
    # Of the records of this process: the call of `put`, the place in that, and its time.
    _callers: dict[int, tuple[Putting, int, float]] = field(factory=dict, init=False)
    # The sizes of the records that were taken, and of those that leave the disk.
    _taken: dict[int, int] = field(factory=dict, init=False)
    _gone: dict[int, int] = field(factory=dict, init=False)
    _end: Exception | None = field(default=None, init=False)
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _has_work: asyncio.Event = field(factory=asyncio.Event, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)
    # Of the disk, while it lasts.
    _failure: RecordsNotWrittenError | None = field(default=None, init=False)
    # One thread: a write whose caller was cancelled is over before the next one begins.
    _executor: ThreadPoolExecutor = field(
        factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="kinesis-spool"), init=False
    )

    async def open(self) -> None:
        """Find what an earlier process has left, which is put first.

        Raises:
            InvalidOptionError: the disk cannot be used.
        """
        spool, arn = self._spool, self._services.arn
        await self._call(lambda: spool.load(arn))
        if count := spool.records:
            self._services.events(SpoolFound(stream_arn=arn, records=count, unknown=spool.unknown))
            self._buffer.on_disk += count
            self._has_work.set()

    async def append(self, run: Run) -> None:
        """Return once records are on disk; wait while there is no room for them.

        Raises:
            BufferFullError: there is no room, and the configuration forbids waiting.
            RecordsNotWrittenError: the disk has failed.
            ClosedError: the producer was closed meanwhile.
        """
        write: asyncio.Future[range] | None = None
        if not self._buffer.on_disk:
            _LOGGER.warning("Records for %s go to %s", self._services.name, self._spool.directory)
        self._buffer.on_disk += len(run)
        try:
            async with self._turn:
                await self._wait_for_room(run.size)
                write = self._call(lambda: self._spool.append([row[:4] for row in run.rows()]))
                write.add_done_callback(partial(self._note_append, run))
                # It ends, even if this call is cancelled.
                await asyncio.shield(write)
        finally:
            if write is None:
                self._buffer.on_disk -= len(run)

    async def _wait_for_room(self, size: int) -> None:
        spool, config = self._spool, self._services.config
        while self._end is None and spool.size + size > config.spill_bytes:
            # Nothing would make room: the records there are being sent, or stay for good.
            if self._entered_up_to >= spool.last_id:
                break
            if config.when_full is WhenFull.FAIL:
                raise BufferFullError(
                    f"The buffer is full, and {spool.directory} has {spool.size:,} bytes "
                    f"({ProducerConfig.spill_bytes.full_key})"
                )
            await self._changed.wait()
            if self._failure is not None:
                raise self._failure
        if self._end is not None:
            raise self._end

    def _note_append(self, run: Run, write: asyncio.Future[range]) -> None:
        if write.exception() is not None:
            self._buffer.on_disk -= len(run)
            return
        for number, place in zip(write.result(), run.places, strict=True):
            self._callers[number] = run.put, place, run.put_at
        self._has_work.set()
        if self._end is not None:
            self.end(self._end)

    async def run(self) -> None:
        """Put what is on disk into the buffer, until cancelled or closed."""
        with suppress(ClosedError):
            while await self._has_work.wait():
                self._has_work.clear()
                while self._gone or self._taken_up_to < self._spool.last_id:
                    try:
                        await self._remove()
                        rows = await self._take()
                    except RecordsNotWrittenError as error:
                        _LOGGER.warning("%s. This is tried again", error)
                        self._failure = error
                        self._pulse()
                        await self._services.clock.sleep(self._services.config.retry.max_seconds)
                        continue
                    self._failure = None
                    if rows:
                        columns = columns_of_rows(list(rows.values()))
                        await self._enter(Run(self, list(rows), 0, 0.0, *columns))
                        self._entered_up_to = self._taken_up_to
                        self._buffer.on_disk -= len(rows)
                        self._pulse()

    async def _remove(self) -> None:
        gone, self._gone = self._gone, {}
        if gone:
            removal = self._call(lambda: self._spool.remove(gone))
            removal.add_done_callback(partial(self._note_removal, gone))
            # It ends, even if this call is cancelled.
            await asyncio.shield(removal)

    def _note_removal(self, gone: dict[int, int], removal: asyncio.Future[None]) -> None:
        if removal.exception() is not None:
            self._gone |= gone
        self._pulse()

    async def _take(self) -> dict[int, Row]:
        after = self._taken_up_to
        if after >= self._spool.last_id:
            return {}
        limits = {"most": _CHUNK_RECORDS, "most_bytes": _CHUNK_BYTES}
        rows = await self._call(lambda: self._spool.take(after, **limits))
        self._taken_up_to = max(rows)
        self._taken |= {number: row_bytes(row) for number, row in rows.items()}
        return rows

    async def drain(self) -> None:
        """Wait until what is on disk now has entered the buffer; raise if the disk has failed."""
        last = self._spool.last_id
        while self._entered_up_to < last and self._end is None:
            await self._changed.wait()
            if self._failure is not None:
                raise self._failure

    def settle(self, places: Sequence[int], written: Written) -> None:
        """Report where records were written, and remove them from the disk."""
        for number, *columns in zip(places, *written.columns, strict=True):
            if (caller := self._callers.pop(number, None)) is not None:
                put, place, put_at = caller
                own: Any = tuple([one] for one in columns)
                put.settle([place], evolve(written, columns=own, put_at=put_at))
            self._let_go(number)

    def fail(self, places: Sequence[int], error: Exception) -> None:
        """Report that records were not written; those without a caller stay on disk."""
        stays = self._end is not None or isinstance(error, ClosedError)
        if stays:
            error = ClosedError(f"{error}; {self._spool.directory} keeps it for the next producer")
        for number in places:
            if (caller := self._callers.pop(number, None)) is not None:
                put, place, _ = caller
                put.fail([place], error)
                if not stays:
                    self._let_go(number)

    def _let_go(self, number: int) -> None:
        self._gone[number] = self._taken.pop(number)
        self._has_work.set()

    def end(self, error: Exception) -> None:
        """Put no more records into the buffer, and tell the callers of those that stay on disk."""
        self._end = error
        self.fail(list(self._callers), error)
        self._pulse()

    async def close(self) -> RecordsNotWrittenError | None:
        """Return an error, which is also logged, if records stay on disk; first :meth:`end`."""
        with suppress(RecordsNotWrittenError):
            await self._remove()
        await asyncio.to_thread(self._executor.shutdown)
        if not self._spool.records:
            return None
        left = RecordsNotWrittenError(
            f"{self._spool.records:,} of the records for {self._services.name} were not written, "
            f"or not for certain: {self._spool.directory} keeps them for the next producer"
        )
        _LOGGER.warning("%s", left)
        return left

    def _pulse(self) -> None:
        # Wakes those that wait now.
        self._changed.set()
        self._changed.clear()

    def _call(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, work)
