"""Two ways in which work outlives the task that began it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from kinesis_publishers.clock import Clock

__all__ = ["SingleFlight", "finish_once_begun"]

_T = TypeVar("_T")

# A call that is under way when its task is cancelled is usually answered within a second.
_GRACE_SECONDS = 5.0


class SingleFlight(Generic[_T]):
    """Does something once for all who ask for it at the same time.

    They all get the result, or the failure, of the one who does it. If that one is cancelled,
    another one begins anew.
    """

    def __init__(self) -> None:
        self._flight: asyncio.Future[_T] | None = None

    async def run(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Return the result of ``work``, or of somebody else's that is under way."""
        while (flight := self._flight) is not None:
            # Unlike awaiting the future, this does not cancel it when the waiter is cancelled.
            await asyncio.wait({flight})
            if not flight.cancelled():
                return flight.result()
        self._flight = flight = asyncio.get_running_loop().create_future()
        try:
            result = await work()
        except Exception as error:
            flight.set_exception(error)
            flight.exception()  # there may be nobody else who asks
            raise
        except BaseException:
            flight.cancel()
            raise
        else:
            flight.set_result(result)
            return result
        finally:
            self._flight = None


async def finish_once_begun(call: Coroutine[Any, Any, _T], *, clock: Clock) -> _T:
    """Await ``call``; if the task is cancelled meanwhile, give it a few seconds to end first.

    It serves a call whose answer must not be lost: what it has made would be nobody's.
    """
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(TimeoutError):
            async with clock.timeout(_GRACE_SECONDS):
                await asyncio.wait({task})
        raise
    finally:
        if task.done() and not task.cancelled():
            task.exception()
        task.cancel()
