"""Opens the sinks that a configuration names as one; the log as a sink; periodic work."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from inspect import iscoroutinefunction
from typing import Self

from kinesis_publishers.abc import EventReporter
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import MetricsConfig, Properties
from kinesis_publishers.config.plugins import load_plugin
from kinesis_publishers.events import Event, EventSink, fan_out_events, guard_events, log_event
from kinesis_publishers.tasks import TaskScope

_LOGGER = logging.getLogger(__name__)


@asynccontextmanager
async def open_event_sink(
    properties: Properties, clock: Clock, *, further: EventSink | None = None
) -> AsyncIterator[EventSink]:
    """Open the sinks of ``metrics.sinks``, yield a sink that feeds them all, and close them.

    ``further`` is one that the properties do not name. An error of a sink that is called or closed
    is logged, and stops neither the other sinks nor the reading. An error of one that is made or
    opened is raised: nothing has been read then.

    Raises:
        TypeError: ``further`` cannot be called, or is async; nothing is opened then.
        PluginLoadError: a class cannot be loaded or does not fit.
        ConfigError: a sink cannot work with these properties.
    """
    if further is not None:
        _check_callable(further)
    async with AsyncExitStack() as stack:
        sinks: list[EventSink] = []
        for kind in event_reporter_classes(properties):
            reporter = kind.from_properties(properties, clock)
            await reporter.__aenter__()
            stack.push_async_callback(_close, reporter)
            sinks.append(reporter)
        if further is not None:
            sinks.append(further)
        yield fan_out_events(*(guard_events(sink) for sink in sinks))


def event_reporter_classes(properties: Properties) -> list[type[EventReporter]]:
    """Return the sinks that the properties select; raises ``PluginLoadError``."""
    option = MetricsConfig.sinks
    found = [load_plugin(option, name, EventReporter) for name in properties.get(option)]  # type: ignore[type-abstract]
    if properties.get(MetricsConfig.progress):
        from kinesis_publishers.metrics.progress_bar import ProgressBar

        found.append(ProgressBar)
    return found


def _check_callable(events: object) -> None:
    if not callable(events):
        raise TypeError(f"events must be a function of one event, not {events!r}")
    if iscoroutinefunction(events) or iscoroutinefunction(type(events).__call__):
        raise TypeError(
            f"events is async ({events!r}), and would never be awaited: pass a plain function, "
            "which may put events into a queue for a task of your own"
        )


async def _close(reporter: EventReporter) -> None:
    try:
        await reporter.__aexit__(None, None, None)
    except Exception as error:  # The outcome of the reading counts.
        _LOGGER.warning(
            "The event sink %s could not be closed; what it had not reported is missing.",
            type(reporter).__name__,
            exc_info=error,
        )


class EventLog(EventReporter):
    """Selected by ``metrics.sinks = log``, the default: :func:`log_event` for every event."""

    @classmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        return cls()

    def __call__(self, event: Event) -> None:
        log_event(event)


@asynccontextmanager
async def repeated(
    action: Callable[[], Awaitable[None]], interval_seconds: float, clock: Clock, *, name: str
) -> AsyncIterator[None]:
    """Await ``action``, which must not raise, after each interval until the context is left."""

    async def repeat() -> None:
        while True:
            await clock.sleep(interval_seconds)
            await action()

    async with TaskScope() as scope:
        scope.spawn(repeat(), name=name)
        try:
            yield
        finally:
            scope.cancel()
