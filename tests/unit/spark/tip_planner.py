"""Planners of one shard whose records are the numbers up to a tip, and a log of what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field
from pyspark.sql.datasource import InputPartition

from kinesis_publishers import Properties
from kinesis_publishers.config import Planner as PlannerName
from kinesis_publishers.config import SparkConfig
from kinesis_publishers_spark.planning.planner import BatchSize, Lag, Planner
from kinesis_publishers_spark.stream_reader import KinesisStreamReader
from tests.unit.spark.spark_builders import after, offset, shard

if TYPE_CHECKING:
    from kinesis_publishers_spark.offsets import Offset
    from kinesis_publishers_spark.planning.chunks import BatchLimit

SHARD = shard(0)


def place(number: int) -> dict[str, Any]:
    """Return the offset, as Spark has it, of a query that has read up to a number."""
    return offset({SHARD: after(number)}).to_json()


def number_of(one: Offset) -> int:
    processed = one.shards[SHARD].progress.processed
    assert processed is not None
    return int(processed.sequence_number)


class TipPlanner(Planner):
    """Plans everything up to the tip, or as many records as the limit says."""

    def __init__(self, name: str, planners: TipPlanners) -> None:
        self._name = name
        self._planners = planners
        self._records = 0

    def _log(self, call: str) -> None:
        self._planners.calls.append(f"{self._name}.{call}")

    def prepare_for_available_now(self) -> None:
        self._log("prepare_for_available_now()")

    def initial_offset(self) -> Offset:
        self._log("initial_offset()")
        # As LATEST is: pinned when somebody asks.
        return offset({SHARD: after(self._planners.tip)})

    def latest_offset(self, start: Offset, limit: BatchLimit) -> Offset:
        begin = number_of(start)
        self._log(f"latest_offset({begin}, {limit})")
        end = min(self._planners.tip, begin + (limit.records or self._planners.tip))
        self._records = end - begin
        return start if end == begin else offset({SHARD: after(end)}, first={SHARD: begin + 1})

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        self._log(f"partitions({number_of(start)}, {number_of(end)})")
        return [InputPartition((number_of(start), number_of(end)))]

    def commit(self, end: Offset) -> None:
        self._log(f"commit({number_of(end)})")

    def planned_size(self) -> BatchSize:
        return BatchSize(records=self._records, payload_bytes=10 * self._records)

    def lag(self) -> Lag:
        self._planners.lags += 1
        return Lag(millis_behind_latest={str(SHARD): 70, "orders/new": None}, buffered_records=2)

    def close(self) -> None:
        self._log("close()")


@define
class TipPlanners:
    """Makes the planners of a reader; all of them see the same tip.

    Attributes:
        tip: the last record.
        calls: what was planned.
        lags: how often somebody asked for the lag.
    """

    tip: int
    calls: list[str] = field(factory=list)
    lags: int = 0

    def make(self, name: PlannerName, reads_everything: bool) -> Planner:
        return TipPlanner(name.value + ("-everything" if reads_everything else ""), self)

    def reader(self, **options: str) -> KinesisStreamReader:
        """Return the reader of a new process of the query."""
        properties = Properties.from_spark_options(
            {"streamName": "orders", "region": "eu-west-1", **options}
        )
        return KinesisStreamReader(properties, SparkConfig.from_properties(properties), self.make)
