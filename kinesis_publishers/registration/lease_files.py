"""Decides, among the processes of one user on one machine, who removes a stream consumer.

They agree by files. The kernel drops the locks of a process that is killed, and only its record
stays. A process on another machine is not seen: if it loses its consumer, it registers the consumer
again.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import stat
import tempfile
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import orjson
from attrs import define

from kinesis_publishers.clock import Clock
from kinesis_publishers.config.sections.aws import AWS_DOMAINS
from kinesis_publishers.registration.consumers import deregister_command
from kinesis_publishers.retry import RetryPolicy

_LOGGER = logging.getLogger(__name__)
_NAME = "kinesis-publishers"
# Locks are polled: a thread that waits in flock() could not be cancelled.
_POLLING = RetryPolicy(max_retries=0, base_seconds=0.05, max_seconds=0.5, exponent=1.5)
# About half a minute: longer than a removal or a registration takes.
_UNUSUAL_ATTEMPTS = 120


class FileLock:
    """A lock (flock) on an open file. The kernel drops it when the process ends in any way.

    Each object opens the file itself, so that holders within one process exclude each other too.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor
        _OPEN.add(self)

    @classmethod
    def try_take(cls, path: Path, *, exclusive: bool) -> Self | None:
        """Return the lock on ``path``, ``None`` while another holder prevents it; never waits.

        A directory must exist; a missing file is created. Raises ``OSError`` if neither works.
        """
        flags = os.O_DIRECTORY if path.is_dir() else os.O_RDWR | os.O_CREAT
        lock = cls(path, os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        with ExitStack() as on_failure:
            on_failure.callback(lock.close)
            if lock.try_lock(exclusive=exclusive) and lock.is_current:
                on_failure.pop_all()
                return lock
        return None

    @property
    def is_current(self) -> bool:
        """Whether the file is still the one at its path, not removed or replaced since."""
        try:
            found = self._path.lstat()
        except FileNotFoundError:
            return False
        return self._descriptor is not None and os.path.samestat(found, os.fstat(self._descriptor))

    def try_lock(self, *, exclusive: bool) -> bool:
        """Lock the file, unless another holder prevents it: then no lock is left.

        A lock is released before it is exchanged for the exclusive one, so that the last of several
        that try at once succeeds.
        """
        if self._descriptor is None:
            return False
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Release the lock; calling it again does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_OPEN: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _close_inherited() -> None:
    # A forked process would hold its parent's locks for its whole life.
    for lock in list(_OPEN):
        lock.close()


os.register_at_fork(after_in_child=_close_inherited)


def lease_directory() -> Path:
    """Return the directory of this user's leases; an ``OSError`` if others could write to it."""
    # Not XDG_RUNTIME_DIR: it is deleted when the user logs out, and a reader may run on.
    state = os.environ.get("XDG_STATE_HOME", "")
    if state and os.access(state, os.W_OK | os.X_OK):
        directory = Path(state) / _NAME
    else:
        directory = Path(tempfile.gettempdir()) / f"{_NAME}-{os.geteuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{directory} belongs to another user")
    if found.st_mode & 0o077:
        directory.chmod(0o700)
    return directory


@define(eq=False)
class ConsumerLease:
    """The right to use a stream consumer, and the duty of the last one to remove it.

    Only what :meth:`note_created` recorded is ever removed. Without a directory that can be
    trusted, there are no files: nothing is recorded and nothing removed.

    Made by :meth:`acquire`; :meth:`release` or :meth:`close` ends it. The last user removes its
    files, which have these suffixes:

    - ``.users``: every user of the consumer holds a shared lock on it;
    - ``.registration``: locked while a process looks for the consumer and registers it;
    - ``.json``: what was registered; always replaced as a whole.
    """

    _clock: Clock
    _stream_arn: str = ""
    _consumer_name: str = ""
    # The file of the users; None without files.
    _path: Path | None = None
    _users: FileLock | None = None
    _directory: FileLock | None = None

    @classmethod
    async def acquire(
        cls, stream_arn: str, consumer_name: str, *, clock: Clock, endpoint_url: str | None = None
    ) -> Self:
        """Join the users of a consumer; wait while another process is removing it."""
        host = None if endpoint_url is None else urlsplit(endpoint_url).hostname
        # Behind another endpoint than AWS's, another stream may have the same ARN.
        place = "" if host is None or host.endswith(AWS_DOMAINS) else f"{endpoint_url}/"
        digest = hashlib.sha256(f"{place}{stream_arn}/{consumer_name}".encode()).hexdigest()
        try:
            directory = lease_directory()
            path = directory / f"{consumer_name}-{digest[:16]}.users"
            with ExitStack() as on_failure:
                # What is below a locked directory is never too old for systemd-tmpfiles, says
                # tmpfiles.d(5).
                lock = await _take(directory, clock, exclusive=False)
                on_failure.callback(lock.close)
                users = await _take(path, clock, exclusive=False)
                on_failure.pop_all()
            return cls(clock, stream_arn, consumer_name, path, users, lock)
        except OSError as error:
            _LOGGER.warning(
                "The use of the stream consumer %s on %s cannot be recorded (%s): if it is "
                "registered now, it is not removed at the end. Set XDG_STATE_HOME or TMPDIR to "
                "a directory of this user.",
                consumer_name,
                stream_arn,
                error,
            )
            return cls(clock)

    @property
    def created_arn(self) -> str | None:
        """The ARN of the consumer that this machine registered and that is not removed yet."""
        if self._path is None:
            return None
        record = self._path.with_suffix(".json")
        try:
            arn = orjson.loads(record.read_bytes())["created_arn"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        except OSError as error:
            _LOGGER.warning("%s cannot be read: %s", record, error)
            return None
        is_arn = isinstance(arn, str) and arn.startswith(f"{self._stream_arn}/consumer/")
        return arn if is_arn else None

    def note_created(self, consumer_arn: str) -> None:
        """Record, within :meth:`registering`, that this process registered ``consumer_arn``."""
        if self._path is not None:
            new = self._path.with_suffix(".new")
            # For people.
            subject = {"stream_arn": self._stream_arn, "consumer_name": self._consumer_name}
            try:
                new.write_bytes(orjson.dumps({**subject, "created_arn": consumer_arn}))
                new.replace(self._path.with_suffix(".json"))
                return
            except OSError as error:
                _LOGGER.warning("%s cannot be written: %s", new, error)
        _LOGGER.warning(
            "The stream consumer that was registered will not be removed. Once nothing uses it, "
            "remove it: %s",
            deregister_command(consumer_arn),
        )

    @asynccontextmanager
    async def registering(self) -> AsyncIterator[None]:
        """Keep the other processes from registering this consumer, for a few calls only."""
        lock = None
        if self._path is not None:
            path = self._path.with_suffix(".registration")
            try:
                lock = await _take(path, self._clock, exclusive=True)
            except OSError as error:
                _LOGGER.warning("%s cannot be locked: %s", path, error)
        try:
            yield
        finally:
            if lock is not None:
                lock.close()

    async def release(self, remove: Callable[[str], Awaitable[bool | None]]) -> None:
        """Leave; the last one to leave removes the consumer, if one was recorded.

        It awaits ``remove`` with the recorded ARN, while no other process can join. If that raises
        or returns False, the record stays for the next process that leaves.
        """
        try:
            if self._is_last():
                await self._remove(remove)
        finally:
            self.close()

    def close(self) -> None:
        """Leave, and remove nothing; more than once is fine."""
        for lock in (self._users, self._directory):
            if lock is not None:
                lock.close()
        self._users = self._directory = None

    def _is_last(self) -> bool:
        if self._users is None:
            return False
        try:
            if not self._users.try_lock(exclusive=True):
                return False
            if self._users.is_current:
                return True
        except OSError as error:
            _LOGGER.warning("Whether others use a stream consumer cannot be determined: %s", error)
            return False
        _LOGGER.warning(
            "%s is gone. It recorded who uses and who registered the stream consumer %s, which is "
            "therefore not removed. If it is yours and nothing uses it, remove it: %s",
            self._path,
            self._consumer_name,
            deregister_command(self._stream_arn, self._consumer_name),
        )
        return False

    async def _remove(self, remove: Callable[[str], Awaitable[bool | None]]) -> None:
        consumer_arn = self.created_arn
        if self._path is None or (consumer_arn and await remove(consumer_arn) is False):
            return
        try:
            # The locked one last: the next user after that begins with files of its own.
            for suffix in (".json", ".new", ".registration", ".users"):
                self._path.with_suffix(suffix).unlink(missing_ok=True)
        except OSError as error:
            _LOGGER.warning("%s cannot be removed: %s", self._path, error)


async def _take(path: Path, clock: Clock, *, exclusive: bool) -> FileLock:
    attempt = 0
    while (lock := FileLock.try_take(path, exclusive=exclusive)) is None:
        await clock.sleep(_POLLING.delay_seconds(attempt))
        attempt += 1
        if attempt == _UNUSUAL_ATTEMPTS:
            _LOGGER.warning(
                "Another process has held the lock on %s for a while, and this one waits for it. "
                "If it was stopped (Ctrl-Z), continue or end it: fuser %s shows it.",
                path,
                path,
            )
    return lock
