"""Ends asynchronous commands in order: a signal cancels them, and the exit code names it."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Final, TypeVar

from click.exceptions import Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["INTERRUPTED", "run_until_signal"]

T = TypeVar("T")

INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit code after Ctrl-C, as shells show it."""

# SIGHUP is a terminal that was closed.
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_until_signal(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` in an event loop of its own and return its result.

    The first signal (Ctrl-C, SIGTERM, or a closed terminal) cancels it, so that it gives back what
    it holds; a second one ends the process at once. A signal that is ignored, as SIGHUP under
    nohup, stays ignored.

    Raises:
        Exit: a signal ended it; the code is 128 and the number of the signal.
    """
    received: list[signal.Signals] = []
    try:
        return asyncio.run(_cancelled_by_signals(work, received))
    except asyncio.CancelledError:
        if not received:
            raise
        raise Exit(128 + received[0]) from None


async def _cancelled_by_signals(
    work: Callable[[], Coroutine[Any, Any, T]], received: list[signal.Signals]
) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "a coroutine that runs has a task"
    handled = [one for one in _SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]

    def interrupt(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()
        for one in handled:
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)

    for number in handled:
        loop.add_signal_handler(number, interrupt, number)
    try:
        return await work()
    finally:
        if not received:
            for number in handled:
                loop.remove_signal_handler(number)
