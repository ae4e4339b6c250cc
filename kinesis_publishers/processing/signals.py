"""Ends reading in an orderly way when the process is asked to end."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["free_signals", "stopped_by"]

_Stop: TypeAlias = "Callable[[signal.Signals], None]"

_DEFAULT_HANDLERS: Final = (signal.SIG_DFL, signal.default_int_handler)
# A loop has one handler per signal: it stops everything that reads in the loop.
_STOPS: dict[asyncio.AbstractEventLoop, defaultdict[signal.Signals, list[_Stop]]] = {}
# What the process has as its handler while the loop has ours.
_INSTALLED: dict[signal.Signals, object] = {}


def free_signals(*signals: signal.Signals) -> tuple[signal.Signals, ...]:
    """Return those of ``signals`` that the program of the user neither handles nor ignores.

    Outside of the main thread, which alone may handle signals, there are none. For SIGINT it is
    called before ``asyncio.run``, which has a handler of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        return ()
    return tuple(
        one for one in signals if signal.getsignal(one) in _DEFAULT_HANDLERS or _is_ours(one)
    )


def _is_ours(one: signal.Signals) -> bool:
    try:
        stops = _STOPS.get(asyncio.get_running_loop())
    except RuntimeError:
        return False
    return stops is not None and bool(stops[one])


@contextmanager
def stopped_by(*signals: signal.Signals, stop: _Stop) -> Iterator[None]:
    """Call ``stop`` in the event loop when one of ``signals`` comes while the body runs.

    It is called once, and so is that of everybody else in the loop: the same signal does what it
    always does when it comes again.

    Args:
        signals: free ones, see :func:`free_signals`.
        stop: is called with the signal.
    """
    # What follows is for the main thread alone: in another one no signal is free.
    if not signals:
        yield
        return
    loop = asyncio.get_running_loop()
    # Who is left without an end, as a loop over records may be, ends with the event loop.
    for closed in [one for one in _STOPS if one.is_closed()]:
        del _STOPS[closed]
    stops = _STOPS.setdefault(loop, defaultdict(list))
    for one in signals:
        if not stops[one]:
            loop.add_signal_handler(one, _stop_all, one)
            _INSTALLED[one] = signal.getsignal(one)
        stops[one].append(stop)
    try:
        yield
    finally:
        for one in signals:
            if stop in stops[one]:
                stops[one].remove(stop)
                if not stops[one]:
                    _remove_handler(loop, one)


def _remove_handler(loop: asyncio.AbstractEventLoop, one: signal.Signals) -> None:
    handler = signal.getsignal(one)
    loop.remove_signal_handler(one)
    if handler is not None and handler is not _INSTALLED.pop(one, handler):
        # The program has installed its own meanwhile, which the loop has removed.
        signal.signal(one, handler)


def _stop_all(one: signal.Signals) -> None:
    loop = asyncio.get_running_loop()
    _remove_handler(loop, one)
    for stop in _STOPS[loop].pop(one):
        stop(one)
