"""What a factory is given, made of fakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.abc import PublisherContext
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.testing.fakes.control_plane import FakeControlPlane
from kinesis_publishers.testing.fakes.data_plane import FakeDataPlane

if TYPE_CHECKING:
    from kinesis_publishers.abc import ControlPlane, DataPlane
    from kinesis_publishers.clock import Clock
    from kinesis_publishers.events import Event, EventSink

__all__ = ["publisher_context"]


def publisher_context(
    data_plane: DataPlane | None = None,
    *,
    control_plane: ControlPlane | None = None,
    clock: Clock | None = None,
    events: EventSink | None = None,
) -> PublisherContext:
    """Return the context of a factory.

    Args:
        data_plane: without one, nobody may read a shard: it fails the test.
        control_plane: without one, there are no streams.
        clock: this machine's unless it is given.
        events: dropped unless it is given.
    """
    return PublisherContext(
        data_plane=data_plane or FakeDataPlane({}),
        control_plane=control_plane or FakeControlPlane(),
        clock=clock or SystemClock(),
        events=events or _drop,
    )


def _drop(event: Event) -> None:
    """Let nobody learn of ``event``."""
