"""A callback in threads for each record or batch: ``scan(properties, process)``."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from typing import Any, Unpack

from attrs import Factory, define, field

from kinesis_publishers.clock import Clock
from kinesis_publishers.config import (
    AggregationMode,
    OnInvalidAggregate,
    Options,
    Properties,
    Scalar,
    SourceConfig,
)
from kinesis_publishers.engine.slow_calls import name_of
from kinesis_publishers.errors import AggregationError
from kinesis_publishers.events import EventSink
from kinesis_publishers.formats import Decoder, Format, decoder_of
from kinesis_publishers.model import Record, Shard, ShardKey
from kinesis_publishers.processing.calls import CallThreads, DeliveryCalls, Process, ScanResult
from kinesis_publishers.processing.decoded import decoded
from kinesis_publishers.processing.deliveries import HandedOut, HookCall, hooks_by_name
from kinesis_publishers.processing.error_policies import (
    DeadLetter,
    ErrorPolicy,
    StopOnError,
    check_callback,
    check_policy,
    last_policy,
    next_step,
    place_of,
)
from kinesis_publishers.processing.feed import DeliveryFeed
from kinesis_publishers.processing.signals import stopped_by_signals, stopped_with_others
from kinesis_publishers.tasks import TaskScope, wait_for_event
from kinesis_publishers.tracebacks import ShortTraceback

_LOGGER = logging.getLogger(__name__)

_STOP_CHECK_SECONDS = 0.1


def scan(
    properties: Properties | Mapping[str, Scalar] | None = None,
    process: Process | None = None,
    *,
    decode: str | Format[Any] | Decoder | None = None,
    per_batch: bool = False,
    workers: int = 1,
    on_error: ErrorPolicy | None = None,
    on_shard_end: Callable[[Shard], None] | None = None,
    on_shard_lost: Callable[[ShardKey], None] | None = None,
    on_watermark: Callable[[datetime], None] | None = None,
    stop: threading.Event | None = None,
    events: EventSink | None = None,
    clock: Clock | None = None,
    **options: Unpack[Options],
) -> None:
    """Call ``process`` for each record of the configured streams, until told to stop.

    It returns after SIGTERM, when ``process`` returns ``ScanResult.STOP``, or soon after ``stop``
    is set: running calls are finished, and their checkpoints written. So they are after Ctrl-C,
    which then raises ``KeyboardInterrupt``. A second signal has its usual effect at once.

    When ``process`` returns, its record has been processed; with ``kinesis.checkpoint.application``
    the next run continues after it. The records of a shard come in their order.

    The arguments that are not below are those of ``read``. Here ``on_shard_end``,
    ``on_shard_lost`` and ``on_watermark`` are plain functions; they run in threads, too.

    Args:
        process: takes a :class:`~kinesis_publishers.Record`, in a thread of its own, and returns
            ``None`` or a :class:`ScanResult`.
        decode: as of ``read``; what it raises counts as raised by ``process``.
        per_batch: let it take a :class:`~kinesis_publishers.RecordBatch` of one shard instead. A
            batch for which it raises is halved until a record is alone with the error.
        workers: how many calls may run at once, each for another shard; with more than one
            ``process`` must be safe to call from several threads.
        on_error: what follows when ``process``, or a ``WatermarkAssigner``, raises; the default is
            :class:`StopOnError`.
        on_shard_end: as of ``read``; no call that begins later overtakes it.
        stop: ends the scan once it is set, from any thread: only the main thread gets signals.

    Raises:
        ConfigError: the properties cannot work; every problem is named.
        Exception: what ``process`` has raised, as the error policy says.
        KinesisPublishersError: reading, or writing checkpoints, has failed.
    """
    if process is None:
        raise TypeError(
            "scan needs a function to call for each record: scan(properties, process), or "
            "scan(process=process, stream=...)"
        )
    check_callback("process", process)
    hooks = hooks_by_name(on_shard_end, on_shard_lost, on_watermark)
    for hook, function in hooks.items():
        check_callback(hook, function)
    if per_batch and decode is not None:
        raise ValueError("decode is for single records: decode the batch in process")
    name = name_of(process)
    if decoder := decoder_of(decode):
        process = _with_values(process, decoder)
    on_error = on_error or StopOnError()
    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    if stop is not None and not callable(getattr(stop, "is_set", None)):
        raise TypeError(f"stop must be a threading.Event, not {stop!r}")
    with ShortTraceback():
        properties = Properties.of(properties, options)
        check_policy(on_error, properties)
    on_invalid = properties.get(SourceConfig.on_invalid_aggregate)
    if on_invalid is OnInvalidAggregate.DEAD_LETTER and not per_batch:
        process, properties = _with_dead_letters(process, properties, on_error)
    scanner = _Scanner(
        process,
        name,
        DeliveryFeed.from_properties(properties, hooks, events, clock),
        hooks,
        workers=workers,
        per_batch=per_batch,
        on_error=on_error,
        stop=stop,
    )
    _check_no_loop()
    with ShortTraceback():
        asyncio.run(scanner.run())
        if scanner.is_interrupted:
            raise KeyboardInterrupt


def _with_values(process: Process, decode: Decoder) -> Process:
    return lambda record: process(decoded(record, decode))


def _with_dead_letters(
    process: Process, properties: Properties, policy: ErrorPolicy
) -> tuple[Process, Properties]:
    """Make ``process`` fail for invalid aggregates, which it receives undecoded."""
    if not isinstance(last_policy(policy), DeadLetter):
        return process, properties  # Opening the fetcher refuses them.
    # With OFF every aggregate is delivered as it is, valid or not.
    is_off = properties.get(SourceConfig.aggregation) is AggregationMode.OFF

    def process_valid(record: Record) -> ScanResult | None:
        if record.is_undecoded_aggregate and not is_off:
            raise AggregationError("the record begins like an aggregate and is not a valid one")
        return process(record)

    plain = {SourceConfig.on_invalid_aggregate: OnInvalidAggregate.PLAIN.value}
    return process_valid, properties.with_values(plain)


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "scan blocks, and this thread runs an event loop: use `async for record in "
        "kinesis_publishers.read(properties)`, or `await asyncio.to_thread(scan, ...)`"
    )


@define(eq=False)
class _Scanner:
    """Works through deliveries with a callback; the arguments are those of :func:`scan`."""

    _process: Process
    _name: str
    _feed: DeliveryFeed
    _hooks: Mapping[str, Callable[[Any], None]]
    _workers: int = field(kw_only=True)
    _per_batch: bool = field(kw_only=True)
    _on_error: ErrorPolicy = field(kw_only=True)
    _stop_flag: threading.Event | None = field(kw_only=True, alias="stop")
    # By Ctrl-C.
    is_interrupted: bool = field(default=False, init=False)
    _is_open: bool = field(default=False, init=False)
    _is_stopping: asyncio.Event = field(factory=asyncio.Event, init=False)
    # One worker at a time takes what comes next, and handles the end of a shard meanwhile.
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _running: set[DeliveryCalls] = field(factory=set, init=False)
    _threads: CallThreads = field(
        init=False, default=Factory(lambda self: CallThreads(self._workers), takes_self=True)
    )

    async def run(self) -> None:
        with self._threads:
            async with TaskScope() as scope:
                reading = scope.spawn(self._read(), name="scan")
                if self._stop_flag is not None:
                    watching = self._watch_flag(self._stop_flag, reading)
                    watcher = scope.spawn(watching, name="wait for stop")
                    reading.add_done_callback(lambda _: watcher.cancel())

    async def _read(self) -> None:
        async with AsyncExitStack() as stack:
            with stopped_with_others(self._stop_by):
                await stack.enter_async_context(self._feed)
            self._is_open = True
            if not self._feed.is_stopping:
                stack.enter_context(stopped_by_signals(self._stop_by))
            await self._run_workers()

    async def _run_workers(self) -> None:
        async with TaskScope() as watching:
            watching.spawn(self._feed.watch_store(), name="watch the checkpoint store")
            async with TaskScope() as scope:
                for number in range(self._workers):
                    scope.spawn(self._work(), name=f"process records ({number})")
            watching.cancel()

    async def _watch_flag(self, flag: threading.Event, reading: asyncio.Task[None]) -> None:
        # Another thread that sets the flag does not wake the event loop.
        while not flag.is_set():
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
        for calls in self._running:
            calls.stop()

    async def _work(self) -> None:
        while True:
            async with self._turn:
                while isinstance(item := await self._feed.next(), HookCall):
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
        name = f"{call.hook} for {call.subject}"
        with self._feed.slow_calls.watching(name, call.shard):
            await self._threads.call(name, hook, call.subject, then=record_end)

    async def _work_through(self, handed: HandedOut) -> None:
        batch, holds = handed.delivery.batch, self._feed.deliveries.is_held_back(handed)
        calls = DeliveryCalls(
            self._process, batch, self._per_batch, holds, lambda: self._feed.may_continue(handed)
        )

        def note() -> None:
            self._feed.deliveries.record(handed, calls.processed)

        failures, failed_at, watching = 0, "", self._feed.slow_calls.watching
        while not (calls.is_done or self._is_stopping.is_set()):
            if not await self._feed.permission(handed):
                break
            # A call for a batch takes many records at once.
            taken = partial(int, calls.taken) if self._per_batch else lambda: calls.taken
            with watching(self._name, batch.shard.key, batch, taken):
                error = await self._run_calls(calls, note)
            if calls.wants_no_more:
                self._stop()
            if error is not None:
                place = place_of(calls.current)
                failures, failed_at = failures + 1 if place == failed_at else 1, place
                await self._settle(calls, note, error, failures)
        if calls.is_done or handed.is_cut:
            self._feed.deliveries.finish(handed)

    async def _run_calls(self, calls: DeliveryCalls, note: Callable[[], None]) -> Exception | None:
        """Run calls in a thread; ``note`` what they have processed, even if this is cancelled."""
        self._running.add(calls)
        self._feed.notes.add(note)
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
        finally:
            self._running.discard(calls)
            self._feed.notes.discard(note)
            note()

    async def _settle(
        self, calls: DeliveryCalls, note: Callable[[], None], error: Exception, failures: int
    ) -> None:
        """Do what the error policy says after ``failures`` failed calls in a row."""
        place = place_of(calls.current)
        step = next_step(self._on_error, error, failures, place, parts=calls.parts)
        if not isinstance(step, DeadLetter):
            await wait_for_event(self._is_stopping, timeout_seconds=step, clock=self._feed.clock)
            return

        def pass_over() -> None:
            calls.pass_over()
            note()

        name, key = f"put of DeadLetter for {place}", calls.batch.shard.key
        with self._feed.slow_calls.watching(name, key):
            await self._threads.call(name, step.put_aside, calls.current, error, then=pass_over)
