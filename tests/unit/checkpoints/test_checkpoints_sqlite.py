"""The file of the sqlite store: what it must be, and who else has it."""

# ruff: noqa: ASYNC240 - nothing else runs in these event loops

from __future__ import annotations

import asyncio
import re
import resource
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.checkpoints.sql import SqlCheckpointStore
from kinesis_publishers.checkpoints.sql_database import _MEANINGS, failure_in
from kinesis_publishers.checkpoints.versions import failure_of
from kinesis_publishers.config import SqliteCheckpointConfig
from kinesis_publishers.errors import CheckpointError, RetriesExhaustedError
from kinesis_publishers.events import CallRetried, ignore_event
from kinesis_publishers.model import Checkpoint, CheckpointWrite
from kinesis_publishers.retry import RetryPolicy
from kinesis_publishers.testing.contracts.checkpoint_store import store_context
from tests.unit.checkpoints.checkpoint_support import BEGINNING, CREATED_AT, KEY, WRITE, at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_publishers import Event, EventSink
    from kinesis_publishers.testing.manual_clock import ManualClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a directory" / "checkpoints#1.sqlite3"


def store_at(path: Path) -> SqlCheckpointStore:
    return SqlCheckpointStore(store_context("billing"), SqliteCheckpointConfig(path=path))


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


async def refusal_of(path: Path) -> str:
    with pytest.raises(CheckpointError) as raised:
        await store_at(path).__aenter__()
    assert str(path) in str(raised.value)
    return str(raised.value)


async def test_the_file_and_its_directory_are_made_for_their_owner(path: Path) -> None:
    async with store_at(path):
        assert path.parent.stat().st_mode & 0o077 == 0
        assert path.stat().st_mode & 0o777 == 0o600
    async with store_at(path) as again:
        assert await again.load() == {}


async def test_a_file_that_its_owner_shares_with_a_group_stays_shared(path: Path) -> None:
    async with store_at(path):
        path.chmod(0o640)
    async with store_at(path):
        assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("is_dangling", [True, False])
async def test_a_symbolic_link_is_refused_and_left_as_it_is(path: Path, is_dangling: bool) -> None:
    path.parent.mkdir()
    target = path.with_name("target")
    if not is_dangling:
        target.write_bytes(b"")
    path.symlink_to(target)
    refusal = await refusal_of(path)
    assert "symbolic link" in refusal
    assert str(target) in refusal
    assert (target.exists(), target.exists() and target.stat().st_size) == (not is_dangling, 0)


async def test_a_link_to_the_directory_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    async with store_at(tmp_path / "linked" / "checkpoints.sqlite3"):
        assert (tmp_path / "real" / "checkpoints.sqlite3").exists()


async def test_a_database_of_another_program_is_refused_and_left_as_it_is(path: Path) -> None:
    path.parent.mkdir()
    execute(path, "CREATE TABLE other (x)")
    before = path.read_bytes()
    assert "another program" in await refusal_of(path)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 100)
    assert "damaged or no database of checkpoints" in await refusal_of(path)


async def test_a_damaged_file_is_refused(path: Path) -> None:
    async with store_at(path) as store:
        await store.save([WRITE])
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    store = store_at(path)
    async with store:
        with pytest.raises(CheckpointError, match="restore it from a backup"):
            await store.load()


async def test_the_schema_of_a_newer_version_is_refused(path: Path) -> None:
    async with store_at(path):
        execute(path, "PRAGMA user_version = 3")
    assert "version 3 of the schema" in await refusal_of(path)


async def test_a_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "below" / "checkpoints.sqlite3"
    with pytest.raises(CheckpointError, match=r"kinesis\.checkpoint\.sqlite\.path"):
        await store_at(path).__aenter__()


@pytest.mark.parametrize("damage", ["position = 'HERE'", "version = 'one'", "writer = x'00'"])
async def test_a_checkpoint_that_was_damaged_by_hand_is_named(path: Path, damage: str) -> None:
    async with store_at(path) as store:
        await store.save([WRITE])
        execute(path, f"UPDATE checkpoint SET {damage}")
        with pytest.raises(CheckpointError, match=KEY.shard_id):
            await store.load()


async def test_a_damaged_checkpoint_can_be_mended_as_the_error_says(path: Path) -> None:
    async with store_at(path) as store:
        await store.save([WRITE])
        execute(path, "UPDATE checkpoint SET position = 'HERE', is_ended = 5")
        with pytest.raises(CheckpointError, match="position TRIM_HORIZON, is_ended 0 and neither"):
            await store.load()
        execute(
            path,
            "UPDATE checkpoint SET position = 'TRIM_HORIZON', is_ended = 0, sequence_number = NULL,"
            " sub_sequence_number = NULL, timestamp = NULL, as_of = NULL",
        )
        assert (await store.load())[KEY].checkpoint.progress == BEGINNING


async def test_an_application_is_removed_as_the_page_says(path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "checkpoints.md"
    (statement,) = re.findall(r"^\| `sqlite` \| `(D.+)` \|$", page.read_text(), re.MULTILINE)
    async with store_at(path) as store:
        await store.save([WRITE])
        execute(path, statement)
        assert await store.load() == {}


async def test_a_file_that_was_removed_is_not_silently_made_again(path: Path) -> None:
    async with store_at(path) as store:
        await store.save([WRITE])
        path.unlink()
        with pytest.raises(CheckpointError, match="check that the file is there"):
            await store.load()
    assert not path.exists()


def locking_store(
    path: Path, clock: ManualClock, retries: int, events: EventSink = ignore_event
) -> SqlCheckpointStore:
    policy = RetryPolicy(max_retries=retries, base_seconds=1, max_seconds=1, exponent=1)
    return SqlCheckpointStore(
        CheckpointStoreContext(application="billing", retry=policy, clock=clock, events=events),
        SqliteCheckpointConfig(path=path),
    )


async def test_a_locked_file_is_tried_again(path: Path, manual_clock: ManualClock) -> None:
    events: list[Event] = []
    async with locking_store(path, manual_clock, 3, events.append) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            saving = asyncio.create_task(store.save([WRITE]))
            await manual_clock.wait_for_sleepers()
            other.execute("COMMIT")
        await manual_clock.advance(1)
        assert set(await saving) == {KEY}
    assert [one.code for one in events if isinstance(one, CallRetried)] == ["SQLITE_BUSY"]


@pytest.fixture(params=["no room", "no longer files"])
def full_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[bool], None]]:
    """Let the file not grow, or grow again."""
    if request.param == "no longer files":
        before = resource.getrlimit(resource.RLIMIT_FSIZE)

        def limit(is_full: bool) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]) if is_full else before)

        try:
            yield limit
        finally:
            # The report of a failure is written to a file, too.
            limit(False)
        return
    (place := tmp_path / "a directory").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("A small disk is mounted by root only.")
    ballast = place / "ballast"

    def fill(is_full: bool) -> None:
        ballast.unlink(missing_ok=True)
        with suppress(OSError):
            ballast.write_bytes(bytes(is_full << 20))

    yield fill
    subprocess.run(["umount", str(place)], check=True)


async def test_a_disk_that_is_full_for_a_while_is_outlived(
    path: Path, full_disk: Callable[[bool], None], request: pytest.FixtureRequest
) -> None:
    codes: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, CallRetried):
            codes.append(event.code)
            full_disk(False)

    context = evolve(store_context("billing"), events=note)
    async with SqlCheckpointStore(context, SqliteCheckpointConfig(path=path)) as store:
        version = (await store.save([WRITE]))[KEY]
        full_disk(True)
        try:
            version = (await store.save([evolve(WRITE, expected=version)]))[KEY]
        finally:
            full_disk(False)
        assert (await store.load())[KEY].version == version
    is_mounted = "no room" in request.node.name
    assert set(codes) == {"SQLITE_FULL" if is_mounted else "SQLITE_IOERR_WRITE"}


@pytest.mark.parametrize(
    "code",
    ["SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_NOMEM", "SQLITE_PROTOCOL", "SQLITE_BUSY"],
)
def test_what_passes_is_repeated(code: str) -> None:
    assert failure_of("it", sqlite3.OperationalError(), code, _MEANINGS).retryable


def test_a_disk_that_does_not_answer_is_tried_again() -> None:
    failure = failure_in("it", TimeoutError(), is_file=True)
    assert failure.retryable
    assert "see to its disk" in str(failure)


async def test_a_file_that_stays_locked_is_an_error(path: Path, manual_clock: ManualClock) -> None:
    async with locking_store(path, manual_clock, 0) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(RetriesExhaustedError, match="another process has locked it"):
                await store.save([WRITE])


async def test_a_batch_is_one_transaction(path: Path) -> None:
    """Each costs several waits for the disk."""
    async with store_at(path) as store:
        await store.save([WRITE])
        before = counter_of(path)
        batch = [
            CheckpointWrite(
                checkpoint=Checkpoint(
                    shard=type(KEY)(KEY.stream_arn, f"shardId-{number:012}"),
                    stream_created_at=CREATED_AT,
                    progress=at(1),
                )
            )
            for number in range(1, 501)
        ]
        assert len(await store.save(batch)) == 500
        assert counter_of(path) == before + 1


def counter_of(path: Path) -> int:
    """Return how often the file was changed (offset 24 of the SQLite file format)."""
    return int.from_bytes(path.read_bytes()[24:28], "big")
