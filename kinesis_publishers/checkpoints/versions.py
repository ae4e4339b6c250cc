"""What stores have in common: numbered writes, of which stale ones are refused, and failures."""

from __future__ import annotations

import os
import re
import secrets
import socket
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from attrs import astuple, define, field, frozen

from kinesis_publishers.abc import CheckpointStore, CheckpointStoreContext
from kinesis_publishers.errors import (
    ClosedError,
    KinesisPublishersError,
    ResourceInUseError,
    ServiceError,
    StaleCheckpointError,
)
from kinesis_publishers.model import Checkpoint, CheckpointVersion, CheckpointWrite, ShardKey
from kinesis_publishers.retry import call_with_retries

_T = TypeVar("_T")

# Made at once, and locked together: few enough that other workers do not wait for long.
_CHANGES_AT_ONCE: Final = 500


@frozen(kw_only=True)
class Attempt:
    """One write or removal before it is tried.

    Attributes:
        expected: the version that the caller knows.
        version: the version that a write makes.
        first_unanswered: the number of the earliest own write whose outcome is unknown; this one,
            if all earlier outcomes are known.
    """

    shard: ShardKey
    expected: CheckpointVersion | None
    version: CheckpointVersion
    first_unanswered: int

    def replaces(self, stored: CheckpointVersion | None) -> bool:
        """Return whether ``stored`` is the expected version, or an own one after it.

        An own write with a *higher* number than this one is neither: this is then an old request
        that has been under way for long, and must not undo what came after it.
        """
        if stored == self.expected:
            return True
        return (
            stored is not None
            and stored.writer == self.version.writer
            and self.first_unanswered <= stored.number <= self.version.number
        )

    def refusal(
        self, stored: CheckpointVersion | None, written_at: str | None = None
    ) -> Refusal | None:
        """Return the refusal where ``stored`` must stay; ``None`` where this may replace it."""
        if self.replaces(stored):
            return None
        return Refusal(attempt=self, stored=stored, written_at=written_at)


@define
class WriteBook:
    """Lets a store tell its own writes from those of others.

    A store asks for an :class:`Attempt` before it writes, replaces what is stored only if the
    attempt :meth:`~Attempt.replaces` it, and confirms what its caller learns.

    Attributes:
        writer: a unique name that shows host and process.
    """

    writer: str = field(
        factory=lambda: f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(6)}"
    )
    # Numbers are never reused, even after a removal: another reader may know the old one.
    _last: dict[ShardKey, int] = field(factory=dict, init=False)
    _unanswered: dict[ShardKey, int] = field(factory=dict, init=False)

    def attempt(self, shard: ShardKey, expected: CheckpointVersion | None) -> Attempt:
        """Remember a write before it is tried: it may happen without an answer."""
        known = 0 if expected is None else expected.number
        number = max(known, self._last.get(shard, 0)) + 1
        self._last[shard] = number
        return Attempt(
            shard=shard,
            expected=expected,
            version=CheckpointVersion(number=number, writer=self.writer),
            first_unanswered=self._unanswered.setdefault(shard, number),
        )

    def attempt_joined(self, shard: ShardKey, expected: CheckpointVersion | None) -> Attempt:
        """Return a write in a transaction of the application, whose outcome the caller learns.

        Until then no later attempt replaces what it may have written.
        """
        attempt = self.attempt(shard, expected)
        del self._unanswered[shard]
        return attempt

    def confirm(self, attempts: Iterable[Attempt]) -> dict[ShardKey, CheckpointVersion]:
        """Confirm writes to the caller; return their versions."""
        versions = {}
        for attempt in attempts:
            self._unanswered.pop(attempt.shard, None)
            versions[attempt.shard] = attempt.version
        return versions


@frozen(kw_only=True)
class Refusal:
    """A write that was refused because of ``stored``, or because nothing is stored (``None``)."""

    attempt: Attempt
    stored: CheckpointVersion | None
    written_at: str | None = None

    def __str__(self) -> str:
        expected = self.attempt.expected
        known = "this reader found none" if expected is None else f"this reader knows {expected}"
        if self.stored is None:
            return f"another reader, or an operator, has removed it ({known})"
        when = f" at {self.written_at}" if self.written_at else ""
        return f"another reader has written it{when} (version {self.stored}; {known})"


Change: TypeAlias = "tuple[Attempt, Checkpoint | None]"
"""A write, or a removal, which has no checkpoint."""


class Storage:
    """Where a store has its rows, which its ``str`` says; what is not overridden does nothing."""

    async def open(self, calls: StoreCalls) -> None:
        """Connect, and create what is missing, by ``calls``."""

    async def disconnect(self) -> None:
        """Drop all connections: after a failover the address leads to another server."""

    async def close(self) -> None:
        """Release what :meth:`open` took, even if it has failed."""
        await self.disconnect()


@define(eq=False)
class StoreCalls:
    """Makes the calls of a store while it is open, with retries."""

    _storage: Storage
    _context: CheckpointStoreContext
    is_open: bool = field(default=False, init=False)
    _has_answered: bool = field(default=False, init=False)

    def check_open(self) -> None:
        """Check that the store may be called; raises ``ClosedError``."""
        if not self.is_open:
            raise ClosedError(f"The store of checkpoints in {self._storage} is not open.")

    async def make(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Make ``call`` until the policy of the context allows no more, or it fails for good."""

        async def attempt() -> _T:
            self.check_open()
            try:
                return await call()
            except ServiceError as error:
                if not isinstance(error, ResourceInUseError):
                    await self._storage.disconnect()
                raise

        answer = await call_with_retries(
            attempt,
            policy=self._context.retry,
            clock=self._context.clock,
            events=self._context.events,
            is_start=not self._has_answered,
        )
        self._has_answered = True
        return answer


class VersionedStore(CheckpointStore):
    """What our stores have in common: they differ in their storage, and in how they change it."""

    def __init__(self, context: CheckpointStoreContext, storage: Storage) -> None:
        self._context, self.storage = context, storage
        self._calls = StoreCalls(storage, context)
        self._book = WriteBook()

    def __str__(self) -> str:
        return str(self.storage)

    async def open(self) -> None:
        self._calls.is_open = True
        await self.storage.open(self._calls)

    async def close(self) -> None:
        self._calls.is_open = False
        await self.storage.close()

    async def save(self, writes: Sequence[CheckpointWrite]) -> dict[ShardKey, CheckpointVersion]:
        attempts = [self._book.attempt(write.shard, write.expected) for write in writes]
        checkpoints = [write.checkpoint for write in writes]
        if refusals := await _apply_all(self._apply, zip(attempts, checkpoints, strict=True)):
            refused = {one.attempt.shard for one in refusals}
            # Not confirmed: a caller that does not look at it may write on the old versions.
            written = {one.shard: one.version for one in attempts if one.shard not in refused}
            raise _stale(self, self._context.application, refusals, written)
        return self._book.confirm(attempts)

    async def remove(self, versions: Mapping[ShardKey, CheckpointVersion]) -> None:
        attempts = [self._book.attempt(shard, version) for shard, version in versions.items()]
        refusals = await _apply_all(self._apply, [(one, None) for one in attempts])
        # What has been removed already need not be removed.
        if refusals := [one for one in refusals if one.stored is not None]:
            raise _stale(self, self._context.application, refusals)
        self._book.confirm(attempts)

    @abstractmethod
    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        """Make every change whose attempt replaces what is stored; return the others.

        There are 500 changes at most, in the order of their shards.
        """


async def _apply_all(
    apply: Callable[[Sequence[Change]], Awaitable[list[Refusal]]], changes: Iterable[Change]
) -> list[Refusal]:
    ordered = sorted(changes, key=lambda change: astuple(change[0].shard))
    refusals = []
    for first in range(0, len(ordered), _CHANGES_AT_ONCE):
        refusals += await apply(ordered[first : first + _CHANGES_AT_ONCE])
    return refusals


def _stale(
    store: CheckpointStore,
    application: str,
    refusals: Sequence[Refusal],
    written: Mapping[ShardKey, CheckpointVersion] | None = None,
) -> StaleCheckpointError:
    shard = refusals[0].attempt.shard
    others = f", and {len(refusals) - 1} other shards" if len(refusals) > 1 else ""
    return StaleCheckpointError(
        f"The checkpoint of shard {shard.shard_id} of {shard.stream_arn}{others}, application "
        f"{application!r}, in {store}: {refusals[0]}. Another reader has the same "
        "kinesis.checkpoint.application: stop one of them, or give each its own name; then "
        "start again from what is stored.",
        written=written,
    )


Meaning: TypeAlias = "tuple[str, type[KinesisPublishersError], str]"
"""A pattern for the code, the classes and the text of a driver's error; our error, and advice."""


def failure_of(
    where: object, cause: BaseException, code: object, meanings: Iterable[Meaning]
) -> KinesisPublishersError:
    """Return what the error of a driver means: the first of ``meanings`` whose pattern is found."""
    name = str(code or type(cause).__name__)
    classes = " ".join(one.__name__ for one in type(cause).__mro__)
    text = str(cause.args[-1] if cause.args else "no answer in time").rstrip(".")
    kind, advice = next(
        (kind, advice)
        for pattern, kind, advice in meanings
        if re.search(pattern, f"{name} {classes} {text}")
    )
    message = f"{where} cannot be used ({name}: {text}): {advice}."
    if issubclass(kind, ServiceError):
        return kind(message, operation="the call about checkpoints", code=name)
    return kind(message)


def place_of(url: str) -> str:
    """Return what may be shown of a URL: neither user and password nor parameters."""
    if (parts := urlsplit(url)).scheme == "sqlite":
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
