"""Records on disk that wait until the service can be reached, oldest first, in a SQLite file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from attrs import define, field

from kinesis_publishers.config import ProducerConfig
from kinesis_publishers.errors import InvalidOptionError, RecordsNotWrittenError
from kinesis_publishers.producing.records import Row, row_bytes
from kinesis_publishers.producing.routing import RandomKey
from kinesis_publishers.registration.lease_files import FileLock

if TYPE_CHECKING:
    import sqlite3

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
        last_id: the number of the newest record.
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
        columns = [
            (number, *row, type(row[1]) is RandomKey, False)
            for number, row in enumerate(rows, first)
        ]
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
