"""Does something again and again while a context lasts."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kinesis_publishers.tasks import TaskScope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kinesis_publishers.clock import Clock

__all__ = ["repeated"]


@asynccontextmanager
async def repeated(
    action: Callable[[], Awaitable[None]], *, interval_seconds: float, clock: Clock, name: str
) -> AsyncIterator[None]:
    """Await ``action`` each time the interval has passed; leaving the context cancels it.

    Args:
        action: must not raise: an error would cancel whatever the context is around.
        interval_seconds: from the end of one time to the beginning of the next.
        clock: what the interval is slept on.
        name: of the task.
    """

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
