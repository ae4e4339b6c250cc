"""The files by which the processes of one user on one machine agree about a stream consumer.

``shared_use`` decides what follows from them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import orjson
from attrs import frozen

from kinesis_publishers.config.sections.aws import AWS_DOMAINS

_NAME = "kinesis-publishers"


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

        A directory must exist; a missing file is created.

        Raises:
            OSError: the file cannot be opened, or its file system has no locks.
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


@frozen(kw_only=True)
class LeaseFiles:
    """The files of one consumer; its last user removes them.

    Attributes:
        users: every user of the consumer holds a shared lock on it.
        registration: locked while a process looks for the consumer and registers it.
        record: what was registered; always replaced as a whole.
    """

    users: Path
    registration: Path
    record: Path
    stream_arn: str
    consumer_name: str

    @classmethod
    def of(
        cls, directory: Path, stream_arn: str, consumer_name: str, endpoint_url: str | None = None
    ) -> Self:
        host = None if endpoint_url is None else urlsplit(endpoint_url).hostname
        # Behind another endpoint than AWS's, another stream may have the same ARN.
        place = "" if host is None or host.endswith(AWS_DOMAINS) else f"{endpoint_url}/"
        digest = hashlib.sha256(f"{place}{stream_arn}/{consumer_name}".encode()).hexdigest()
        stem = f"{consumer_name}-{digest[:16]}"
        return cls(
            users=directory / f"{stem}.users",
            registration=directory / f"{stem}.registration",
            record=directory / f"{stem}.json",
            stream_arn=stream_arn,
            consumer_name=consumer_name,
        )

    def read_created_arn(self) -> str | None:
        """Return the ARN of the consumer that was registered, ``None`` if there is none."""
        try:
            arn = orjson.loads(self.record.read_bytes())["created_arn"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        is_arn = isinstance(arn, str) and arn.startswith(f"{self.stream_arn}/consumer/")
        return arn if is_arn else None

    def write_created_arn(self, consumer_arn: str) -> None:
        new = self.record.with_suffix(".new")
        # For people.
        subject = {"stream_arn": self.stream_arn, "consumer_name": self.consumer_name}
        new.write_bytes(orjson.dumps({**subject, "created_arn": consumer_arn}))
        new.replace(self.record)

    def remove(self) -> None:
        """Remove the files; the caller has ``users`` to itself."""
        # The locked one last: the next user after that begins with files of its own.
        for suffix in (".json", ".new", ".registration", ".users"):
            self.users.with_suffix(suffix).unlink(missing_ok=True)


def lease_directory() -> Path:
    """Return the directory of this user's leases, and make it if it is missing.

    Raises:
        OSError: it cannot be made, or another user could write to it.
    """
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
