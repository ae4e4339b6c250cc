"""How far a query is behind: what Spark has not committed counts, an idle shard does not."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from kinesis_publishers import Shard, ShardProgress, ShardStatus, StartingPosition
from kinesis_publishers_spark.lag import Lag
from tests.unit.spark.spark_builders import ARN, NOON, shard


def ago(seconds: float) -> datetime:
    return NOON - timedelta(seconds=seconds)


def status(
    number: int = 0,
    *,
    millis: int | None = 0,
    answered: float | None = 0.2,
    last_arrival: float = 3600.0,
    is_ended: bool = False,
    is_delivering: bool = False,
) -> ShardStatus:
    """Return the status of a shard; the times are seconds before noon."""
    return ShardStatus(
        shard=Shard(
            stream_arn=ARN,
            shard_id=shard(number).shard_id,
            starting_hash_key="0",
            ending_hash_key="9",
            starting_sequence_number="0",
        ),
        progress=ShardProgress(
            position=StartingPosition.trim_horizon(), as_of=ago(last_arrival), is_ended=is_ended
        ),
        millis_behind_latest=millis,
        read_until=None if answered is None else ago(answered),
        is_delivering=is_delivering,
    )


def lag_of(one: ShardStatus, *waiting: datetime) -> int | None:
    return Lag.of([one], dict.fromkeys([shard(0)][: len(waiting)], *waiting), NOON).max_lag_millis


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        # Idle for an hour, and the service has just said that there is nothing.
        (status(), 0),
        # The last answer was at the tip, and none has come since.
        (status(answered=90.0), 90_000),
        # Behind: the last record that was read arrived ten minutes ago, whatever the answer says.
        (status(millis=1, answered=700.0, last_arrival=600.0), 600_000),
        # A callback of plain Python is at work on what has come since.
        (status(is_delivering=True, answered=4.0), 4000),
        (status(millis=5000, answered=5.0), 5000),
        (status(millis=None, answered=None), None),
    ],
)
def test_without_waiting_records_the_answers_tell(one: ShardStatus, expected: int | None) -> None:
    assert lag_of(one) == expected


@pytest.mark.parametrize(
    "one", [status(), status(millis=None, answered=None), status(is_ended=True, answered=90.0)]
)
def test_a_waiting_record_counts_by_its_age_even_at_the_tip(one: ShardStatus) -> None:
    assert lag_of(one, ago(7.5)) == 7500
    # By less than a second the two clocks may differ.
    assert lag_of(one, NOON + timedelta(seconds=0.5)) == 0


def test_a_shard_that_is_read_to_its_end_has_no_lag() -> None:
    assert lag_of(status(is_ended=True, answered=90.0)) is None


def test_a_report_names_the_twenty_shards_that_are_furthest_behind() -> None:
    statuses = [status(number, millis=number, answered=float(number)) for number in range(1, 31)]
    unknown = [status(31, millis=None, answered=None)]
    report = Lag.of(statuses + unknown, {shard(5): ago(50)}, NOON, buffered_records=3).report()
    assert (report["shards"], report["shardsWithoutAnswer"]) == (31, 1)
    assert (report["maxLagMillis"], report["maxMillisBehindLatest"]) == (50_000, 30)
    furthest = [f"orders/{shard(number).shard_id}" for number in (5, *range(30, 11, -1))]
    assert list(report["lagMillis"]) == furthest
    assert len(report["millisBehindLatest"]) == 20
    assert (report["bufferedRecords"], report["bufferedBytes"]) == (3, 0)


def test_what_is_not_known_is_left_out_of_a_report() -> None:
    report = Lag.of([status(millis=None, answered=None)], {}, NOON).report()
    assert report == {
        "shards": 1,
        "shardsWithoutAnswer": 1,
        "bufferedRecords": 0,
        "bufferedBytes": 0,
        "lateRecords": 0,
        "heldBackShards": 0,
        "lagMillis": {},
        "millisBehindLatest": {},
        "lateRecordsByShard": {},
    }


def test_a_report_names_the_twenty_shards_with_most_late_records_and_none_without() -> None:
    late = {str(shard(number)): number for number in range(30)}
    report = Lag(
        lag_millis={}, millis_behind_latest={}, late_records_by_shard=late, aligned_until=NOON
    ).report()
    assert report["alignedUntil"] == 1000 * NOON.timestamp()
    assert list(report["lateRecordsByShard"]) == list(late)[:9:-1]
    assert (
        Lag(lag_millis={}, millis_behind_latest={}, late_records_by_shard={"a": 0}).report()[
            "lateRecordsByShard"
        ]
        == {}
    )
