"""Sinks of events: several at once, one that fails, and the log."""

from __future__ import annotations

import logging

import pytest

from kinesis_publishers import Event, StartingPosition, fan_out_events, log_event
from kinesis_publishers.events import (
    EVENT_TYPES,
    CheckpointsRefused,
    DataLossTolerated,
    FetcherStarted,
    FetcherStopped,
    RecordsFetched,
    ShardEnded,
    ShardStopped,
    guard_events,
    level_of,
)
from kinesis_publishers.testing.fakes import sample_shard

SHARD = sample_shard().key
STARTED, ENDED = FetcherStarted(streams=("orders",)), ShardEnded(shard=SHARD)
LOSS = DataLossTolerated(shard=SHARD, message="gone")
PAGE = RecordsFetched(
    shard=SHARD,
    records=1,
    payload_bytes=1,
    millis_behind_latest=0,
    limit=1,
    loop_seconds=None,
)


def stopped(error: str | None) -> Event:
    return ShardStopped(shard=SHARD, position=StartingPosition.trim_horizon(), error=error)


def test_every_sink_gets_every_event_in_order() -> None:
    first: list[Event] = []
    second: list[Event] = []
    sink = fan_out_events(first.append, second.append)
    for event in (STARTED, ENDED):
        sink(event)
    assert first == second == [STARTED, ENDED]


def test_no_sink_is_a_sink() -> None:
    fan_out_events()(STARTED)


def test_a_guarded_sink_that_raises_does_not_keep_events_from_the_others() -> None:
    def broken(event: Event) -> None:
        raise LookupError("the exporter")

    received: list[Event] = []
    fan_out_events(guard_events(broken), received.append)(STARTED)
    assert received == [STARTED]


def test_each_kind_of_failure_is_logged_once_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(event: Event) -> None:
        raise LookupError("the exporter") if event is STARTED else KeyError("another")

    sink = guard_events(broken)
    for event in (STARTED, STARTED, ENDED, ENDED, STARTED):
        sink(event)
    kinds = [record.exc_info[0] for record in caplog.records if record.exc_info]
    assert kinds == [LookupError, KeyError]
    assert "FetcherStarted: such events are missing" in caplog.text


def test_a_guard_lets_an_interruption_through() -> None:
    def interrupted(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard_events(interrupted)(STARTED)


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (STARTED, logging.INFO),
        (ENDED, logging.INFO),
        (stopped(None), logging.INFO),
        # The program gets the error itself.
        (stopped("LookupError: x"), logging.INFO),
        (FetcherStopped(streams=(), seconds=1.0, error="LookupError: x"), logging.INFO),
        (LOSS, logging.ERROR),
        (CheckpointsRefused(message="another reader writes"), logging.WARNING),
        (PAGE, logging.DEBUG),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_log_shows_a_life_at_info_and_pages_at_debug(
    event: Event, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert level_of(event) == level
    with caplog.at_level(logging.DEBUG, "kinesis_publishers"):
        log_event(event)
    (record,) = caplog.records
    assert record.levelno == level
    assert record.getMessage() == str(event)


def test_every_event_is_documented_and_immutable() -> None:
    for event_type in EVENT_TYPES:
        assert event_type.__doc__
        assert event_type.__attrs_attrs__
        with pytest.raises(AttributeError):
            event_type.__new__(event_type).shard = SHARD  # type: ignore[attr-defined]
