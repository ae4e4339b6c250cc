"""Which planner plans what under each trigger, in the order in which each Spark calls."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kinesis_publishers.errors import CheckpointError, ConfigErrors, InvalidOptionError
from kinesis_publishers.events import LOG_FORMAT_VARIABLE
from kinesis_publishers_spark import stream_reader
from kinesis_publishers_spark.aliases import parse_options
from kinesis_publishers_spark.boundary import FORMAT_VARIABLE, LEVEL_VARIABLE
from kinesis_publishers_spark.limits import BatchLimit
from kinesis_publishers_spark.micro_batches import MicroBatches
from kinesis_publishers_spark.offsets import Offset
from tests.unit.spark.tip_sessions import TipSessions, place

if TYPE_CHECKING:
    from kinesis_publishers.testing.manual_clock import ManualClock

NO_LIMIT = BatchLimit()
PREFETCH = {"kinesis.spark.planner": "prefetch"}


def ends_at(end: dict[str, Any], number: int) -> bool:
    """Say whether ``end`` is the place ``number``, whichever record the micro-batch began with."""
    return Offset.from_json(end).progress == Offset.from_json(place(number)).progress


@pytest.mark.parametrize("configured", ["prefetch", "ranges"])
def test_the_configured_planner_plans_for_a_spark_that_says_where_it_stands(
    configured: str,
) -> None:
    sessions = TipSessions(9)
    reader = sessions.reader(**{"kinesis.spark.planner": configured})
    end = reader.latestOffset(place(3), reader.getDefaultReadLimit())
    reader.partitions(place(3), end)
    reader.commit(end)
    # Not a limit of as many records as a long can count: those would be counted.
    assert sessions.calls == [
        f"{configured}.plan(3, {NO_LIMIT})",
        f"{configured}.partitions(3, 9)",
    ]


def _planned_at(sessions: TipSessions, tips: list[int], **options: str) -> list[str]:
    """Plan up to each of the tips, 10 bytes a record; return which planner has planned."""
    reader = sessions.reader(**{"kinesis.pending.maxbytes": "100", **options})
    start, planned = place(1), []
    for sessions.tip in tips:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        planned += [call.split(".")[0] for call in sessions.calls if ".plan(" in call]
        assert len(reader.partitions(start, end)) == 1
        sessions.calls.clear()
        start = end
    return planned


def test_by_default_the_executors_read_what_half_fills_the_pool_until_little_comes() -> None:
    sessions = TipSessions(1)
    tips = [5, 6, 7, 8, 9, 14, 20, 22, 23, 24, 27, 28, 29, 30, 31]
    # From the start and after 50 bytes, until three in a row had less than 12.5.
    expected = ["ranges"] * 4 + ["prefetch"] * 2 + ["ranges"] * 8 + ["prefetch"]
    assert _planned_at(sessions, tips) == expected


def test_the_records_count_for_the_pool_too() -> None:
    sessions = TipSessions(1)
    little = {"kinesis.pending.maxbytes": "1GiB", "kinesis.pending.maxrecords": "16"}
    expected = ["ranges"] * 3 + ["prefetch"] * 2 + ["ranges"]
    assert _planned_at(sessions, [2, 3, 4, 8, 16, 17], **little) == expected


@pytest.mark.parametrize("left", [{"left_records": 7}, {"left_bytes": 70}])
def test_what_waits_for_a_shard_that_is_behind_counts_for_the_pool_too(
    left: dict[str, int],
) -> None:
    sessions = TipSessions(1, **left)
    little = {"kinesis.pending.maxrecords": "16"}
    expected = ["ranges"] * 3 + ["prefetch", "ranges"]
    assert _planned_at(sessions, [2, 3, 4, 6, 7], **little) == expected


def test_a_limit_is_counted_by_prefetch_however_much_waits() -> None:
    options = {"maxRecordsPerTrigger": "1000"}
    assert _planned_at(TipSessions(1), [50, 100, 150], **options) == ["prefetch"] * 3


def test_at_the_tip_nothing_new_is_little_as_well() -> None:
    sessions = TipSessions(9)
    reader = sessions.reader(**{"kinesis.pending.maxbytes": "100"})
    start = reader.latestOffset(place(1), reader.getDefaultReadLimit())
    for _ in range(4):
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    assert sessions.calls == [
        f"ranges.plan(1, {NO_LIMIT})",
        *[f"ranges.plan(9, {NO_LIMIT})"] * 3,
        *("ranges.close()", f"prefetch.plan(9, {NO_LIMIT})"),
    ]


def test_ranges_that_find_nothing_of_what_waits_stay() -> None:
    sessions = TipSessions(9, behind_millis=70)
    reader = sessions.reader(**{"kinesis.pending.maxbytes": "100"})
    for _ in range(4):
        reader.latestOffset(place(9), reader.getDefaultReadLimit())
    assert sessions.calls == [f"ranges.plan(9, {NO_LIMIT})"] * 4


def test_the_lag_stays_known_between_two_planners() -> None:
    sessions = TipSessions(9)
    reader = sessions.reader()
    for _ in range(3):
        reader.latestOffset(place(9), reader.getDefaultReadLimit())
    assert sessions.calls[-1] == "ranges.close()"
    report = reader.reportLatestOffset()
    assert report is not None
    assert (report["planner"], report["maxLagMillis"]) == ("ranges", 700)


@pytest.mark.parametrize("configured", ["prefetch", "ranges"])
def test_once_has_everything_in_one_micro_batch_under_any_configuration(configured: str) -> None:
    sessions = TipSessions(9)
    reader = sessions.reader(**{"kinesis.spark.planner": configured}, maxRecordsPerTrigger="2")
    end = reader.latestOffset(place(3), ReadAllAvailable())
    reader.partitions(place(3), end)
    assert sessions.calls == [
        "ranges.plan(3, None)",
        "ranges.partitions(3, 9)",
    ]


def test_a_new_query_begins_at_one_place_although_once_changes_the_planner() -> None:
    sessions = TipSessions(3)
    reader = sessions.reader(**PREFETCH)
    start = reader.initialOffset()
    sessions.tip = 9
    end = reader.latestOffset(start, ReadAllAvailable())
    assert reader.initialOffset() == start
    reader.partitions(start, end)
    assert sessions.calls == [
        "prefetch.begun",
        "prefetch.close()",
        "ranges.plan(3, None)",
        "ranges.partitions(3, 9)",
    ]


def test_available_now_is_prepared_and_planned_by_the_configured_planner() -> None:
    sessions = TipSessions(9)
    reader = sessions.reader(maxRecordsPerTrigger="4")
    reader.prepareForTriggerAvailableNow()
    reader.latestOffset(place(3), reader.getDefaultReadLimit())
    assert sessions.calls == [f"prefetch.plan(3, {BatchLimit(records=4)})"]
    assert sessions.caught_up_to is not None


@pytest.mark.parametrize(
    ("options", "limit", "end"),
    [
        (PREFETCH, None, 9),
        ({"maxRecordsPerTrigger": "4"}, BatchLimit(records=4), 7),
    ],
)
def test_the_first_micro_batch_of_spark_4_0_has_all_that_the_limit_allows(
    options: dict[str, str], limit: BatchLimit | None, end: int
) -> None:
    """Trigger.Once and AvailableNow of Spark 4.0 and 4.1 ask one single time."""
    sessions = TipSessions(9)
    reader = sessions.reader(**options)
    reader.partitions(place(3), place(3))  # how Spark 4.0 says where a restarted query stands
    sessions.calls.clear()
    first = reader.latestOffset()
    assert ends_at(first, end)
    reader.partitions(place(3), first)
    sessions.tip = 12
    reader.latestOffset()
    assert sessions.calls == [
        "prefetch.close()",
        f"ranges.plan(3, {limit})",
        f"ranges.partitions(3, {end})",
        "ranges.close()",
        f"prefetch.plan({end}, {limit or NO_LIMIT})",
    ]


def test_one_session_plans_the_first_micro_batch_of_spark_4_0_and_the_next() -> None:
    sessions = TipSessions(9)
    reader = sessions.reader()
    reader.partitions(place(3), place(3))
    reader.partitions(place(3), reader.latestOffset())
    sessions.tip = 12
    reader.latestOffset()
    assert sessions.calls == [
        "ranges.replay(3, 3)",
        "ranges.plan(3, None)",
        "ranges.partitions(3, 9)",
        f"ranges.plan(9, {NO_LIMIT})",
    ]


def test_a_new_query_of_spark_4_0_begins_where_its_first_end_was_found_from() -> None:
    sessions = TipSessions(3)
    reader = sessions.reader()
    first = reader.latestOffset()
    sessions.tip = 9
    assert reader.initialOffset() == first == place(3)
    assert len(reader.partitions(place(3), first)) == 1
    second = reader.latestOffset()
    assert ends_at(second, 9)
    assert len(reader.partitions(first, second)) == 1


def test_while_there_is_nothing_new_spark_4_0_gets_the_same_text() -> None:
    reader = TipSessions(3).reader()
    reader.partitions(place(3), place(3))
    assert {str(reader.latestOffset()) for _ in range(3)} == {str(place(3))}


def test_a_micro_batch_that_no_action_reads_does_not_stop_spark_4_0() -> None:
    sessions = TipSessions(3)
    reader = sessions.reader()
    reader.latestOffset()
    sessions.tip = 5
    unread = reader.latestOffset()
    sessions.tip = 9
    end = reader.latestOffset()
    assert len(reader.partitions(unread, end)) == 1


def test_an_end_that_was_found_before_the_start_was_known_is_refused() -> None:
    """The AvailableNow wrapper of Spark 4.0 and 4.1 asks before it says where the query stands."""
    sessions = TipSessions(9)
    reader = sessions.reader()
    reader.latestOffset()
    with pytest.raises(CheckpointError, match=r"skip the records.*Wrapper\.enabled.*Spark 4\.2"):
        reader.partitions(place(3), place(3))


def test_an_end_that_was_found_from_another_start_is_refused() -> None:
    sessions = TipSessions(9)
    reader = sessions.reader()
    end = reader.latestOffset(place(5), reader.getDefaultReadLimit())
    with pytest.raises(CheckpointError, match="skip the records"):
        reader.partitions(place(3), end)


def test_the_wrapper_of_spark_4_0_is_served_where_nothing_can_be_lost() -> None:
    """A new query: the first of two ends is used, from the place it was found from."""
    sessions = TipSessions(3)
    reader = sessions.reader()
    reader.latestOffset()
    sessions.tip = 9
    reader.latestOffset()
    sessions.tip = 12
    assert len(reader.partitions(reader.initialOffset(), place(3))) == 1


def test_the_progress_names_streams_planner_and_lag() -> None:
    reader = TipSessions(9, behind_millis=70).reader()
    assert reader.reportLatestOffset() is None
    reader.latestOffset(place(3), ReadAllAvailable())
    assert reader.reportLatestOffset() == {
        "streams": "orders",
        "planner": "ranges",
        "maxLagMillis": 700,
        "maxMillisBehindLatest": 70,
        "shards": 2,
        "shardsWithoutAnswer": 1,
        "bufferedRecords": 2,
        "bufferedBytes": 0,
        "lateRecords": 0,
        "heldBackShards": 0,
        "lagMillis": {"orders/shardId-000000000000": 700},
        "millisBehindLatest": {"orders/shardId-000000000000": 70},
        "lateRecordsByShard": {},
    }


@pytest.mark.parametrize(("seconds", "asked"), [(3600.0, 2), (0.0, 3)])
def test_the_lag_is_not_asked_for_at_every_look(
    monkeypatch: pytest.MonkeyPatch, seconds: float, asked: int
) -> None:
    """Once a second is enough, and once more when there is a micro-batch."""
    monkeypatch.setattr(stream_reader, "_REPORT_SECONDS", seconds)
    sessions = TipSessions(9)
    reader = sessions.reader(**PREFETCH)
    asked_for_the_report = 0
    start = place(3)
    # A micro-batch, nothing new, another one.
    for tip in (9, 9, 12):
        sessions.tip = tip
        start = reader.latestOffset(start, reader.getDefaultReadLimit())
        before = sessions.lags
        assert reader.reportLatestOffset()
        asked_for_the_report += sessions.lags - before
    assert asked_for_the_report == asked


async def test_a_minimum_holds_from_the_second_micro_batch_on_and_until_the_delay_is_over(
    manual_clock: ManualClock,
) -> None:
    sessions = TipSessions(5)
    own = {"streamName": "orders", "region": "eu-west-1", "maxTriggerDelay": "60s"}
    planned = MicroBatches(parse_options(own), sessions.make, clock=manual_clock)

    def minimum_for(number: int) -> int:
        sessions.limits.clear()
        planned.latest_offset(Offset.from_json(place(number)), BatchLimit(min_records=9))
        (asked,) = sessions.limits
        assert asked is not None
        return asked.min_records

    assert minimum_for(0) == 0
    assert minimum_for(5) == 9
    await manual_clock.advance(59.0)
    assert minimum_for(5) == 9
    await manual_clock.advance(1.0)
    assert minimum_for(5) == 0
    planned.prepare_for_available_now()
    sessions.tip = 6
    assert minimum_for(5) == 0


def test_no_micro_batch_can_have_more_than_the_most_and_fewer_than_the_least() -> None:
    options = {"streamName": "orders", "minOffsetsPerTrigger": "9", "maxRecordsPerTrigger": "8"}
    with pytest.raises(ConfigErrors, match=r"minOffsetsPerTrigger \(9\) is more than"):
        parse_options(options)


def test_planning_lets_the_interpreter_switch_between_threads_sooner() -> None:
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        TipSessions(9).reader().initialOffset()
        assert sys.getswitchinterval() == pytest.approx(0.0005)
    finally:
        sys.setswitchinterval(before)


def test_a_micro_batch_is_logged_when_it_is_planned_and_when_it_is_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = TipSessions(9).reader()
    with caplog.at_level(logging.INFO, logger="kinesis_publishers_spark.batches"):
        end = reader.latestOffset(place(3), reader.getDefaultReadLimit())
        reader.latestOffset(end, reader.getDefaultReadLimit())
        reader.commit(end)
    planned, committed = caplog.records
    assert planned.getMessage().startswith(
        "micro-batch planned streams=orders planner=ranges shards=1 records=6 payload_bytes=60 "
        "max_lag_millis=700 buffered_records=2 plan_seconds="
    )
    assert vars(planned)["kinesis_event"] == "planned"
    assert vars(planned)["kinesis_shards"] == 1
    assert vars(planned)["kinesis_records"] == 6
    assert vars(planned)["kinesis_plan_seconds"] >= 0
    assert committed.getMessage() == "micro-batch committed streams=orders planner=ranges"


def test_the_format_of_logs_is_that_of_events() -> None:
    assert FORMAT_VARIABLE == LOG_FORMAT_VARIABLE


def test_a_level_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEVEL_VARIABLE, "LOUD")
    with pytest.raises(InvalidOptionError, match=r"KINESIS_PUBLISHERS_LOG is 'LOUD': use DEBUG"):
        TipSessions(9).reader().latestOffset(place(3))
