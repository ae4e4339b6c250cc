"""Ends reading in an orderly way when the process is asked to end."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["stopped_by"]


@contextmanager
def stopped_by(*signals: signal.Signals, stop: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call ``stop`` in the event loop when one of ``signals`` comes while the body runs.

    It is called once: the same signal does what it always does when it comes again. Nothing is
    changed outside of the main thread, which alone may, or where somebody else handles SIGTERM.
    """
    loop = asyncio.get_running_loop()
    taken = [one for one in signals if _is_free(one)]

    def on_signal(one: signal.Signals) -> None:
        loop.remove_signal_handler(one)
        stop(one)

    for one in taken:
        loop.add_signal_handler(one, on_signal, one)
    try:
        yield
    finally:
        for one in taken:
            loop.remove_signal_handler(one)


def _is_free(one: signal.Signals) -> bool:
    if threading.current_thread() is not threading.main_thread():
        return False
    # asyncio.run has a handler of its own for SIGINT, and takes its place again.
    return one is signal.SIGINT or signal.getsignal(one) is signal.SIG_DFL
