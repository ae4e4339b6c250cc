"""Which sinks a configuration opens, and what becomes of one that fails."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pytest

from kinesis_publishers import Clock, Event, EventReporter, Properties
from kinesis_publishers.config import MetricsConfig
from kinesis_publishers.errors import ConfigError, PluginLoadError
from kinesis_publishers.metrics.sinks import event_reporter_classes, open_event_sink
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.metrics.metric_support import FETCHED, PROCESSED

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from kinesis_publishers import EventSink

ONE_OF_OURS = f"{__name__}:Notes"


class Notes(EventReporter):
    """Notes what it is told, and whether it was closed."""

    made: Notes

    def __init__(self) -> None:
        type(self).made = self
        self.events: list[Event] = []
        self.is_closed = False

    @classmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        return cls()

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    async def __aexit__(self, *_: object) -> None:
        self.is_closed = True


class BreaksAtTheEnd(Notes):
    """Cannot be closed."""

    async def __aexit__(self, *_: object) -> None:
        raise LookupError("the exporter has gone")


class CannotBeMade(Notes):
    """Does not like the configuration."""

    @classmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        raise ConfigError("set my.exporter.url")


class CallIsAsync(Notes):
    async def __call__(self, event: Event) -> None:  # type: ignore[override]
        """Do nothing unless it is awaited."""


class EntryIsNotAsync(Notes):
    def __aenter__(self) -> Self:  # type: ignore[override]
        return self


class NotAReporter:
    """Only looks like one."""

    def __call__(self, event: Event) -> None:
        pass


def properties_with(sinks: str) -> Properties:
    given = {"kinesis.metrics.sinks": sinks, "aws.region": "eu-west-1"}
    return Properties.parse(given, complete=False)


def opened(sinks: str, further: EventSink | None = None) -> AbstractAsyncContextManager[EventSink]:
    return open_event_sink(properties_with(sinks), ManualClock(), further=further)


async def test_a_class_of_ones_own_gets_every_event_and_is_closed() -> None:
    async with opened(ONE_OF_OURS) as sink:
        sink(FETCHED)
    assert Notes.made.events == [FETCHED]
    assert Notes.made.is_closed


async def test_a_sink_that_is_handed_over_gets_what_the_named_ones_get() -> None:
    further: list[Event] = []
    async with opened(ONE_OF_OURS, further.append) as sink:
        sink(FETCHED)
    assert further == Notes.made.events == [FETCHED]


async def test_a_sink_that_is_handed_over_and_raises_does_not_stop_anything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(event: Event) -> None:
        raise LookupError("the exporter")

    async with opened("none", broken) as sink:
        sink(FETCHED)
    assert "Reading continues" in caplog.text


async def test_every_name_is_a_reporter_and_all_of_them_work_together() -> None:
    names = set(MetricsConfig.sinks.parser.built_in)  # type: ignore[attr-defined]
    assert len(event_reporter_classes(properties_with(",".join(names)))) == len(names) == 5
    async with opened(",".join(names - {"cloudwatch"})) as sink:
        sink(FETCHED)
        sink(PROCESSED)


async def test_a_sink_that_cannot_be_closed_leaves_the_outcome_to_who_reads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with opened(f"{__name__}:BreaksAtTheEnd,{ONE_OF_OURS}"):
        pass
    assert "BreaksAtTheEnd could not be closed" in caplog.text
    assert Notes.made.is_closed


async def test_a_sink_that_does_not_like_the_configuration_fails_before_anything_is_read() -> None:
    with pytest.raises(ConfigError, match=r"set my\.exporter\.url"):
        async with opened(f"{ONE_OF_OURS},{__name__}:CannotBeMade"):
            pytest.fail("opened")
    assert Notes.made.is_closed


async def test_a_class_that_is_no_reporter_is_refused() -> None:
    with pytest.raises(PluginLoadError, match=r"does not extend .*EventReporter"):
        async with opened(f"{__name__}:NotAReporter"):
            pytest.fail("opened")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (CallIsAsync, "__call__ must not be async"),
        (EntryIsNotAsync, r"__aenter__ must be async \(async def __aenter__\)"),
    ],
)
async def test_a_reporter_that_cannot_be_called_as_it_will_be_is_refused(
    kind: type, message: str
) -> None:
    with pytest.raises(PluginLoadError, match=f"{kind.__name__} does not fit: .*{message}"):
        async with opened(f"{__name__}:{kind.__name__}"):
            pytest.fail("opened")


class AsyncObject:
    async def __call__(self, event: Event) -> None:
        raise AssertionError("it is never awaited")


async def async_function(event: Event) -> None:
    raise AssertionError("it is never awaited")


@pytest.mark.parametrize(
    ("further", "message"),
    [
        (async_function, "events is async.*and would never be awaited"),
        (AsyncObject(), "events is async"),
        (partial(async_function), "events is async"),
        ([], r"events must be a function of one event, not \[\]"),
    ],
)
async def test_what_cannot_take_events_is_refused_before_anything_is_opened(
    further: Any, message: str
) -> None:
    Notes.made = None  # type: ignore[assignment]
    with pytest.raises(TypeError, match=message):
        async with opened(ONE_OF_OURS, further):
            pytest.fail("opened")
    assert Notes.made is None


async def test_without_the_extra_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "kinesis_publishers.metrics.open_telemetry", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    expected = r"pip install 'kinesis-publishers\[opentelemetry\]'"
    with pytest.raises(PluginLoadError, match=expected):
        async with opened("opentelemetry"):
            pytest.fail("opened")
