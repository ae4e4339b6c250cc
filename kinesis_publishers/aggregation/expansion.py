"""Puts the records inside aggregates into the place of the aggregates, for a whole delivery."""

from __future__ import annotations

from collections import Counter
from itertools import repeat
from typing import TYPE_CHECKING

from attrs import define, evolve, field, frozen

from kinesis_publishers.aggregation.decoding import decode_aggregate
from kinesis_publishers.aggregation.wire_format import KPL_PARTITION_KEY, MAGIC
from kinesis_publishers.errors import AggregationError
from kinesis_publishers.model import hash_key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.aggregation.decoding import UserRecordColumns
    from kinesis_publishers.model import HashRange, RecordBatch

__all__ = ["Expansion", "expand"]


@frozen(kw_only=True, eq=False)
class Expansion:
    """A delivery whose aggregates have been taken apart.

    Attributes:
        batch: the records, with a sub-sequence number for each that was in an aggregate.
        aggregates: how many aggregates there were.
        user_records: how many records were in them, those included that were left out.
        left_out: how many of these belong to other shards, and are not in ``batch``.
        foreign: how many belong to other shards and are in ``batch`` all the same.
        corrupt: how many records begin like an aggregate and are not a valid one; they are in
            ``batch`` as they are.
        problem: what is wrong with the first of these.
    """

    batch: RecordBatch
    aggregates: int = 0
    user_records: int = 0
    left_out: int = 0
    foreign: int = 0
    corrupt: int = 0
    problem: str = ""


def expand(
    batch: RecordBatch,
    hash_range: HashRange | None = None,
    *,
    filters_all: bool = False,
    fails_on_invalid: bool = False,
) -> Expansion:
    """Deaggregate the aggregates in ``batch``; everything else stays as it is.

    Args:
        batch: records as Kinesis stored them.
        hash_range: leave out records inside aggregates of the KPL whose hash keys are not in it:
            they belong to another shard, to which it sends them again. ``None`` leaves out nothing.
        filters_all: leave them out of the aggregates of every producer.
        fails_on_invalid: raise an error instead of returning an invalid aggregate as it is.

    Raises:
        AggregationError: an aggregate is invalid; names shard and sequence number.
    """
    columns = _Columns(batch, hash_range, filters_all, fails_on_invalid)
    for index, payload in enumerate(batch.payloads):
        columns.add(index, payload)
    return columns.expansion()


@define(eq=False)
class _Columns:
    _batch: RecordBatch
    _range: HashRange | None
    _filters_all: bool
    _fails_on_invalid: bool
    # For each record to come, the index of the one that Kinesis stored.
    _origins: list[int] = field(factory=list, init=False)
    _payloads: list[bytes] = field(factory=list, init=False)
    _partition_keys: list[str] = field(factory=list, init=False)
    _sub_sequence_numbers: list[int | None] = field(factory=list, init=False)
    _explicit_hash_keys: list[str | None] = field(factory=list, init=False)
    # By the names of an Expansion.
    _counts: Counter[str] = field(factory=Counter, init=False)
    _problem: str = field(default="", init=False)

    def add(self, index: int, payload: bytes) -> None:
        if payload.startswith(MAGIC):
            try:
                inside = decode_aggregate(payload)
                if inside is not None:
                    self._add_aggregate(index, inside)
                    return
                problem = "its checksum is wrong, or it does not parse"
            except AggregationError as error:
                problem = str(error)
            self._add_problem(index, problem)
        self._add_plain(index, payload)

    def _add_problem(self, index: int, problem: str) -> None:
        problem = f"record {self._batch.sequence_numbers[index]}: {problem}"
        if self._fails_on_invalid:
            raise AggregationError(
                f"{self._batch.shard}: {problem}. It is not a valid aggregate; "
                "kinesis.aggregation.on-invalid = plain delivers it as it is.",
                valid_records=index,
            )
        self._counts["corrupt"] += 1
        self._problem = self._problem or problem

    def _add_plain(self, index: int, payload: bytes) -> None:
        self._origins.append(index)
        self._payloads.append(payload)
        self._partition_keys.append(self._batch.partition_keys[index])
        self._sub_sequence_numbers.append(None)
        self._explicit_hash_keys.append(None)

    def _add_aggregate(self, index: int, inside: UserRecordColumns) -> None:
        filters = self._filters_all or self._batch.partition_keys[index] == KPL_PARTITION_KEY
        needed = self._belonging(inside, filters=filters)
        foreign = len(inside) - len(needed)
        if foreign and filters:
            self._payloads += [inside.payloads[one] for one in needed]
            self._partition_keys += [inside.partition_keys[one] for one in needed]
            self._explicit_hash_keys += [inside.explicit_hash_keys[one] for one in needed]
        else:
            needed = range(len(inside))
            self._payloads += inside.payloads
            self._partition_keys += inside.partition_keys
            self._explicit_hash_keys += inside.explicit_hash_keys
        self._sub_sequence_numbers += needed
        self._origins += repeat(index, len(needed))
        self._counts["aggregates"] += 1
        self._counts["user_records"] += len(inside)
        self._counts["left_out" if filters else "foreign"] += foreign

    def _belonging(self, inside: UserRecordColumns, *, filters: bool) -> Sequence[int]:
        """Return the sub-sequence numbers of the records that belong to the shard."""
        hash_range, everything = self._range, range(len(inside))
        if hash_range is None:
            return everything
        keys = inside.partition_keys, inside.explicit_hash_keys
        try:
            return [
                number
                for number, (key, explicit) in enumerate(zip(*keys, strict=True))
                if hash_key_of(key, explicit) in hash_range
            ]
        except ValueError as error:
            if filters:
                raise AggregationError(f"a sub-record has an explicit hash key {error}") from error
            # Nothing is left out: how many are of other shards is all that stays unknown.
            return everything

    def expansion(self) -> Expansion:
        batch, origins = self._batch, self._origins
        types = batch.encryption_types
        expanded = evolve(
            batch,
            payloads=self._payloads,
            partition_keys=self._partition_keys,
            sequence_numbers=[batch.sequence_numbers[one] for one in origins],
            arrival_epoch_seconds=[batch.arrival_epoch_seconds[one] for one in origins],
            encryption_types=None if types is None else [types[one] for one in origins],
            sub_sequence_numbers=self._sub_sequence_numbers,
            explicit_hash_keys=self._explicit_hash_keys,
        )
        result = expanded if self._counts["aggregates"] else batch
        return Expansion(batch=result, problem=self._problem, **self._counts)
