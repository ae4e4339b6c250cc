"""Waiting records, the calls of ``put`` that they come from, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future as ThreadFuture
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, overload

from attrs import define, evolve, field, frozen

from kinesis_publishers.aggregation import Packable
from kinesis_publishers.errors import RecordsNotWrittenError

if TYPE_CHECKING:
    import asyncio


Row: TypeAlias = tuple[bytes, str, str | None, str | None]
"""Data, partition key, explicit hash key and marker of a checked record."""


def utf8_bytes(text: str) -> int:
    """Return the size of partition keys in bytes, as the service counts them."""
    return len(text) if text.isascii() else len(text.encode())


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


@frozen(kw_only=True, eq=False)
class Written:
    """Where records were written, as columns of equal length.

    Attributes:
        sub_sequence_numbers: ``None`` for each record outside of aggregates.
        attempts: the number of calls.
        put_at: when the first one had a place in the buffer, in seconds of the monotonic clock.
        at: when its place in the stream was known.
    """

    shard_ids: Sequence[str]
    sequence_numbers: Sequence[str]
    sub_sequence_numbers: Sequence[int | None]
    attempts: int
    put_at: float
    at: float


class Putting(Protocol):
    """Calls of ``put`` or ``put_many``, which receive the results of their records."""

    def settle(self, places: Sequence[int], written: Written) -> None:
        """Take the results of the records that have these places."""

    def fail(self, places: Sequence[int], error: Exception) -> None:
        """Set the error of records that were not written."""


@define(eq=False)
class Run:
    """Records of the same calls that wait for the same shard, oldest first, as columns.

    Columns take a fraction of the memory and garbage collection of an object per record.

    Attributes:
        places: the places of the records in the calls.
        number: increases from run to run.
        put_at: when the first record had a place in the buffer, in seconds of the monotonic clock.
        explicit_hash_keys, markers: per record, or ``None`` if no record has one.
        attempts: how many calls of PutRecords the records were in.
        is_copy: whether the records are in the stream already, as
            :data:`~kinesis_publishers.aggregation.aggregator.Packable` says.
        size: the bytes of data and partition keys.
        home: the queue that all of them belong to, as long as a shard map holds; if that is known.
    """

    put: Putting
    places: Sequence[int]
    number: int
    put_at: float
    payloads: list[bytes]
    partition_keys: list[str]
    explicit_hash_keys: list[str | None] | None = None
    markers: list[str | None] | None = None
    attempts: int = 0
    is_copy: bool = False
    size: int = field()
    home: tuple[Any, object] | None = None

    @size.default
    def _measure(self) -> int:
        return sum(map(len, self.payloads)) + utf8_bytes("".join(self.partition_keys))

    @classmethod
    def of_one(cls, put: Putting, row: Row, number: int, put_at: float) -> Run:
        """Return a run of one record."""
        data, key, hash_key, marker = row
        return cls(
            put,
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
        return self.markers is not None or self.is_copy

    def rows(self) -> Iterator[Packable]:
        """Return the records for packing."""
        return zip(
            self.payloads,
            self.partition_keys,
            self.explicit_hash_keys or repeat(None),
            self.markers or repeat(None),
            repeat(self.is_copy),
            strict=False,
        )

    def hash_key_at(self, index: int) -> str | None:
        """Return the explicit hash key of a record."""
        return None if self.explicit_hash_keys is None else self.explicit_hash_keys[index]

    def slice(self, start: int, stop: int | None = None) -> Run:
        """Return some consecutive records."""
        return self._select(lambda column: column[start:stop])

    def pick(self, indices: Sequence[int]) -> Run:
        """Return the records with these indices, in order."""
        return self._select(lambda column: [column[one] for one in indices])

    def _select(self, pick: Callable[[Any], Any]) -> Run:
        hash_keys, markers = self.explicit_hash_keys, self.markers
        return Run(
            self.put,
            pick(self.places),
            self.number,
            self.put_at,
            pick(self.payloads),
            pick(self.partition_keys),
            None if hash_keys is None else pick(hash_keys),
            None if markers is None else pick(markers),
            self.attempts,
            self.is_copy,
        )

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

    def again(self, *, put: Putting | None = None, is_copy: bool = False) -> Run:
        """Return the records after one more call."""
        return evolve(
            self,
            attempts=self.attempts + 1,
            put=put or self.put,
            is_copy=self.is_copy or is_copy,
        )

    def settle(self, written: Written) -> None:
        """Report to the callers of ``put`` where the records were written."""
        self.put.settle(self.places, written)


AnyFuture: TypeAlias = "asyncio.Future[PutResult] | ThreadFuture[PutResult]"


@define(eq=False)
class SinglePuts:
    """Records that were put one by one, each with its future."""

    futures: list[AnyFuture] = field(factory=list)
    _times: list[float] = field(factory=list)

    @classmethod
    def of_one(cls, future: AnyFuture, put_at: float) -> SinglePuts:
        """Return puts with one record."""
        return cls([future], [put_at])

    def expect(self, future: AnyFuture, put_at: float) -> None:
        """Add the future of one more record."""
        self.futures.append(future)
        self._times.append(put_at)

    def settle(self, places: Sequence[int], written: Written) -> None:
        columns = zip(
            places,
            written.shard_ids,
            written.sequence_numbers,
            written.sub_sequence_numbers,
            strict=True,
        )
        attempts, at, times = written.attempts, written.at, self._times
        for place, shard_id, number, sub in columns:
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

    def __init__(self, count: int) -> None:
        self._columns: tuple[list[Any], ...] = tuple([None] * count for _ in range(5))

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
        """Add places for more results."""
        for column in self._columns:
            column += [None] * count

    def set(self, places: Sequence[int], columns: Iterable[Sequence[Any]]) -> None:
        """Take the results of the records that have these places."""
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
    _results: PutResults = field(factory=lambda: PutResults(0))
    _errors: dict[int, Exception] = field(factory=dict)
    _left: int = 0
    _is_complete: bool = False

    @property
    def next_place(self) -> int:
        """The place of the next record."""
        return len(self._results)

    def expect(self, count: int) -> None:
        """Count more records."""
        self._left += count
        self._results.extend(count)

    def complete(self) -> None:
        """Close the puts: there are no more records."""
        self._is_complete = True
        self._finish()

    def settle(self, places: Sequence[int], written: Written) -> None:
        count = len(places)
        columns: tuple[Sequence[Any], ...] = (
            written.shard_ids,
            written.sequence_numbers,
            written.sub_sequence_numbers,
            [written.attempts] * count,
            [written.at - written.put_at] * count,
        )
        self._results.set(places, columns)
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


@define(eq=False)
class KnownPuts:
    """Records that are already in the stream: these are the results once their copies are, too."""

    _run: Run
    _written: Written

    def settle(self, places: Sequence[int], written: Written) -> None:
        at = [self._run.places.index(place) for place in places]
        known = self._written
        self._run.put.settle(
            places,
            evolve(
                written,
                shard_ids=[known.shard_ids[one] for one in at],
                sequence_numbers=[known.sequence_numbers[one] for one in at],
                sub_sequence_numbers=[known.sub_sequence_numbers[one] for one in at],
            ),
        )

    def fail(self, places: Sequence[int], error: Exception) -> None:
        self._run.put.fail(places, error)
