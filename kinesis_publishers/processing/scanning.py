"""A callback for each record or batch: ``scan(properties, process)``."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from kinesis_publishers.clock import SystemClock
from kinesis_publishers.config import AggregationMode, OnInvalidAggregate, Properties, SourceConfig
from kinesis_publishers.errors import AggregationError
from kinesis_publishers.processing.calls import Process, ScanResult
from kinesis_publishers.processing.error_policies import (
    DeadLetter,
    ErrorPolicy,
    RetryOnError,
    StopOnError,
    check_callback,
    check_policy,
)
from kinesis_publishers.processing.feed import fetcher_opener
from kinesis_publishers.processing.scanner import OnShardClosed, Scanner
from kinesis_publishers.processing.signals import free_signals

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.events import EventSink
    from kinesis_publishers.model import Record

__all__ = ["ScanResult", "scan"]


def scan(
    properties: Properties | Mapping[str, str | int | float | bool],
    process: Process,
    *,
    per_batch: bool = False,
    workers: int = 1,
    on_error: ErrorPolicy | None = None,
    on_shard_end: OnShardClosed | None = None,
    stop: threading.Event | None = None,
    events: EventSink | None = None,
    clock: Clock | None = None,
) -> None:
    """Call ``process`` for each record of the configured streams, until told to stop.

    It returns after SIGTERM, when ``process`` returns ``ScanResult.STOP``, or soon after ``stop``
    is set: calls that have begun are finished, and their checkpoints written. Ctrl-C does the same
    and raises ``KeyboardInterrupt``. When ``process`` returns, its record has been processed, which
    the next run knows with ``kinesis.checkpoint.application``. The records of a shard come in their
    order.

    Args:
        properties: what to read, and how.
        process: takes a :class:`~kinesis_publishers.Record`, in a thread of its own, and returns
            ``None`` or a :class:`ScanResult`.
        per_batch: let it take a :class:`~kinesis_publishers.RecordBatch` of one shard instead.
        workers: how many calls may run at once, each for another shard; with more than one
            ``process`` must be safe to call from several threads.
        on_error: what follows when ``process`` raises; unless given, :class:`StopOnError`.
        on_shard_end: is called, in such a thread, when a shard has ended and all of its records
            have been processed; no other call that begins later overtakes it.
        stop: ends the scan once it is set, from any thread: signals come to the main thread alone.
        events: takes diagnostic events, beside the sinks that the properties name.
        clock: the only source of time, this machine's unless it is given.

    Raises:
        ConfigError: the properties cannot work; every problem is named.
        Exception: what ``process`` has raised, as the error policy says.
        KinesisPublishersError: reading, or writing checkpoints, has failed.
    """
    check_callback("process", process)
    if on_shard_end is not None:
        check_callback("on_shard_end", on_shard_end)
    on_error = on_error or StopOnError()
    check_policy(on_error)
    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    if stop is not None and not callable(getattr(stop, "is_set", None)):
        raise TypeError(f"stop must be a threading.Event, not {stop!r}")
    clock = clock or SystemClock()
    if not isinstance(properties, Properties):
        properties = Properties.parse(properties)
    if (
        properties.get(SourceConfig.on_invalid_aggregate) is OnInvalidAggregate.DEAD_LETTER
        and not per_batch
    ):
        process, properties = _with_dead_letters(process, properties, on_error)
    open_fetcher = fetcher_opener(properties, events=events, clock=clock)
    scanner = Scanner(
        process,
        workers=workers,
        per_batch=per_batch,
        on_error=on_error,
        on_shard_end=on_shard_end,
        stop=stop,
        clock=clock,
    )
    _check_no_loop()
    signals = free_signals(signal.SIGTERM, signal.SIGINT)
    asyncio.run(scanner.run(open_fetcher, signals))
    if scanner.was_interrupted:
        raise KeyboardInterrupt


def _with_dead_letters(
    process: Process, properties: Properties, policy: ErrorPolicy
) -> tuple[Process, Properties]:
    """Let ``process`` fail for invalid aggregates, which are delivered to it as they are."""
    if isinstance(policy, RetryOnError):
        policy = policy.otherwise
    if not isinstance(policy, DeadLetter):
        return process, properties  # Opening the fetcher refuses them.
    # With it every aggregate is delivered as it is, whether it is valid or not.
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
