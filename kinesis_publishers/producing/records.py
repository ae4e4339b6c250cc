"""Waiting records, the calls of ``put`` that they come from, and their results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future as ThreadFuture
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, Protocol, TypeAlias, overload

from attrs import define, evolve, field, frozen

from kinesis_publishers.aggregation import Packable
from kinesis_publishers.errors import RecordsNotWrittenError

Row: TypeAlias = tuple[bytes, str, str | None, str | None]
"""Data, partition key, explicit hash key and marker of a checked record."""


def utf8_bytes(text: str) -> int:
    """Return the size of partition keys in bytes, as the service counts them."""
    return len(text) if text.isascii() else len(text.encode())


def row_bytes(row: Row) -> int:
    """Return the size of a record, with its partition key."""
    return len(row[0]) + utf8_bytes(row[1])


def columns_of_rows(rows: Sequence[Row]) -> tuple[Any, Any, Any, Any]:
    """Return the columns of a :class:`Run`, from its payloads to its markers."""
    payloads, keys, hash_keys, markers = ([row[n] for row in rows] for n in range(4))
    return payloads, keys, _column(hash_keys), _column(markers)


def _column(values: list[Any]) -> list[Any] | None:
    return values if any(one is not None for one in values) else None


# A NamedTuple, although other values are attrs classes: as `Record`, it is made per record.
class PutResult(NamedTuple):
    """Where a record was written.

    Attributes:
        sub_sequence_number: the 0-based index in an aggregate; ``None`` without an aggregate.
        attempts: the number of calls.
        seconds: the time from ``put`` to the acknowledgement.
    """

    shard_id: str
    sequence_number: str
    sub_sequence_number: int | None
    attempts: int
    seconds: float


_make_result: Callable[[tuple[Any, ...]], PutResult] = partial(tuple.__new__, PutResult)


Columns: TypeAlias = tuple[Sequence[str], Sequence[str], Sequence[int | None]]
"""The shards of records, their sequence numbers, and their sub-sequence numbers in aggregates."""


@frozen(kw_only=True, eq=False)
class Written:
    """Where records were written, and when the answer came."""

    columns: Columns
    attempts: int
    put_at: float
    at: float


class Putting(Protocol):
    """Calls of ``put`` or ``put_many``."""

    def settle(self, places: Sequence[int], written: Written) -> None:
        """Take the results of the records that have certain places."""

    def fail(self, places: Sequence[int], error: Exception) -> None:
        """Take the error of those that were not written."""


@define(eq=False)
class Run:
    """Records of the same calls that wait for the same shard, oldest first, as columns.

    Columns take a fraction of the memory and garbage collection of an object per record.

    Attributes:
        places: the places of the records in the calls.
        number: increases from run to run.
        put_at: when the first record had a place in the buffer, in seconds of the monotonic clock.
        explicit_hash_keys, markers: per record, or ``None`` if no record has one.
        known: where each record is in the stream already, which will be its result: these are
            copies. ``None`` if they are not there.
        attempts: the number of PutRecords calls that the records were in.
        size: the bytes of data and partition keys.
        home: the queue of all records, with the shard map for which that is known.
    """

    put: Putting
    places: Sequence[int]
    number: int
    put_at: float
    payloads: list[bytes]
    partition_keys: list[str]
    explicit_hash_keys: list[str | None] | None = None
    markers: list[str | None] | None = None
    known: list[tuple[str, str, int]] | None = None
    attempts: int = 0
    size: int = field()
    home: tuple[Any, object] | None = None

    @size.default
    def _measure(self) -> int:
        return sum(map(len, self.payloads)) + utf8_bytes("".join(self.partition_keys))

    @classmethod
    def of_one(cls, future: AnyFuture, row: Row, number: int = 0, put_at: float = 0.0) -> Run:
        """Return a run of one record, whose result goes to ``future``."""
        data, key, hash_key, marker = row
        return cls(
            SinglePuts([future], [put_at]),
            [0],
            number,
            put_at,
            [data],
            [key],
            None if hash_key is None else [hash_key],
            None if marker is None else [marker],
        )

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def is_noted(self) -> bool:
        """Whether the records have notes, which need aggregates."""
        return self.markers is not None or self.known is not None

    def rows(self) -> Iterator[Packable]:
        hash_keys, markers = self.explicit_hash_keys or repeat(None), self.markers or repeat(None)
        own = self.payloads, self.partition_keys
        return zip(*own, hash_keys, markers, repeat(self.known is not None), strict=False)

    def hash_key_at(self, index: int) -> str | None:
        return None if self.explicit_hash_keys is None else self.explicit_hash_keys[index]

    def slice(self, start: int, stop: int | None = None) -> Run:
        return self._select(lambda column: column[start:stop])

    def pick(self, indices: Sequence[int]) -> Run:
        return self._select(lambda column: [column[one] for one in indices])

    def _select(self, pick: Callable[[Any], Any]) -> Run:
        notes = self.explicit_hash_keys, self.markers, self.known
        columns = self.payloads, self.partition_keys, *notes
        picked: list[Any] = [None if one is None else pick(one) for one in columns]
        run = Run(self.put, pick(self.places), self.number, self.put_at, *picked)
        run.attempts = self.attempts
        return run

    def pieces(self, most: int, most_bytes: int) -> Sequence[Run]:
        """Return the records as runs within limits; a larger record is a run of its own."""
        if len(self) <= most and self.size <= most_bytes:
            return [self]
        found: list[Run] = []
        start = size = 0
        for index, (data, key) in enumerate(zip(self.payloads, self.partition_keys, strict=True)):
            own = len(data) + utf8_bytes(key)
            if index > start and (index - start >= most or size + own > most_bytes):
                found.append(self.slice(start, index))
                start, size = index, 0
            size += own
        return [*found, self.slice(start)]

    def settle(self, columns: Columns, at: float) -> None:
        """Report to the callers of ``put`` where the records were written."""
        if self.known is not None:
            shard_ids, numbers, subs = zip(*self.known, strict=True)
            columns = shard_ids, numbers, subs
        attempts = self.attempts + 1
        written = Written(columns=columns, attempts=attempts, put_at=self.put_at, at=at)
        self.put.settle(self.places, written)

    def again(self, known: list[tuple[str, str, int]] | None = None) -> Run:
        """Return the records after one more call, which has put them at ``known`` places if any."""
        return evolve(self, attempts=self.attempts + 1, known=self.known or known)


AnyFuture: TypeAlias = asyncio.Future[PutResult] | ThreadFuture[PutResult]


@define(eq=False)
class SinglePuts:
    """Records that were put one by one, each with its future."""

    futures: list[AnyFuture]
    _times: list[float]

    def expect(self, future: AnyFuture, put_at: float) -> None:
        self.futures.append(future)
        self._times.append(put_at)

    def settle(self, places: Sequence[int], written: Written) -> None:
        attempts, at, times = written.attempts, written.at, self._times
        for place, shard_id, number, sub in zip(places, *written.columns, strict=True):
            future = self.futures[place]
            # Its owner may have cancelled it.
            if not future.done():
                seconds = at - times[place]
                future.set_result(_make_result((shard_id, number, sub, attempts, seconds)))

    def fail(self, places: Sequence[int], error: Exception) -> None:
        for place in places:
            future = self.futures[place]
            if not future.done():
                future.set_exception(error)
                # asyncio must not warn of a future that is never awaited: flush and close raise.
                future.exception()


class PutResults(Sequence[PutResult]):
    """The results of ``put_many``, in the order of its records; each is created on access."""

    def __init__(self) -> None:
        self._columns: tuple[list[Any], ...] = tuple([] for _ in range(5))

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, index: int) -> PutResult: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PutResult]: ...
    def __getitem__(self, index: int | slice) -> PutResult | Sequence[PutResult]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        return _make_result(tuple([column[index] for column in self._columns]))

    def __repr__(self) -> str:
        return f"<PutResults of {len(self)} records>"

    def extend(self, count: int) -> None:
        for column in self._columns:
            column += [None] * count

    def set(self, places: Sequence[int], columns: Iterable[Sequence[Any]]) -> None:
        for own, values in zip(self._columns, columns, strict=True):
            if isinstance(places, range) and places.step == 1:
                own[places.start : places.stop] = values
            else:
                for place, value in zip(places, values, strict=True):
                    own[place] = value


@define(eq=False)
class ManyPuts:
    """The records of a ``put_many``, with one future for all of their results."""

    future: asyncio.Future[Sequence[PutResult]] | ThreadFuture[Sequence[PutResult]]
    _results: PutResults = field(factory=PutResults)
    _errors: dict[int, Exception] = field(factory=dict)
    _left: int = 0
    _is_complete: bool = False

    def expect(self, count: int) -> range:
        """Count more records, and return their places."""
        self._left += count
        self._results.extend(count)
        return range(len(self._results) - count, len(self._results))

    def complete(self) -> None:
        """Expect no more records."""
        self._is_complete = True
        self._finish()

    def settle(self, places: Sequence[int], written: Written) -> None:
        count, seconds = len(places), written.at - written.put_at
        self._results.set(places, (*written.columns, [written.attempts] * count, [seconds] * count))
        self._left -= count
        self._finish()

    def fail(self, places: Sequence[int], error: Exception) -> None:
        self._errors.update(dict.fromkeys(places, error))
        self._left -= len(places)
        self._finish()

    def _finish(self) -> None:
        if self._left or not self._is_complete or self.future.done():
            return
        if not self._errors:
            self.future.set_result(self._results)
            return
        first = self._errors[min(self._errors)]
        count = len(self._results)
        error = RecordsNotWrittenError(
            f"{len(self._errors):,} of {count:,} records were not written, or not for certain; "
            f"the error of the first: {first}",
            results=[self._errors.get(one) or self._results[one] for one in range(count)],
        )
        error.__cause__ = first
        self.future.set_exception(error)
        self.future.exception()  # as for a single record
