"""An event sink that the configuration names and that is opened and closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from kinesis_publishers.clock import Clock
from kinesis_publishers.config import Properties
from kinesis_publishers.events import Event


class EventReporter(ABC):
    """Takes every diagnostic event of a reader.

    ``metrics.sinks`` names one: a built-in one by its name, any other as ``module:Class``. It is
    made and entered before anything is read, called with each event, and left after everything else
    is closed.
    """

    @classmethod
    @abstractmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        """Return a reporter configured by ``properties``, which name the region.

        Raises:
            ConfigError: the properties cannot work; no call is made to find out.
        """

    @abstractmethod
    def __call__(self, event: Event) -> None:
        """Take an event.

        It runs many times a second on the event loop that reads, and must not block. Its exceptions
        are logged once for each kind, and reading continues.
        """

    async def __aenter__(self) -> Self:
        """Begin to report."""
        return self

    async def __aexit__(  # noqa: B027 - most have nothing to close
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Report the remaining events in bounded time; an exception is logged."""
