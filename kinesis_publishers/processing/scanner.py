"""Works through deliveries with a callback in threads: order, retries, ends of shards, stopping."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, TypeAlias

from attrs import Factory, define, field

from kinesis_publishers.engine.delivery import ShardStatus
from kinesis_publishers.processing.calls import DeliveryCalls, Process
from kinesis_publishers.processing.error_policies import (
    DeadLetter,
    ErrorPolicy,
    next_step,
    place_of,
)
from kinesis_publishers.processing.feed import DeliveryFeed, HandedOut, OpenFetcher
from kinesis_publishers.processing.signals import stopped_by
from kinesis_publishers.processing.threads import CallThreads
from kinesis_publishers.tasks import TaskScope, wait_for_event

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.model import Shard

__all__ = ["OnShardClosed", "Scanner"]

_LOGGER = logging.getLogger(__name__)

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
    _feed: DeliveryFeed | None = field(default=None, init=False)
    _is_stopping: asyncio.Event = field(factory=asyncio.Event, init=False)
    # What comes next is taken by one worker at a time, and the end of a shard seen to meanwhile.
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _running: set[DeliveryCalls] = field(factory=set, init=False)
    _threads: CallThreads = field(
        init=False, default=Factory(lambda self: CallThreads(self._workers), takes_self=True)
    )

    async def run(self, open_fetcher: OpenFetcher, signals: Iterable[signal.Signals]) -> None:
        """Read and call until stopped, by one of ``signals`` for instance.

        Raises:
            Exception: as :func:`scan`.
        """
        with self._threads:
            async with TaskScope() as scope:
                reading = scope.spawn(self._read(open_fetcher, signals), name="scan")
                if self._stop_flag is not None:
                    watching = self._watch_flag(self._stop_flag, reading)
                    watcher = scope.spawn(watching, name="wait for stop")
                    reading.add_done_callback(lambda _: watcher.cancel())

    async def _read(self, open_fetcher: OpenFetcher, signals: Iterable[signal.Signals]) -> None:
        async with DeliveryFeed(open_fetcher, self._clock) as self._feed:
            with stopped_by(*signals, stop=self._stop_for_signal):
                await self._run_workers(self._feed)

    async def _run_workers(self, feed: DeliveryFeed) -> None:
        async with TaskScope() as watching:
            watching.spawn(feed.watch_store(), name="watch the store of checkpoints")
            async with TaskScope() as scope:
                for number in range(self._workers):
                    scope.spawn(self._work(feed), name=f"process records ({number})")
            watching.cancel()

    async def _watch_flag(self, flag: threading.Event, reading: asyncio.Task[None]) -> None:
        # Nothing in another thread tells an event loop of it.
        while not flag.is_set():
            await self._clock.sleep(_STOP_CHECK_SECONDS)
        if self._feed is None:
            # It is being opened, which may take as long as the store's retries.
            reading.cancel()
        self._stop()

    def _stop_for_signal(self, one: signal.Signals) -> None:
        self.was_interrupted |= one is signal.SIGINT
        self._stop()

    def _stop(self) -> None:
        if self._feed is not None:
            self._feed.stop()
        self._is_stopping.set()
        for calls in self._running:
            calls.stop()

    async def _work(self, feed: DeliveryFeed) -> None:
        while (handed := await self._next(feed)) is not None:
            await self._work_through(feed, handed)

    async def _next(self, feed: DeliveryFeed) -> HandedOut | None:
        async with self._turn:
            while isinstance(item := await feed.next(), ShardStatus):
                await self._see_to_end(feed, item)
            return item

    async def _see_to_end(self, feed: DeliveryFeed, end: ShardStatus) -> None:
        if self._on_shard_end is None:
            feed.record_end(end, was_told=False)
            return
        shard = end.shard
        await self._threads.call(
            f"on_shard_end for {shard}",
            self._on_shard_end,
            shard,
            then=lambda: feed.record_end(end, was_told=True),
        )

    async def _work_through(self, feed: DeliveryFeed, handed: HandedOut) -> None:
        batch, holds = handed.delivery.batch, feed.is_held_back(handed)
        calls = DeliveryCalls(self._process, batch, self._per_batch, holds)
        failures, failed_at = 0, 0
        while not (calls.is_done or self._is_stopping.is_set()):
            error = await self._run_calls(feed, handed, calls)
            if calls.wants_no_more:
                self._stop()
            if error is not None:
                failures = failures + 1 if calls.taken == failed_at else 1
                failed_at = calls.taken
                await self._settle(feed, handed, calls, error, failures)
        if calls.is_done:
            feed.finish(handed)

    async def _run_calls(
        self, feed: DeliveryFeed, handed: HandedOut, calls: DeliveryCalls
    ) -> Exception | None:
        """Run calls in a thread; record what they have processed, also if this is cancelled."""

        def note() -> None:
            feed.record(handed, calls.processed)

        self._running.add(calls)
        feed.notes.add(note)
        running = self._threads.start(calls.run)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # A thread cannot be interrupted: it ends after the call that it is at.
            calls.stop()
            await asyncio.wait([running])
            if (error := running.result()) is not None:
                # Something else has ended the scan, and is what it raises.
                _LOGGER.error(
                    "The callback has failed for %s, too: %r", place_of(calls.current), error
                )
            raise
        finally:
            self._running.discard(calls)
            feed.notes.discard(note)
            note()

    async def _settle(
        self,
        feed: DeliveryFeed,
        handed: HandedOut,
        calls: DeliveryCalls,
        error: Exception,
        failures: int,
    ) -> None:
        """Do what the error policy says after a call that has failed so many times in a row."""
        place = place_of(calls.current)
        step = next_step(self._on_error, error, failures, place)
        if not isinstance(step, DeadLetter):
            await wait_for_event(self._is_stopping, timeout_seconds=step, clock=self._clock)
            return

        def note() -> None:
            calls.pass_over()
            feed.record(handed, calls.processed)

        name = f"put of DeadLetter for {place}"
        await self._threads.call(name, step.put_aside, calls.current, error, then=note)
