"""Works through deliveries with a callback in threads: order, retries, ends of shards, stopping."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from attrs import Factory, define, field

from kinesis_publishers.model import RecordBatch, SequenceNumber
from kinesis_publishers.processing.calls import DeliveryCalls, Process
from kinesis_publishers.processing.error_policies import (
    ErrorPolicy,
    RetryOnError,
    StopOnError,
)
from kinesis_publishers.processing.feed import DeliveryFeed, EndOfShard, HandedOut, OpenFetcher
from kinesis_publishers.processing.signals import stopped_by
from kinesis_publishers.tasks import TaskScope, wait_for_event

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.model import Record, Shard

__all__ = ["OnShardClosed", "Scanner"]

_LOGGER = logging.getLogger(__name__)

_T = TypeVar("_T")

_STOP_CHECK_SECONDS = 0.1

OnShardClosed: TypeAlias = "Callable[[Shard], None]"


@define(eq=False)
class Scanner:
    """Works through deliveries with a callback.

    Args:
        process: takes a record or a batch.
        workers: how many calls may run at once.
        per_batch: whether it takes batches.
        on_error: what follows when it raises.
        on_shard_end: is called at the end of a shard.
        stop: ends it once it is set, from any thread.
        clock: the only source of time.

    Attributes:
        was_interrupted: whether Ctrl-C has ended it.
    """

    _process: Process
    _workers: int = field(kw_only=True)
    _per_batch: bool = field(kw_only=True)
    _on_error: ErrorPolicy = field(kw_only=True)
    _on_shard_end: OnShardClosed | None = field(kw_only=True)
    _stop_flag: threading.Event | None = field(kw_only=True, alias="stop")
    _clock: Clock = field(kw_only=True)
    was_interrupted: bool = field(default=False, init=False)
    _is_stopping: asyncio.Event = field(factory=asyncio.Event, init=False)
    # What comes next is taken by one worker at a time, and the end of a shard seen to meanwhile.
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _running: set[DeliveryCalls] = field(factory=set, init=False)
    # Not the loop's own threads: these are few, and resolving a host name waits for one of them.
    _threads: ThreadPoolExecutor = field(
        init=False,
        default=Factory(
            lambda self: ThreadPoolExecutor(self._workers, "kinesis-scan"), takes_self=True
        ),
    )

    async def run(self, open_fetcher: OpenFetcher, signals: Iterable[signal.Signals]) -> None:
        """Read and call until stopped, by one of ``signals`` for instance.

        Raises:
            Exception: as :func:`scan`.
        """
        with self._threads:
            await self._run(open_fetcher, signals)

    async def _run(self, open_fetcher: OpenFetcher, signals: Iterable[signal.Signals]) -> None:
        async with DeliveryFeed(open_fetcher) as feed:

            def stop(one: signal.Signals) -> None:
                self.was_interrupted |= one is signal.SIGINT
                self._stop(feed)

            with stopped_by(*signals, stop=stop):
                async with TaskScope() as watching:
                    watching.spawn(self._watch_flag(feed), name="wait for stop")
                    async with TaskScope() as scope:
                        for number in range(self._workers):
                            scope.spawn(self._work(feed), name=f"process records ({number})")
                    watching.cancel()

    async def _watch_flag(self, feed: DeliveryFeed) -> None:
        if self._stop_flag is None:
            return
        # Nothing in another thread tells an event loop of it.
        while not self._stop_flag.is_set():
            await self._clock.sleep(_STOP_CHECK_SECONDS)
        self._stop(feed)

    def _stop(self, feed: DeliveryFeed) -> None:
        feed.stop()
        self._is_stopping.set()
        for calls in self._running:
            calls.stop()

    async def _work(self, feed: DeliveryFeed) -> None:
        while (handed := await self._next(feed)) is not None:
            await self._work_through(feed, handed)

    async def _next(self, feed: DeliveryFeed) -> HandedOut | None:
        async with self._turn:
            while isinstance(item := await feed.next(), EndOfShard):
                if self._on_shard_end is not None:
                    await self._call("on_shard_end", self._on_shard_end, item.status.shard)
                feed.record_end(item, was_told=self._on_shard_end is not None)
            return item

    async def _work_through(self, feed: DeliveryFeed, handed: HandedOut) -> None:
        loop, batch = asyncio.get_running_loop(), handed.delivery.batch

        def note(processed: int) -> None:
            loop.call_soon_threadsafe(feed.record, handed, processed)

        calls = DeliveryCalls(self._process, batch, self._per_batch, self._clock, note)
        failures, failed_at = 0, 0
        while not (calls.is_done or self._is_stopping.is_set()):
            error = await self._run_calls(feed, handed, calls)
            if calls.wants_no_more:
                self._stop(feed)
            if error is not None:
                failures = failures + 1 if calls.taken == failed_at else 1
                failed_at = calls.taken
                await self._settle(calls, error, failures)
                feed.record(handed, calls.processed)
        if calls.is_done:
            feed.finish(handed)

    async def _run_calls(
        self, feed: DeliveryFeed, handed: HandedOut, calls: DeliveryCalls
    ) -> Exception | None:
        """Run calls in a thread; record what they have processed, also if this is cancelled."""
        self._running.add(calls)
        running = self._start(calls.run)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # A thread cannot be interrupted: it ends after the call that it is at.
            calls.stop()
            await asyncio.wait([running])
            raise
        finally:
            self._running.discard(calls)
            feed.record(handed, calls.processed)

    def _start(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Run ``work`` in a thread, with the context variables that are set here."""
        context = contextvars.copy_context()
        return asyncio.get_running_loop().run_in_executor(self._threads, context.run, work)

    async def _settle(self, calls: DeliveryCalls, error: Exception, failures: int) -> None:
        """Do what the error policy says after a call that has failed so many times in a row."""
        place, policy = _place_of(calls.current), self._on_error
        error.add_note(f"It was raised by the callback for {place}.")
        if isinstance(policy, RetryOnError):
            if failures <= policy.policy.max_retries:
                delay = policy.policy.delay_seconds(failures - 1)
                _LOGGER.warning(
                    "The callback failed for %s, retry %d in %.1f s: %r",
                    place,
                    failures,
                    delay,
                    error,
                )
                await wait_for_event(self._is_stopping, timeout_seconds=delay, clock=self._clock)
                return
            policy = policy.otherwise
        if isinstance(policy, StopOnError):
            raise error
        _LOGGER.error("The callback failed for %s, which is put aside: %r", place, error)
        await self._call("put of DeadLetter", policy.put, calls.current, error)
        calls.put_aside()

    async def _call(self, name: str, callback: Callable[..., object], *arguments: object) -> None:
        """Call ``callback`` in a thread; refuse what would have to be awaited: it has done nothing.

        Which a lambda over an async function does not tell before it is called.
        """
        result = await self._start(partial(callback, *arguments))
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise TypeError(
                f"{name} returned {result!r}, which nobody awaits: scan calls it in a thread, and "
                "it has to be done when it returns"
            )


def _place_of(item: Record | RecordBatch) -> str:
    if isinstance(item, RecordBatch):
        return f"{len(item)} records of {item.shard} from {item.first_sequence_number} on"
    number = SequenceNumber(item.sequence_number, item.sub_sequence_number)
    return f"record {number} of {item.stream_name}/{item.shard_id}"
