"""The file of records on disk: what it refuses, what survives, and in which order."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.errors import InvalidOptionError, RecordsNotWrittenError
from kinesis_publishers.producing.routing import RandomKey
from kinesis_publishers.producing.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_publishers.producing.records import Row

_ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
_FILE = "arn:aws:kinesis:us-east-1:123456789012:stream:orders.sqlite"
_ROWS: list[Row] = [
    (b"", "k", None, None),
    (b"\x00\xff" * 50, "ключ\x00", "340282366920938463463374607431768211455", None),
    (b"x", RandomKey("00ff"), None, "batch/1"),
]


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = loaded(tmp_path)
    yield opened
    opened.close()


def loaded(directory: Path, stream_arn: str = _ARN) -> Spool:
    spool = Spool.locked(directory)
    try:
        spool.load(stream_arn)
    except BaseException:
        spool.close()
        raise
    return spool


def taken(spool: Spool, after: int = 0) -> list[Row]:
    return list(spool.take(after, most=1_000, most_bytes=10**9).values())


def reopened(spool: Spool, stream_arn: str = _ARN) -> Spool:
    spool.close()
    return loaded(spool.directory, stream_arn)


def test_records_come_back_as_they_were_in_their_order(spool: Spool) -> None:
    spool.append(_ROWS)
    spool.append(_ROWS[::-1])
    found = taken(spool)
    assert found == [*_ROWS, *_ROWS[::-1]]
    # The producer may leave out a random key.
    assert [type(key) for _, key, *_ in found[:3]] == [str, str, RandomKey]
    assert taken(spool, after=4) == _ROWS[::-1][1:]


def test_what_is_taken_is_limited_and_at_least_one_record(spool: Spool) -> None:
    spool.append([(bytes(100), "k", None, None)] * 5)
    assert len(spool.take(0, most=2, most_bytes=10**9)) == 2
    assert len(spool.take(0, most=5, most_bytes=250)) == 3
    assert len(spool.take(0, most=5, most_bytes=1)) == 1


def test_after_a_crash_it_tells_what_may_have_been_written(spool: Spool) -> None:
    first, second, *_ = spool.append(_ROWS)
    spool.take(0, most=2, most_bytes=10**9)
    spool.remove({first: 1})
    found = reopened(spool)
    assert (found.records, found.unknown, found.last_id) == (2, 1, 3)
    assert found.size == spool.size == 100 + len("ключ\x00".encode()) + 1 + 4
    assert list(found.take(0, most=9, most_bytes=10**9)) == [second, 3]
    found.close()


def test_the_file_is_for_its_user_only(spool: Spool) -> None:
    (path,) = spool.directory.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_transaction_that_a_crash_has_torn_leaves_what_was_there_before(
    spool: Spool, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spool.append(_ROWS)
    torn = tmp_path_factory.mktemp("torn")
    with closing(sqlite3.connect(tmp_path / _FILE, isolation_level=None)) as connection:
        # It writes to the file before it commits.
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE record SET data = zeroblob(20000)")
        # As a crash leaves them.
        for path in tmp_path.iterdir():
            shutil.copy(path, torn)
        connection.execute("ROLLBACK")
    assert {path.name for path in torn.iterdir()} == {_FILE, f"{_FILE}-journal"}
    assert (torn / _FILE).read_bytes() != (tmp_path / _FILE).read_bytes()
    found = loaded(torn)
    assert taken(found) == _ROWS
    found.close()


def test_a_disk_that_fails_is_an_error_that_names_it_and_changes_nothing(spool: Spool) -> None:
    ids = spool.append(_ROWS)
    before = spool.records, spool.size, spool.last_id
    path = spool.directory / _FILE
    path.rename(spool.directory / "away")
    calls: list[Callable[[], object]] = [
        lambda: spool.append(_ROWS),
        lambda: taken(spool),
        lambda: spool.remove({ids[0]: 1}),
    ]
    for call in calls:
        with pytest.raises(RecordsNotWrittenError, match=r"orders\.sqlite cannot be used"):
            call()
    assert not path.exists()
    (spool.directory / "away").rename(path)
    assert (spool.records, spool.size, spool.last_id) == before
    assert taken(spool) == _ROWS


def _missing(path: Path) -> Path:
    return path / "missing"


def _file(path: Path) -> Path:
    (path / "file").touch()
    return path / "file"


def _link(path: Path) -> Path:
    (path / "target").mkdir()
    (path / "link").symlink_to(path / "target")
    return path / "link"


def _linked_file(path: Path) -> Path:
    (path / _FILE).symlink_to(path / "target")
    return path


def _garbage(path: Path) -> Path:
    (path / _FILE).write_bytes(os.urandom(10_000))
    return path


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (_missing, "must be a directory"),
        (_file, "must be a directory"),
        (_link, "no link to one"),
        (_linked_file, "symbolic link"),
        (_garbage, "is not a database"),
    ],
)
def test_what_is_no_directory_of_its_own_is_refused_and_left_as_it_is(
    tmp_path: Path, prepare: Callable[[Path], Path], message: str
) -> None:
    directory = prepare(tmp_path)
    before = {path: path.lstat() for path in tmp_path.iterdir()}
    for _ in range(2):  # A refusal leaves no lock behind.
        with pytest.raises(
            InvalidOptionError, match=r"kinesis\.producer\.spill\.path: .*" + message
        ):
            loaded(directory)
    assert {path: path.lstat().st_size for path in tmp_path.iterdir()} == {
        path: found.st_size for path, found in before.items()
    }


def test_only_one_producer_uses_a_directory_at_a_time(spool: Spool) -> None:
    with pytest.raises(InvalidOptionError, match="another producer uses"):
        Spool.locked(spool.directory)
    reopened(spool).close()


def test_each_stream_has_its_own_records(spool: Spool) -> None:
    spool.append(_ROWS)
    other = reopened(spool, _ARN.replace("us-east-1", "eu-west-1"))
    assert (other.records, taken(other)) == (0, [])
    found = reopened(other)
    assert taken(found) == _ROWS
    found.close()
