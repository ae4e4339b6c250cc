"""Decides, among the processes of one user on one machine, who removes a stream consumer.

The kernel drops the locks of a process that is killed, and only its record stays. A process on
another machine is not seen: if it loses its consumer, it registers the consumer again.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

from attrs import define

from kinesis_publishers.clock import Clock
from kinesis_publishers.registration.consumers import deregister_by_name_command, deregister_command
from kinesis_publishers.registration.lease_files import FileLock, LeaseFiles, lease_directory
from kinesis_publishers.retry import RetryPolicy

_LOGGER = logging.getLogger(__name__)

# Locks are polled: a thread that waits in flock() could not be cancelled.
_POLLING = RetryPolicy(max_retries=0, base_seconds=0.05, max_seconds=0.5, exponent=1.5)
# About half a minute: longer than a removal or a registration takes.
_UNUSUAL_ATTEMPTS = 120


@define(eq=False)
class ConsumerLease:
    """The right to use a stream consumer, and the duty of the last one to remove it.

    Only what :meth:`note_created` recorded is ever removed. Without a directory that can be
    trusted, there are no files: nothing is recorded and nothing removed.

    Made by :meth:`acquire`; :meth:`release` or :meth:`close` ends it.
    """

    _files: LeaseFiles | None
    _users: FileLock | None
    _clock: Clock
    _directory: FileLock | None = None

    @classmethod
    async def acquire(
        cls, stream_arn: str, consumer_name: str, *, clock: Clock, endpoint_url: str | None = None
    ) -> Self:
        """Join the users of a consumer; wait while another process is removing it."""
        try:
            directory = lease_directory()
            files = LeaseFiles.of(directory, stream_arn, consumer_name, endpoint_url)
            with ExitStack() as on_failure:
                # What is below a locked directory is never too old for systemd-tmpfiles, says
                # tmpfiles.d(5).
                lock = await _take(directory, clock, exclusive=False)
                on_failure.callback(lock.close)
                users = await _take(files.users, clock, exclusive=False)
                on_failure.pop_all()
            return cls(files, users, clock, lock)
        except OSError as error:
            _LOGGER.warning(
                "The use of the stream consumer %s on %s cannot be recorded (%s): if it is "
                "registered now, it is not removed at the end. Set XDG_STATE_HOME or TMPDIR to "
                "a directory of this user.",
                consumer_name,
                stream_arn,
                error,
            )
            return cls(None, None, clock)

    @property
    def created_arn(self) -> str | None:
        """The ARN of the consumer that this machine registered and that is not removed yet."""
        if self._files is None:
            return None
        try:
            return self._files.read_created_arn()
        except OSError as error:
            _LOGGER.warning("%s cannot be read: %s", self._files.record, error)
            return None

    def note_created(self, consumer_arn: str) -> None:
        """Record, within :meth:`registering`, that this process registered ``consumer_arn``."""
        try:
            if self._files is not None:
                self._files.write_created_arn(consumer_arn)
                return
        except OSError as error:
            _LOGGER.warning("%s cannot be written: %s", self._files, error)
        _LOGGER.warning(
            "The stream consumer that was registered will not be removed. Once nothing uses it, "
            "remove it: %s",
            deregister_command(consumer_arn),
        )

    @asynccontextmanager
    async def registering(self) -> AsyncIterator[None]:
        """Keep the other processes from registering this consumer, for a few calls only."""
        lock = None
        if self._files is not None:
            try:
                lock = await _take(self._files.registration, self._clock, exclusive=True)
            except OSError as error:
                _LOGGER.warning("%s cannot be locked: %s", self._files.registration, error)
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
        if self._users is None or self._files is None:
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
            self._files.users,
            self._files.consumer_name,
            deregister_by_name_command(self._files.stream_arn, self._files.consumer_name),
        )
        return False

    async def _remove(self, remove: Callable[[str], Awaitable[bool | None]]) -> None:
        consumer_arn = self.created_arn
        if self._files is None or (consumer_arn and await remove(consumer_arn) is False):
            return
        try:
            self._files.remove()
        except OSError as error:
            _LOGGER.warning("%s cannot be removed: %s", self._files, error)


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
