"""Leases within one process, and what becomes of them where files cannot be trusted."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.registration import ConsumerLease
from kinesis_publishers.registration.lease_files import (
    FileLock,
    lease_directory,
)
from kinesis_publishers.testing.fakes import STREAM_ARN, finish
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.registration.registration_support import CONSUMER_NAME

if TYPE_CHECKING:
    from pathlib import Path

ARN = f"{STREAM_ARN}/consumer/{CONSUMER_NAME}:1"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def acquire(clock: ManualClock, name: str = CONSUMER_NAME) -> ConsumerLease:
    return await ConsumerLease.acquire(STREAM_ARN, name, clock=clock)


async def creator(clock: ManualClock) -> ConsumerLease:
    """Return the lease of the process that has registered the consumer."""
    lease = await acquire(clock)
    lease.note_created(ARN)
    return lease


class Removal:
    """Removes consumers, or fails to: returns what it is told to, or raises it."""

    def __init__(self, outcome: bool | type[BaseException] | None = None) -> None:
        self.removed: list[str] = []
        self._outcome = outcome

    async def __call__(self, consumer_arn: str) -> bool | None:
        self.removed.append(consumer_arn)
        if isinstance(self._outcome, type):
            raise self._outcome
        return self._outcome


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def lease_file(runtime_directory: Path, kind: str) -> Path:
    (found,) = runtime_directory.glob(f"*/*.{kind}")
    return found


async def test_every_holder_in_a_process_counts(clock: ManualClock) -> None:
    first, second = await acquire(clock), await acquire(clock)
    first.note_created(ARN)
    assert second.created_arn == ARN
    removal = Removal()
    await first.release(removal)
    assert removal.removed == []
    await second.release(removal)
    await second.release(removal)
    assert removal.removed == [ARN]


async def test_what_was_removed_is_not_removed_again(clock: ManualClock) -> None:
    first = await creator(clock)
    await first.release(Removal())
    removal = Removal()
    await (await acquire(clock)).release(removal)
    assert removal.removed == []


@pytest.mark.parametrize("outcome", [False, RuntimeError, asyncio.CancelledError])
async def test_what_could_not_be_removed_is_left_to_the_next_one(
    clock: ManualClock, outcome: bool | type[BaseException]
) -> None:
    first = await creator(clock)
    ending = pytest.raises(outcome) if isinstance(outcome, type) else nullcontext()
    with ending:
        await first.release(Removal(outcome))
    removal = Removal()
    await (await acquire(clock)).release(removal)
    assert removal.removed == [ARN]


async def test_leaving_without_removing_leaves_the_record(clock: ManualClock) -> None:
    first = await creator(clock)
    first.close()
    first.close()
    assert (await acquire(clock)).created_arn == ARN


def files_in(runtime_directory: Path) -> set[str]:
    return {path.suffix for path in runtime_directory.glob("*/*")}


@pytest.mark.parametrize("has_registered", [True, False])
async def test_the_last_one_to_leave_removes_the_files(
    clock: ManualClock, runtime_directory: Path, has_registered: bool
) -> None:
    first, second = await acquire(clock), await acquire(clock)
    async with first.registering():
        if has_registered:
            first.note_created(ARN)
    await first.release(Removal())
    assert ".users" in files_in(runtime_directory)
    await second.release(Removal())
    assert files_in(runtime_directory) == set()


async def test_the_files_stay_while_the_consumer_could_not_be_removed(
    clock: ManualClock, runtime_directory: Path
) -> None:
    first = await creator(clock)
    await first.release(Removal(False))
    assert files_in(runtime_directory) == {".users", ".json"}


async def test_two_who_leave_at_once_warn_of_nothing(
    clock: ManualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await acquire(clock), await acquire(clock)
    lock_file = fcntl.flock

    def leave_in_between(descriptor: int, operation: int) -> None:
        monkeypatch.setattr("fcntl.flock", lock_file)
        try:
            lock_file(descriptor, operation)
        finally:
            # Nothing was registered: it leaves without waiting for anything.
            with pytest.raises(StopIteration):
                second.release(Removal()).send(None)

    monkeypatch.setattr("fcntl.flock", leave_in_between)
    await first.release(Removal())
    assert caplog.text == ""


async def test_a_link_in_the_place_of_the_directory_is_not_followed(
    clock: ManualClock, runtime_directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (runtime_directory / "kinesis-publishers").symlink_to(elsewhere)
    lease = await creator(clock)
    assert lease.created_arn is None
    assert list(elsewhere.iterdir()) == []


async def test_other_consumers_have_other_leases(clock: ManualClock) -> None:
    one, other = await acquire(clock), await acquire(clock, "archive")
    one.note_created(ARN)
    assert other.created_arn is None
    removal = Removal()
    await one.release(removal)
    assert removal.removed == [ARN]


async def test_no_user_joins_while_the_consumer_is_being_removed(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    first = await creator(clock)
    is_removing, may_finish = asyncio.Event(), asyncio.Event()

    async def remove(_: str) -> None:
        is_removing.set()
        await may_finish.wait()

    leaving = asyncio.ensure_future(first.release(remove))
    await is_removing.wait()
    joining = asyncio.ensure_future(acquire(clock))
    await clock.advance(10)
    assert not joining.done()
    assert caplog.text == ""
    await clock.advance(60)
    assert "fuser" in caplog.text, "it waits without an end, and says so"
    may_finish.set()
    await leaving
    assert (await finish(joining, clock)).created_arn is None


async def test_only_one_at_a_time_registers(clock: ManualClock) -> None:
    first, second = await acquire(clock), await acquire(clock)
    history = []

    async def register(lease: ConsumerLease, name: str) -> None:
        async with lease.registering():
            history.append(f"{name} begins")
            await clock.sleep(1)
            history.append(f"{name} ends")

    await finish(asyncio.gather(register(first, "one"), register(second, "two")), clock)
    assert history == ["one begins", "one ends", "two begins", "two ends"]


async def test_waiting_can_be_cancelled_and_leaves_no_file_open(clock: ManualClock) -> None:
    before = open_files()
    first, second = await acquire(clock), await acquire(clock)
    async with first.registering():
        waiting = asyncio.ensure_future(second.registering().__aenter__())
        await clock.advance(5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    first.close()
    second.close()
    assert open_files() == before


async def test_joining_can_be_cancelled_and_leaves_no_file_open(clock: ManualClock) -> None:
    before = open_files()
    first = await creator(clock)
    may_finish = asyncio.Event()

    async def remove(_: str) -> None:
        await may_finish.wait()

    leaving = asyncio.ensure_future(first.release(remove))
    joining = asyncio.ensure_future(acquire(clock))
    await clock.advance(5)
    joining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await joining
    may_finish.set()
    await leaving
    assert open_files() == before


def test_a_file_that_is_removed_while_it_is_locked_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lock_file = tmp_path / "file", fcntl.flock

    def remove_first(descriptor: int, operation: int) -> None:
        path.unlink()
        lock_file(descriptor, operation)

    monkeypatch.setattr("fcntl.flock", remove_first)
    before = open_files()
    assert FileLock.try_take(path, exclusive=True) is None
    assert open_files() == before


async def test_a_file_that_was_removed_is_not_trusted(
    clock: ManualClock, runtime_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = await creator(clock)
    lease_file(runtime_directory, "users").unlink()
    second = await acquire(clock)
    removal = Removal()
    await first.release(removal)
    assert removal.removed == [], "the second one, on a new file, was overlooked"
    assert f"--stream-arn {STREAM_ARN} --consumer-name {CONSUMER_NAME}" in caplog.text
    await second.release(removal)
    assert removal.removed == [ARN]


async def test_while_a_lease_is_held_its_directory_is_not_cleaned_up(
    clock: ManualClock, runtime_directory: Path
) -> None:
    # Whoever removes old files locks their directory, or leaves it alone: tmpfiles.d(5).
    lease = await acquire(clock)
    assert FileLock.try_take(lease_directory(), exclusive=True) is None
    lease.close()
    cleaner = FileLock.try_take(lease_directory(), exclusive=True)
    assert cleaner is not None
    joining = asyncio.ensure_future(acquire(clock))
    await clock.advance(5)
    assert not joining.done()
    cleaner.close()
    (await finish(joining, clock)).close()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"created_arn": 1}', b'{"created_arn": "x"}']
)
async def test_a_damaged_record_is_no_record(
    clock: ManualClock, runtime_directory: Path, content: bytes
) -> None:
    lease = await creator(clock)
    lease_file(runtime_directory, "json").write_bytes(content)
    assert lease.created_arn is None


def test_the_directory_is_the_users_own(runtime_directory: Path) -> None:
    directory = lease_directory()
    assert directory.parent == runtime_directory
    directory.chmod(0o777)
    assert stat.S_IMODE(lease_directory().stat().st_mode) == 0o700


def test_what_is_deleted_at_the_end_of_a_login_is_no_place_for_leases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = tmp_path / "login"
    login.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(login))
    assert not lease_directory().is_relative_to(login)


@pytest.mark.parametrize("unusable", ["", "/nonexistent"])
def test_without_a_directory_for_state_it_is_a_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unusable: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", unusable)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert lease_directory() == tmp_path / f"kinesis-publishers-{os.geteuid()}"


async def test_a_directory_of_another_user_is_refused_and_nothing_is_removed(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lease_directory()
    another_user = os.geteuid() + 1
    monkeypatch.setattr("os.geteuid", lambda: another_user)
    removal = Removal()
    lease = await acquire(clock)
    async with lease.registering():
        lease.note_created(ARN)
    assert lease.created_arn is None
    await lease.release(removal)
    assert removal.removed == []
    assert "belongs to another user" in caplog.text
    assert "aws kinesis deregister-stream-consumer" in caplog.text
