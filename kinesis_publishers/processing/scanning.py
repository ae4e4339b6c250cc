"""A callback in threads for each record or batch: ``scan(properties, process)``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, Unpack

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
from kinesis_publishers.formats.format import decoded, value_of
from kinesis_publishers.model import Record, RecordBatch, Shard, ShardKey
from kinesis_publishers.processing.calls import LEFT_OUT, Process
from kinesis_publishers.processing.checkpointing import takes_checkpointer
from kinesis_publishers.processing.deliveries import EMPTY, given
from kinesis_publishers.processing.error_policies import (
    DeadLetter,
    ErrorPolicy,
    StopOnError,
    check_callback,
    check_policy,
    last_policy,
)
from kinesis_publishers.processing.feed import DeliveryFeed
from kinesis_publishers.processing.handed_out import Cutting
from kinesis_publishers.processing.scanner import Scanner
from kinesis_publishers.tracebacks import ShortTraceback

if TYPE_CHECKING:
    from kinesis_publishers.formats.spans import Tracing


def scan(
    properties: Properties | Mapping[str, Scalar] | None = None,
    process: Process | None = None,
    *,
    decode: str | Format[Any] | Decoder | None = None,
    where: Callable[[Record], object] | None = None,
    max_age: timedelta | None = None,
    per_batch: bool = False,
    max_records: int | None = None,
    max_bytes: int | None = None,
    max_wait: timedelta = timedelta(0),
    empty_batches: bool = False,
    workers: int = 1,
    ordered_by: Literal["shard", "partition_key"] | None = "shard",
    max_in_flight: int = 1000,
    on_error: ErrorPolicy | None = None,
    on_ready: Callable[[datetime], None] | None = None,
    on_shard_begin: Callable[[Shard], None] | None = None,
    on_shard_end: Callable[[Shard], None] | None = None,
    on_shard_lost: Callable[[ShardKey], None] | None = None,
    on_watermark: Callable[[datetime], None] | None = None,
    on_stop: Callable[[], None] | None = None,
    stop: threading.Event | None = None,
    pause: threading.Event | None = None,
    events: EventSink | None = None,
    clock: Clock | None = None,
    **options: Unpack[Options],
) -> None:
    """Call ``process`` for each record of the configured streams, until told to stop.

    It returns after SIGTERM, when ``process`` returns ``ScanResult.STOP``, or soon after ``stop``
    is set: running calls are finished, and their checkpoints written. So they are after Ctrl-C,
    which then raises ``KeyboardInterrupt``. A second signal has its usual effect at once.

    When ``process`` returns, its record has been processed; with ``kinesis.checkpoint.application``
    the next run continues after it. Unless ``ordered_by`` says otherwise, the records of a shard
    come in their order.

    The arguments that are not below are those of ``read``. Here ``on_ready``, ``on_shard_end`` and
    the like are plain functions; they run in threads, too.

    Args:
        process: takes a :class:`~kinesis_publishers.Record`, in a thread of its own, and returns
            ``None`` or a :class:`ScanResult`. An async function runs on the event loop that reads:
            it must not block. If it has a parameter ``checkpointer``, that is a
            :class:`Checkpointing`, or an :class:`AsyncCheckpointing` for an async function.
        decode: as of ``read``; what it raises counts as raised by ``process``.
        where: tells for each record whether ``process`` takes it; the others count as processed.
        max_age: records that arrived longer ago go to ``on_error``, which must end in a
            :class:`DeadLetter`, with a ``NotProcessedError``.
        per_batch: let ``process`` take a :class:`~kinesis_publishers.RecordBatch` of one shard
            instead. A batch for which it raises is halved until a record is alone with the error.
            It may also return a list of the records that have failed: those go to ``on_error``.
        max_records: the most records of a batch.
        max_bytes: the most payload bytes of a batch with several records.
        max_wait: how long a batch may wait for further records, until it has ``max_records``.
        empty_batches: whether ``process`` is also called with an empty batch when a shard has
            answered without a record.
        workers: how many calls may run at once; with more than one ``process`` must be safe to call
            from several threads.
        ordered_by: which records come one after another: those of a ``"shard"``, those of a
            ``"partition_key"`` in it, or none (``None``). The progress is that of the last record
            before the first one that is not processed.
        max_in_flight: how many records of a shard may be between that and the last one that has
            begun, unless they are ordered by shard. A crash repeats no more than these.
        on_error: what follows when ``process``, or a ``WatermarkAssigner``, raises; the default is
            :class:`StopOnError`.
        on_shard_end: as of ``read``; no call that begins later overtakes it.
        stop: ends the scan once it is set, from any thread: only the main thread gets signals.
        pause: while it is set, no call begins, and no more is read; leases are kept.

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
    is_async = iscoroutinefunction(process)
    if not is_async:
        check_callback("process", process)
    hooks = given(
        on_ready=on_ready,
        on_shard_begin=on_shard_begin,
        on_shard_end=on_shard_end,
        on_shard_lost=on_shard_lost,
        on_watermark=on_watermark,
        on_stop=on_stop,
    )
    for hook, function in hooks.items():
        check_callback(hook, function)
    if per_batch and decode is not None:
        raise ValueError("decode is for single records: decode the batch in process")
    for name, given_time in (("max_age", max_age), ("max_wait", max_wait)):
        if not isinstance(given_time, timedelta | None):
            raise TypeError(f"{name} must be a timedelta, not {given_time!r}")
    cutting = Cutting(
        ordered_by=ordered_by,
        workers=workers,
        per_batch=per_batch,
        max_records=max_records,
        max_bytes=max_bytes,
        max_wait_seconds=max_wait.total_seconds(),
        max_in_flight=max_in_flight,
    )
    on_error = on_error or StopOnError()
    for flag_name, flag in (("stop", stop), ("pause", pause)):
        if flag is not None and not callable(getattr(flag, "is_set", None)):
            raise TypeError(f"{flag_name} must be a threading.Event, not {flag!r}")
    with ShortTraceback():
        properties = Properties.of(properties, options)
        check_policy(on_error, properties)
    if max_age is not None and not isinstance(last_policy(on_error), DeadLetter):
        raise ValueError("max_age needs an on_error that takes such records: DeadLetter(...)")
    wants_checkpointer = takes_checkpointer(process)
    if wants_checkpointer and ordered_by != "shard":
        raise ValueError(
            "process takes a checkpointer, whose checkpoints follow the order of a shard: leave "
            "ordered_by='shard'"
        )
    if empty_batches:
        if wants_checkpointer or not per_batch:
            raise ValueError("empty_batches is for per_batch=True, without a checkpointer")
        hooks[EMPTY] = process
    if where is not None:
        check_callback("where", where)
    decoder, is_strict = decoder_of(decode), False
    on_invalid = properties.get(SourceConfig.on_invalid_aggregate)
    takes_letters = isinstance(last_policy(on_error), DeadLetter) and not per_batch
    # Otherwise opening the fetcher refuses it.
    if on_invalid is OnInvalidAggregate.DEAD_LETTER and takes_letters:
        # With OFF every aggregate is delivered as it is, valid or not.
        is_strict = properties.get(SourceConfig.aggregation) is not AggregationMode.OFF
        plain = {SourceConfig.on_invalid_aggregate: OnInvalidAggregate.PLAIN.value}
        properties = properties.with_values(plain)
    feed = DeliveryFeed.from_properties(properties, hooks, events, clock, cutting)

    def wrap(inner: Process) -> Process:
        if feed.tracing is not None:
            inner = _traced(inner, feed.tracing, is_async=is_async)
        if where is not None and per_batch:
            return _filtered(inner, where)
        is_plain = where is None and decoder is None and not is_strict
        return inner if is_plain else _prepared(inner, where, decoder, is_strict=is_strict)

    def is_too_old(record: Record) -> bool:
        assert max_age is not None
        age = feed.clock.now().timestamp() - record.arrival_epoch_seconds
        if age <= max_age.total_seconds():
            return False
        # What the filter leaves out is not late.
        return where is None or _prepared(lambda _: None, where, decoder)(record) is not LEFT_OUT

    scanner = Scanner(
        process,
        wrap,
        name_of(process),
        feed,
        hooks,
        is_async=is_async,
        takes_checkpointer=wants_checkpointer,
        cutting=cutting,
        on_error=on_error,
        is_too_old=None if max_age is None else is_too_old,
        stop=stop,
        pause=pause,
    )
    _check_no_loop()
    with ShortTraceback():
        asyncio.run(scanner.run())
        if scanner.is_interrupted:
            raise KeyboardInterrupt


def _traced(process: Callable[..., Any], tracing: Tracing, *, is_async: bool) -> Callable[..., Any]:
    def call(item: Any) -> Any:
        with tracing.processing_span(item, value_of(item)):
            return process(item)

    async def call_async(item: Any) -> Any:
        with tracing.processing_span(item, value_of(item)):
            return await process(item)

    return call_async if is_async else call


def _filtered(process: Process, where: Callable[[Record], object]) -> Process:
    def process_some(batch: RecordBatch) -> Any:
        places = [place for place, record in enumerate(batch) if where(record)]
        return process(batch.take(places)) if places else LEFT_OUT

    return process_some


def _prepared(
    process: Callable[[Any], Any],
    where: Callable[[Any], object] | None,
    decode: Decoder | None,
    *,
    is_strict: bool = False,
) -> Callable[[Any], Any]:
    """Make a function take records as they are stored; with ``is_strict`` no invalid aggregates."""

    def process_one(record: Record) -> Any:
        if is_strict and record.is_undecoded_aggregate:
            raise AggregationError("the record begins like an aggregate and is not a valid one")
        item = record if decode is None else decoded(record, decode)
        return process(item) if where is None or where(item) else LEFT_OUT

    return process_one


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "scan blocks, and this thread runs an event loop: use `async for record in "
        "kinesis_publishers.read(properties)`, or `await asyncio.to_thread(scan, ...)`"
    )
