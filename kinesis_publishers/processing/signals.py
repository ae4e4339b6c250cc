"""Ends reading in an orderly way when a signal asks the process to end."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

_Stop: TypeAlias = "Callable[[signal.Signals], None]"

_DEFAULT_HANDLERS: Final = (signal.SIG_DFL, signal.default_int_handler)
# A loop has one handler per signal: it stops everything that reads in the loop.
_STOPS: dict[asyncio.AbstractEventLoop, defaultdict[signal.Signals, list[_Stop]]] = {}
# What the process has as its handler while the loop has ours.
_INSTALLED: dict[signal.Signals, object] = {}


def free_signals(*signals: signal.Signals) -> tuple[signal.Signals, ...]:
    """Return the ``signals`` that the user's program neither handles nor ignores.

    Only the main thread may handle signals: in another thread there are none. For SIGINT, call this
    before ``asyncio.run``, which installs its own handler.
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

    The first signal calls every ``stop`` of the loop once; the same signal has its normal effect
    when it comes again.

    Args:
        signals: free ones, see :func:`free_signals`.
        stop: is called with the signal.
    """
    # The rest works in the main thread only: in another one no signal is free.
    if not signals:
        yield
        return
    loop = asyncio.get_running_loop()
    # A context that was never left, of a loop over records for example, ends with its event loop.
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
        # The program has installed its own in the meantime, and the loop has removed that.
        signal.signal(one, handler)


def _stop_all(one: signal.Signals) -> None:
    loop = asyncio.get_running_loop()
    _remove_handler(loop, one)
    for stop in _STOPS[loop].pop(one):
        stop(one)
