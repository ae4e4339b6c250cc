"""The records between two times as one Arrow table: ``read_table(stream="orders")``."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Unpack

from attrs import define, field

from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import (
    CheckpointConfig,
    EndingPositionConfig,
    InitialPositionConfig,
    Options,
    Properties,
    Scalar,
)
from kinesis_publishers.config.assignments import replaced_by
from kinesis_publishers.config.sections.checkpoints import OF_APPLICATION
from kinesis_publishers.errors import InvalidOptionError
from kinesis_publishers.event_loop import EventLoopThread
from kinesis_publishers.events import EventSink
from kinesis_publishers.formats import Decoder, Format, decoder_of
from kinesis_publishers.formats.format import imported
from kinesis_publishers.model import Record, RecordBatch, Shard, ShardKey
from kinesis_publishers.processing.calls import call_plain
from kinesis_publishers.processing.error_policies import (
    DeadLetter,
    StopOnError,
    check_decode_policy,
    next_step,
    place_of,
)
from kinesis_publishers.readers.bounds import bounds_of
from kinesis_publishers.readers.fetcher import KinesisDataFetcher
from kinesis_publishers.readers.ranges.reader import as_polling
from kinesis_publishers.tracebacks import ShortTraceback

if TYPE_CHECKING:
    import pyarrow as pa

_ARRIVAL: Final = "approximate_arrival_timestamp"
# Kinesis cannot be read backward: a window before the end is read again, longer, until it has
# enough. What one reads in vain is small compared to the next one.
_WINDOWS: Final = tuple(timedelta(seconds=n) for n in (10, 60, 600, 7_200, 86_400, 604_800))


def read_table(
    properties: Properties | Mapping[str, Scalar] | None = None,
    *,
    decode: str | Format[Any] | Decoder | None = None,
    last: int | None = None,
    limit: int = 1_000_000,
    limit_bytes: int = 1024**3,
    on_error: StopOnError | DeadLetter | None = None,
    events: EventSink | None = None,
    clock: Clock | None = None,
    **options: Unpack[Options],
) -> pa.Table:
    """Read the records from ``start`` to ``end`` into one Arrow table, in the order of arrival.

    The defaults are everything that is in the stream now. The columns are those of
    :meth:`~kinesis_publishers.RecordBatch.to_arrow`. With ``decode`` the fields of values that are
    dicts replace ``data``, or else the column ``value`` does. All records are in memory at once. It
    may be called in a notebook. Properties of an application are read by polling and without its
    progress: their checkpoints and leases have no effect.

    Args:
        properties: what to read, and how; ``None`` if ``options`` say everything.
        decode: as of :func:`~kinesis_publishers.read`.
        last: the number of records, the most recent ones of all shards; ``None`` for all.
        limit: how many records may be read; more are an error, and none is left out.
        limit_bytes: the same for their payloads together.
        on_error: what follows when ``decode`` raises, once all is read; the default is
            :class:`StopOnError`. What :class:`DeadLetter` puts aside is not in the table.
        events: takes diagnostic events, in addition to the sinks that the properties name.
        clock: the source of time; the default is this machine's clock.
        **options: the properties as keywords, which take precedence, such as ``start`` and ``end``.

    Raises:
        ConfigError: the properties cannot work, or there is more than the limits allow.
        ModuleNotFoundError: the extra ``arrow`` is not installed.
        ValueError: the values do not make a table.
    """
    for name, number in {"last": last, "limit": limit, "limit_bytes": limit_bytes}.items():
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, not {number}")
    imported("pyarrow", extra="arrow")
    decoder, clock = decoder_of(decode), clock or SystemClock()
    with ShortTraceback():
        properties = _bounded(properties, options, clock)
        check_decode_policy(on_error, properties, decode)
        for start in [None] if last is None else _starts_before_end(properties, clock):
            kept = _KeptRecords(last, limit, limit_bytes)
            end = _read(Properties.of(properties, {"start": start}), kept, events, clock)
            kept.check()
            if last is not None and kept.count >= last:
                break
            # The next window ends where this one has ended.
            properties = Properties.of(properties, {"end": end})
    table = _table_of(kept.batches())
    if last is not None:
        table = table.slice(max(0, table.num_rows - last))
    return table if decoder is None else _with_values(table, decoder, on_error or StopOnError())


def _bounded(
    given: Properties | Mapping[str, Scalar] | None, options: Mapping[str, object], clock: Clock
) -> Properties:
    if CheckpointConfig.application.key in replaced_by(options):
        raise InvalidOptionError("application: read_table records no progress. Leave it out")
    properties = Properties.of(given, options)
    if properties.is_given(CheckpointConfig.application):
        # A subscription would drive out that of the application.
        properties = as_polling(properties.with_values(dict.fromkeys(OF_APPLICATION)))
    if not properties.is_given(EndingPositionConfig.position):
        properties = Properties.of(properties, {"end": "LATEST"})
    return bounds_of(properties, clock)[0]


def _starts_before_end(properties: Properties, clock: Clock) -> Iterator[datetime | None]:
    """Yield earlier and earlier starts, the last one being that of the properties (``None``)."""
    now = clock.now()
    first = (
        InitialPositionConfig.from_properties(properties).positions.default.pinned(now).timestamp
    )
    end = EndingPositionConfig.from_properties(properties).positions.default.pinned(now).timestamp
    starts = (end - window for window in _WINDOWS if end is not None)
    yield from (one for one in starts if first is None or one > first)
    yield None


def _read(
    properties: Properties, kept: _KeptRecords, events: EventSink | None, clock: Clock
) -> datetime | None:
    """Read everything into ``kept``, in a thread; return the end."""

    async def read() -> datetime | None:
        async def add(shard: Shard, batch: RecordBatch) -> None:
            kept.add(shard, batch)
            if kept.exceeding:
                # Not from within the call of a shard's own task, which stopping may cancel.
                asyncio.get_running_loop().call_soon(fetcher.stop)

        async with KinesisDataFetcher.from_properties(
            properties, add, events=events, clock=clock
        ) as fetcher:
            await fetcher.run()
            return fetcher.end.until

    loop = EventLoopThread(name="kinesis-table")
    try:
        return loop.start(read()).result()
    finally:
        loop.close()


@define(eq=False)
class _KeptRecords:
    """The batches of each shard, in order; of ``last`` records no more than a shard can have."""

    _last: int | None
    _limit: int
    _limit_bytes: int
    _batches: dict[ShardKey, deque[RecordBatch]] = field(factory=dict, init=False)
    count: int = field(default=0, init=False)
    # The name of a stream that has more than the limits.
    exceeding: str | None = field(default=None, init=False)
    _bytes: int = field(default=0, init=False)

    def add(self, shard: Shard, batch: RecordBatch) -> None:
        own = self._batches.setdefault(shard.key, deque())
        own.append(batch)
        self._note(len(batch), batch.payload_bytes)
        while self._last is not None and sum(map(len, own)) - len(own[0]) >= self._last:
            gone = own.popleft()
            self._note(-len(gone), -gone.payload_bytes)
        if self.count > self._limit or self._bytes > self._limit_bytes:
            self.exceeding = shard.stream_name

    def check(self) -> None:
        if self.exceeding is not None:
            raise InvalidOptionError(
                f"{self.exceeding} has more than limit={self._limit:,} records there, or "
                f"limit_bytes={self._limit_bytes:,}: read a shorter time, or raise the limit"
            )

    def _note(self, records: int, payload_bytes: int) -> None:
        self.count += records
        self._bytes += payload_bytes

    def batches(self) -> Iterable[RecordBatch]:
        """Return the batches shard by shard, parents before children."""
        return (one for key in sorted(self._batches, key=str) for one in self._batches[key])


def _table_of(batches: Iterable[RecordBatch]) -> pa.Table:
    import pyarrow as pa

    from kinesis_publishers.model.arrow import ARROW_SCHEMA

    table = pa.Table.from_batches([one.to_arrow() for one in batches], schema=ARROW_SCHEMA)
    # A stable order: records of a shard that arrived at one instant stay as they are.
    return table.sort_by(_ARRIVAL)


def _with_values(table: pa.Table, decode: Decoder, on_error: StopOnError | DeadLetter) -> pa.Table:
    import pyarrow as pa

    values, rows = [], []
    for row, data in enumerate(table["data"]):
        try:
            values.append(decode(data.as_py()))
            rows.append(row)
        except Exception as error:  # noqa: BLE001 - the policy decides what follows
            record = _record(table, row)
            place = place_of(record)
            step = next_step(on_error, error, 1, place, of="decode")
            assert isinstance(step, DeadLetter)
            call_plain(f"put of DeadLetter for {place}", step.put_aside, record, error)
    if len(rows) < len(table):
        table = table.take(pa.array(rows, pa.int64()))
    column = _column(table, values)
    table = table.drop_columns("data")
    if not pa.types.is_struct(column.type):
        return table.append_column("value", column)
    for name, child in zip(column.type.names, column.flatten(), strict=True):
        if name in table.column_names:
            raise ValueError(
                f"a value has the field {name!r}, which is a column of each table: let decode "
                "return it under another name"
            )
        table = table.append_column(name, child)
    return table


def _record(table: pa.Table, row: int) -> Record:
    (found,) = table.slice(row, 1).to_pylist()
    arrival = found.pop(_ARRIVAL).timestamp()
    return Record(**found, arrival_epoch_seconds=arrival, encryption_type=None)


def _column(table: pa.Table, values: list[Any], field_name: str = "") -> pa.Array:
    """Return the values, or one field of them, as an array; name the first that does not fit."""
    import pyarrow as pa

    def fits(rows: int) -> bool:
        try:
            pa.array(values[:rows])
        except (pa.ArrowException, OverflowError):
            return False
        return True

    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        if all(isinstance(one, dict | None) for one in values):
            for name in dict.fromkeys(name for one in values for name in one or ()):
                own = [(one or {}).get(name) for one in values]
                _column(table, own, f"{field_name}.{name}".lstrip("."))
        row = bisect_left(range(len(values)), True, key=lambda row: not fits(row + 1))
        what = f"the field {field_name!r} does" if field_name else "the values do"
        raise ValueError(
            f"{what} not make a column: {place_of(_record(table, row))} has {values[row]!r:.100}, "
            f"which does not fit ({error}): let decode return values of one type, and whole "
            "numbers of 64 bits"
        ) from error
