"""Checkpoints that the user's function asks for: now, or in a transaction of its own."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from kinesis_publishers.errors import (
    ConfigError,
    KinesisPublishersError,
    ReaderReplacedError,
    StaleCheckpointError,
)
from kinesis_publishers.processing.deliveries import Deliveries, progress_within
from kinesis_publishers.processing.handed_out import HandedOut
from kinesis_publishers.progress.checkpointer import Checkpointer

_LOGGER = logging.getLogger(__name__)

_MOST_TRIES = 10
_REFUSED = (
    "The checkpoint was refused too often. Call it once in each transaction: roll this one back."
)


class AsyncCheckpointing:
    """Moves the checkpoint of the shard of the current records, on the event loop that reads.

    Args:
        current: returns what was handed out, and how many of its records are processed with the
            current ones.

    Attributes:
        refusal: why a checkpoint could not be part of a transaction, until :meth:`take_refusal`.
        failure: why it is not known how a transaction has ended: nothing may be tried again.
    """

    def __init__(self, deliveries: Deliveries, current: Callable[[], tuple[HandedOut, int]]):
        self._deliveries, self._current = deliveries, current
        # Of a transaction whose end is not known.
        self._joined: tuple[HandedOut, int] | None = None
        self.refusal: StaleCheckpointError | None = None
        self.failure: KinesisPublishersError | None = None

    def _required(self) -> Checkpointer:
        if (checkpointer := self._deliveries.checkpointer) is None:
            raise ConfigError(
                "There is no checkpoint to move: set kinesis.checkpoint.application "
                "(application=...)"
            )
        return checkpointer

    def stage(self) -> None:
        """Record the current records, and those before them in their shard, as processed."""
        self._required()
        self._deliveries.record(*self._current())

    async def checkpoint(self, transaction: Any = None, **request: Any) -> None:
        """Record the current records as processed, and write that.

        Without arguments it returns when the checkpoint is durable. In a transaction it is durable
        exactly if the transaction is committed: call it last, right before the commit. A worker
        that has lost the shard cannot commit.

        Args:
            transaction: with the store ``sql`` a ``Connection``, ``Session``, ``AsyncConnection``
                or ``AsyncSession`` of SQLAlchemy on the database of the checkpoints; with
                ``dynamodb`` a client of boto3 or aiobotocore.
            **request: for ``dynamodb`` the arguments of ``transact_write_items``, which this calls:
                ``TransactItems=[...]`` of at most 98 items.

        Raises:
            StaleCheckpointError: another reader has the shard: roll the transaction back.
            CheckpointError: the store has no such transactions.
            TypeError: it takes no such transaction.
        """
        if transaction is None:
            checkpointer = self._required()
            self.stage()
            await checkpointer.flush()
            return
        with self.refusing():
            for _ in range(_MOST_TRIES):
                made = self.join(transaction, request)()
                if await made if inspect.isawaitable(made) else made:
                    return
                await self.learn_refusal()
            raise StaleCheckpointError(_REFUSED)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Remember a refusal: the transaction is rolled back, and its records not processed."""
        try:
            yield
        except StaleCheckpointError as error:
            self.refusal = error
            raise

    def raise_refusal(self) -> None:
        """Raise a refusal that a function has caught: its records are not processed."""
        if self.refusal is not None:
            raise self.refusal

    def take_refusal(self) -> bool:
        """Return whether the current records are not processed because of a refusal.

        Raises:
            ReaderReplacedError: this reader must not process any.
        """
        refusal, self.refusal = self.refusal, None
        if isinstance(refusal, ReaderReplacedError):
            raise refusal
        return refusal is not None

    def join(self, transaction: Any, request: dict[str, Any]) -> Callable[[], Any]:
        """Return what writes the checkpoint in a transaction; it returns whether it was written."""
        handed, count = self._joined = self._current()
        progress = progress_within(handed.work.delivery, handed.place_of(count - 1) + 1)
        return self._required().join(handed.key, progress, transaction, request).execute

    async def learn_refusal(self) -> None:
        """Learn why that was refused; raise unless it may be tried again."""
        joined, self._joined = self._joined, None
        assert joined is not None
        await self._required().learn_refusal(joined[0].key)

    @property
    def is_open(self) -> bool:
        """Whether a transaction has, or was refused, the checkpoint, and that is not settled."""
        return self._joined is not None or self.refusal is not None

    async def settle(self, error: BaseException | None) -> bool:
        """Note the end of the transaction, if one has the checkpoint; return if it was committed.

        Without an ``error`` after it, it was. Else the store is asked: an answer may have been
        lost.
        """
        if self._joined is None:
            return False
        (handed, count), self._joined = self._joined, None
        is_committed = None if error is not None or self.refusal is not None else True
        try:
            if not await self._required().settle(handed.key, is_committed=is_committed):
                return False
        except StaleCheckpointError:
            return False  # Another worker has the shard, and begins behind what is committed.
        except KinesisPublishersError as failure:
            self.failure = failure
            raise
        if error is not None:
            _LOGGER.error(
                "The transaction with the checkpoint of %s was committed, and this was raised "
                "after it: %r. The records count as processed.",
                handed.key,
                error,
            )
        self._deliveries.record(handed, count)
        return True


class Checkpointing:
    """The same for functions in other threads, and for plain loops."""

    def __init__(
        self,
        checkpointing: AsyncCheckpointing,
        start: Callable[[Coroutine[Any, Any, Any]], Future[Any]],
    ) -> None:
        self.on_loop = checkpointing
        self._start = start

    def _wait(self, function: Callable[..., Any], *arguments: object) -> Any:
        async def call() -> Any:
            made = function(*arguments)
            return await made if inspect.isawaitable(made) else made

        return self._start(call()).result()

    def stage(self) -> None:
        """Record the current records, and those before them in their shard, as processed."""
        self._wait(self.on_loop.stage)

    def checkpoint(self, transaction: Any = None, **request: Any) -> None:
        """Do what :meth:`AsyncCheckpointing.checkpoint` does, with a transaction of this thread."""
        if transaction is None:
            self._wait(self.on_loop.checkpoint)
            return
        with self.on_loop.refusing():
            for _ in range(_MOST_TRIES):
                made = self._wait(self.on_loop.join, transaction, request)()
                if inspect.isawaitable(made):
                    raise TypeError(f"{transaction!r:.200} is for async functions: use a plain one")
                if made:
                    return
                self._wait(self.on_loop.learn_refusal)
            raise StaleCheckpointError(_REFUSED)


async def _is_committed(checkpointing: AsyncCheckpointing, error: BaseException) -> bool:
    """Return whether the transaction was committed before ``error``, which ends here then."""
    try:
        return await checkpointing.settle(error) and isinstance(error, Exception)
    except KinesisPublishersError as failure:
        error.add_note(f"It is not known whether its transaction was committed: {failure!r}")
        return False


def takes_checkpointer(process: Callable[..., Any]) -> bool:
    """Return whether a function wants a checkpointer, by the name of its parameter."""
    try:
        return "checkpointer" in inspect.signature(process).parameters
    except (TypeError, ValueError):
        return False


def with_checkpointer(
    process: Callable[..., Any], checkpointing: AsyncCheckpointing, loop: asyncio.AbstractEventLoop
) -> Callable[[Any], Any]:
    """Return ``process`` for the calls of one delivery, with its argument ``checkpointer``.

    What it raises after its transaction was committed is logged: its records are processed.
    """
    if inspect.iscoroutinefunction(process):

        async def process_async(item: Any) -> Any:
            result = checkpointing.refusal = None
            try:
                result = await process(item, checkpointer=checkpointing)
                checkpointing.raise_refusal()
            except BaseException as error:
                if not await _is_committed(checkpointing, error):
                    raise
            await checkpointing.settle(None)
            return result

        return process_async

    blocking = Checkpointing(checkpointing, partial(asyncio.run_coroutine_threadsafe, loop=loop))

    def process_in_thread(item: Any) -> Any:
        result = checkpointing.refusal = None
        try:
            result = process(item, checkpointer=blocking)
            checkpointing.raise_refusal()
        except BaseException as error:
            if not blocking._wait(_is_committed, checkpointing, error):
                raise
        if checkpointing.is_open:
            blocking._wait(checkpointing.settle, None)
        return result

    return process_in_thread
