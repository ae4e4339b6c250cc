"""Calls a function for what is handed out: in threads, or on the event loop if it is async."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from attrs import define, field

from kinesis_publishers.errors import (
    CheckpointError,
    NotProcessedError,
    ReaderReplacedError,
    StaleCheckpointError,
)
from kinesis_publishers.model import Record, RecordBatch
from kinesis_publishers.processing.calls import CallThreads, DeliveryCalls, Process
from kinesis_publishers.processing.checkpointing import AsyncCheckpointing, with_checkpointer
from kinesis_publishers.processing.deliveries import EMPTY, STOP, HookCall
from kinesis_publishers.processing.error_policies import (
    DeadLetter,
    ErrorPolicy,
    next_step,
    place_of,
)
from kinesis_publishers.processing.feed import DeliveryFeed
from kinesis_publishers.processing.handed_out import Cutting, HandedOut
from kinesis_publishers.processing.signals import stopped_by_signals
from kinesis_publishers.tasks import TaskScope, wait_for_event

_LOGGER = logging.getLogger(__name__)

_STOP_CHECK_SECONDS = 0.1
# How often the calls of one part are repeated because their transactions were refused.
_MOST_STALE = 100


@define(eq=False)
class Scanner:
    """Works through deliveries with a callback.

    Attributes:
        is_interrupted: whether Ctrl-C has ended it.
    """

    _process: Process
    # Makes of it what is called, and what that fails for.
    _wrap: Callable[[Process], Process]
    _name: str
    _feed: DeliveryFeed
    _hooks: Mapping[str, Callable[..., Any]]
    _is_async: bool = field(kw_only=True)
    _takes_checkpointer: bool = field(kw_only=True)
    _cutting: Cutting = field(kw_only=True)
    _on_error: ErrorPolicy = field(kw_only=True)
    _is_too_old: Callable[[Record], bool] | None = field(kw_only=True)
    _stop_flag: threading.Event | None = field(kw_only=True, alias="stop")
    _pause_flag: threading.Event | None = field(kw_only=True, alias="pause")
    is_interrupted: bool = field(default=False, init=False)
    _is_open: bool = field(default=False, init=False)
    _last_call: HookCall | None = field(default=None, init=False)
    _is_stopping: asyncio.Event = field(factory=asyncio.Event, init=False)
    # One worker at a time takes what comes next, and handles the end of a shard meanwhile.
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _threads: CallThreads = field(init=False)

    async def run(self) -> None:
        with CallThreads(self._cutting.workers) as self._threads:
            async with TaskScope() as scope:
                reading = scope.spawn(self._read(), name="scan")
                if self._stop_flag is not None or self._pause_flag is not None:
                    watcher = scope.spawn(self._watch_flags(reading), name="wait for stop")
                    reading.add_done_callback(lambda _: watcher.cancel())

    async def _read(self) -> None:
        async with AsyncExitStack() as stack:
            stack.enter_context(stopped_by_signals(self._stop_by, is_open=lambda: self._is_open))
            await stack.enter_async_context(self._feed)
            self._is_open = True
            await self._run_workers()

    async def _run_workers(self) -> None:
        async with TaskScope() as watching:
            watching.spawn(self._feed.watch_store(), name="watch the checkpoint store")
            async with TaskScope() as scope:
                for number in range(self._cutting.workers):
                    scope.spawn(self._work(), name=f"process records ({number})")
            if self._last_call is not None:
                await self._call_hook(self._last_call)
            watching.cancel()

    async def _watch_flags(self, reading: asyncio.Task[None]) -> None:
        # Another thread that sets a flag does not wake the event loop.
        while self._stop_flag is None or not self._stop_flag.is_set():
            if self._pause_flag is not None and not self._feed.is_stopping:
                self._feed.deliveries.pause(is_paused=self._pause_flag.is_set())
            await self._feed.clock.sleep(_STOP_CHECK_SECONDS)
        if not self._is_open:
            # Opening may take as long as the store's retries.
            reading.cancel()
        self._stop()

    def _stop_by(self, one: signal.Signals) -> None:
        self.is_interrupted = one is signal.SIGINT
        self._stop()

    def _stop(self) -> None:
        self._feed.stop()
        self._is_stopping.set()

    async def _work(self) -> None:
        while True:
            async with self._turn:
                while isinstance(item := await self._feed.next(), HookCall):
                    if item.hook == STOP:
                        # Other workers may still begin what must be finished.
                        self._last_call = item
                    else:
                        await self._call_hook(item)
            if item is None:
                return
            await self._work_through(item)

    async def _call_hook(self, call: HookCall) -> None:
        hook = self._hooks.get(call.hook)
        record_end = partial(self._feed.deliveries.record_end, call, was_told=hook is not None)
        if hook is None:
            record_end()
            return
        name = " for ".join([call.hook, *map(str, call.arguments)])
        with self._feed.slow_calls.watching(name, call.shard):
            if call.hook == EMPTY:
                await self._process_empty(call.subject)
            else:
                await self._threads.call(name, hook, *call.arguments, then=record_end)

    async def _process_empty(self, batch: RecordBatch) -> None:
        calls, failures = DeliveryCalls(self._process, batch, per_batch=True), 0
        while not (calls.is_done or (failures and self._is_stopping.is_set())):
            if (error := await self._run_calls(calls, lambda: None)) is not None:
                failures += 1
                await self._settle(calls, lambda: None, error, failures, lambda: False)
        if calls.wants_no_more:
            self._stop()

    async def _work_through(self, handed: HandedOut) -> None:
        feed, works = self._feed, self._feed.deliveries.shards[handed.key]
        process, checkpointing = self._process, None
        if self._takes_checkpointer:
            checkpointing = AsyncCheckpointing(
                feed.deliveries, lambda: (handed, calls.next_index + 1)
            )
            process = with_checkpointer(process, checkpointing, asyncio.get_running_loop())
        calls = DeliveryCalls(
            self._wrap(process),
            handed.batch,
            self._cutting.per_batch,
            works.is_held_back,
            partial(feed.begin, handed),
            self._is_too_old,
            not self._cutting.overlaps,
        )

        def note() -> None:
            feed.deliveries.record(handed, calls.processed, calls.scattered)

        def is_followed() -> bool:
            # If this were left to the next run, so would those behind it that have begun.
            works.cut()
            return handed.may_begin(calls.taken)

        failures, failed_at, stale = 0, "", 0
        while not calls.is_done and await feed.permission(handed, calls.next_index):
            # A call for a batch takes many records at once.
            taken = partial(int, calls.taken) if self._cutting.per_batch else lambda: calls.taken
            with feed.slow_calls.watching(self._name, handed.key, handed.batch, taken):
                error = await self._run_calls(calls, note)
            if calls.wants_no_more:
                # What must be finished follows.
                calls.wants_no_more = False
                self._stop()
            if error is not None:
                handed.leave(max(calls.taken, *(one + 1 for one in calls.scattered), 0))
                if checkpointing is not None and checkpointing.failure is not None:
                    raise checkpointing.failure
                if isinstance(error, ReaderReplacedError):
                    raise error
                if isinstance(error, NotProcessedError) and handed.noted > calls.taken:
                    raise CheckpointError(
                        f"The callback has returned {place_of(calls.current)} as failed, after "
                        "it had recorded them as processed: they are not read again. Write a "
                        "checkpoint only if no record has failed"
                    ) from error
                if isinstance(error, StaleCheckpointError) and stale < _MOST_STALE:
                    # It has rolled its transaction back. Another worker has the shard, or has asked
                    # for it meanwhile.
                    stale += 1
                    continue
                place = place_of(calls.current)
                failures, failed_at = failures + 1 if place == failed_at else 1, place
                is_aside = await self._settle(calls, note, error, failures, is_followed)
                if self._is_stopping.is_set() and not (is_aside or is_followed()):
                    break
        if not calls.is_done:
            handed.leave_rest(calls.taken)
        feed.deliveries.finish(handed)

    async def _run_calls(self, calls: DeliveryCalls, note: Callable[[], None]) -> Exception | None:
        """Run calls; ``note`` what they have processed, even if this is cancelled."""
        self._feed.notes.add(note)
        try:
            if self._is_async:
                return await calls.run_async()
            return await self._run_in_thread(calls)
        finally:
            self._feed.notes.discard(note)
            note()

    async def _run_in_thread(self, calls: DeliveryCalls) -> Exception | None:
        running = self._threads.start(calls.run)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # A thread cannot be interrupted: it ends after the running call.
            calls.stop()
            await asyncio.wait([running])
            if (error := running.result()) is not None:
                # The scan raises what has ended it, not this.
                _LOGGER.error(
                    "The callback has failed for %s, too: %r", place_of(calls.current), error
                )
            raise

    async def _settle(
        self,
        calls: DeliveryCalls,
        note: Callable[[], None],
        error: Exception,
        failures: int,
        is_followed: Callable[[], bool],
    ) -> bool:
        """Do what the error policy says; return whether the records were put aside."""
        place = place_of(calls.current)
        step = next_step(self._on_error, error, failures, place, parts=calls.parts)
        if not isinstance(step, DeadLetter):
            clock = self._feed.clock
            is_stopping = await wait_for_event(self._is_stopping, timeout_seconds=step, clock=clock)
            if is_stopping and is_followed():
                await clock.sleep(step)
            return False

        def pass_over() -> None:
            calls.pass_over()
            note()

        name, key = f"put of DeadLetter for {place}", calls.batch.shard.key
        with self._feed.slow_calls.watching(name, key):
            await self._threads.call(name, step.put_aside, calls.current, error, then=pass_over)
        return True
