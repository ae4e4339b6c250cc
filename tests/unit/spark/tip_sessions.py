"""Sessions of one shard whose records are the numbers up to a tip, and a log of what they do."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define, field
from pyspark.sql.datasource import InputPartition

from kinesis_publishers_spark.aliases import parse_options
from kinesis_publishers_spark.lag import Lag
from kinesis_publishers_spark.micro_batches import MicroBatch, Query, Session
from kinesis_publishers_spark.options import Planner, SparkConfig
from kinesis_publishers_spark.stream_reader import KinesisStreamReader
from tests.unit.spark.spark_builders import after, offset, shard

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from kinesis_publishers import ShardKey
    from kinesis_publishers_spark.limits import BatchLimit
    from kinesis_publishers_spark.offsets import Offset

SHARD = shard(0)


def place(number: int) -> dict[str, Any]:
    """Return the offset, as Spark has it, of a query that has read up to a number."""
    return offset({SHARD: after(number)}).to_json()


def number_of(one: Offset) -> int:
    processed = one.shards[SHARD].progress.processed
    assert processed is not None
    return int(processed.sequence_number)


class TipSession(Session):
    """Plans everything up to the tip, or as many records as the limit says."""

    def __init__(self, name: str, sessions: TipSessions) -> None:
        self._name = name
        self._sessions = sessions

    def _log(self, call: str) -> None:
        self._sessions.calls.append(f"{self._name}.{call}")

    @property
    def begun(self) -> Offset:
        self._log("begun")
        # As LATEST is: pinned at the first question.
        return offset({SHARD: after(self._sessions.tip)})

    def plan(self, start: Offset, limit: BatchLimit | None) -> MicroBatch | None:
        begin = number_of(start)
        self._log(f"plan({begin}, {limit})")
        self._sessions.limits.append(limit)
        most = None if limit is None else limit.records
        end = min(self._sessions.tip, begin + (most or self._sessions.tip))
        if end == begin:
            return None
        return MicroBatch(
            start=start,
            end=offset({SHARD: after(end)}, first={SHARD: begin + 1}),
            records=end - begin,
            payload_bytes=10 * (end - begin),
            left_records=self._sessions.left_records * (self._name == "prefetch"),
            left_bytes=self._sessions.left_bytes * (self._name == "prefetch"),
            partitions=partial(self._partitions, "partitions", begin, end),
        )

    def look_ahead(self) -> None:
        pass

    def replay(self, start: Offset, end: Offset) -> list[InputPartition]:
        return self._partitions("replay", number_of(start), number_of(end))

    def _partitions(self, kind: str, start: int, end: int) -> list[InputPartition]:
        self._log(f"{kind}({start}, {end})")
        return [InputPartition((start, end))]

    def lag(self, _: Mapping[ShardKey, datetime]) -> Lag:
        self._sessions.lags += 1
        return Lag(
            lag_millis={str(SHARD): 700, "orders/new": None},
            millis_behind_latest={str(SHARD): self._sessions.behind_millis, "orders/new": None},
            buffered_records=2,
        )

    def close(self) -> None:
        self._log("close()")


@define
class TipSessions:
    """Makes the sessions of a reader; all of them see the same tip.

    Attributes:
        tip: the last record.
        calls: what was planned.
        limits: of the micro-batches.
        left_records: how many every prefetched micro-batch leaves for a later one.
        left_bytes: how large they are.
        behind_millis: how far the last answer of the service was behind its tip.
        lags: how often the lag was asked for.
        caught_up_to: up to which instant the last session reads, ``None`` without an end.
    """

    tip: int
    calls: list[str] = field(factory=list)
    limits: list[BatchLimit | None] = field(factory=list)
    left_records: int = 0
    left_bytes: int = 0
    behind_millis: int = 0
    lags: int = 0
    caught_up_to: datetime | None = None

    def make(self, planner: Planner, _: Query, __: Offset, until: datetime | None) -> Session:
        self.caught_up_to = until
        return TipSession(planner.value, self)

    def reader(self, **options: str) -> KinesisStreamReader:
        """Return the reader of a new process of the query."""
        properties = parse_options({"streamName": "orders", "region": "eu-west-1", **options})
        return KinesisStreamReader(properties, SparkConfig.from_properties(properties), self.make)
