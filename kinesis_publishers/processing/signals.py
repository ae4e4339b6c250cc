"""Ends reading in an orderly way when a signal asks the process to end."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

_Stop: TypeAlias = "Callable[[signal.Signals], None]"
_IsOpen: TypeAlias = "Callable[[], bool]"
_Loop: TypeAlias = "asyncio.AbstractEventLoop | None"

_FINISHING: Final = b"\nFinishing what has begun. Ctrl-C again stops at once.\n"
_STDERR: Final = 2
_DEFAULTS: Final = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
# What a signal stops, each with the loop that does so; and the handlers before ours.
_STOPS: defaultdict[signal.Signals, list[tuple[_Loop, _Stop, _IsOpen]]] = defaultdict(list)
_FORMER: dict[signal.Signals, Any] = {}
#: Readers that Ctrl-C has stopped and that have not closed yet: the task that reads, and whether it
#: is certain to close the reader. Otherwise it may have left it open, and read on.
CLOSING: Final = WeakKeyDictionary[object, tuple["asyncio.Task[Any]", bool]]()


def _is_free(one: signal.Signals) -> bool:
    handler = signal.getsignal(one)
    if handler in (*_DEFAULTS.values(), _stop_latest):
        return True
    # asyncio.run installs this one: it is the program's default for Ctrl-C.
    return isinstance(handler, partial) and isinstance(
        getattr(handler.func, "__self__", None), asyncio.Runner
    )


@contextmanager
def stopped_by_signals(
    stop: _Stop, *, in_loop: bool = True, is_open: _IsOpen = lambda: True
) -> Iterator[None]:
    """Call ``stop`` when SIGTERM or Ctrl-C comes while the body runs.

    The first signal calls every ``stop`` once; the same signal has its normal effect when it comes
    again. A signal that the user's program handles or ignores remains its own, and only the main
    thread can handle any.

    Args:
        stop: is called with the signal.
        in_loop: whether the running event loop calls ``stop``. Otherwise the main thread does,
            between two steps of what it does then, as in a notebook, whose loop waits meanwhile.
        is_open: whether there is something to stop. If nothing in the loop is open, the signal has
            its normal effect; else what opens at the moment is stopped with the others.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = [one for one in _DEFAULTS if _is_free(one)]
    own = asyncio.get_running_loop() if in_loop else None, stop, is_open
    for one in signals:
        if signal.getsignal(one) is not _stop_latest:
            _FORMER[one] = signal.signal(one, _stop_latest)
        _STOPS[one].append(own)
    try:
        yield
    finally:
        for one in signals:
            # After a signal, and in a fork, it is no longer there.
            with suppress(ValueError):
                _STOPS[one].remove(own)
            _restore(one)


def _restore(one: signal.Signals) -> None:
    """Restore the former handler if nothing is left to be stopped by a signal."""
    # A reader may have been left open at the end of its loop.
    _STOPS[one] = [own for own in _STOPS[one] if not (own[0] and own[0].is_closed())]
    if _STOPS[one] or threading.current_thread() is not threading.main_thread():
        return  # The next reader uses the handler, or the next signal removes it.
    # A handler that the program has installed in the meantime stays.
    if signal.getsignal(one) is _stop_latest:
        former = _FORMER.pop(one, _DEFAULTS[one])
        has_ended = isinstance(former, partial) and former.keywords["main_task"].done()
        signal.signal(one, _DEFAULTS[one] if has_ended else former)  # type: ignore[arg-type]


def _stop_latest(number: int, _: object) -> None:
    """Stop everything that reads in the loop of the latest reader, or, without one, in threads."""
    one = signal.Signals(number)
    readers = [own for own in _STOPS[one] if not (own[0] and own[0].is_closed())]
    latest = readers[-1][0] if readers else None
    _STOPS[one] = [own for own in readers if own[0] is not latest]
    _restore(one)
    is_any_open = any(is_open() for loop, _, is_open in readers if loop is latest)
    stops = [stop for loop, stop, _ in readers if loop is latest and is_any_open]
    if stops and one is signal.SIGINT:
        # Not by sys.stderr, whose writing this may have interrupted.
        with suppress(OSError):
            if os.isatty(_STDERR):
                os.write(_STDERR, _FINISHING)
    for stop in stops:
        if latest is None:
            stop(one)
        else:
            latest.call_soon_threadsafe(stop, one)
    if not stops:
        signal.raise_signal(one)


def _release_in_child() -> None:
    # A fork's signals are not its parent's.
    for one, former in _FORMER.items():
        signal.signal(one, former)
    for held in (_STOPS, _FORMER, CLOSING):
        held.clear()


os.register_at_fork(after_in_child=_release_in_child)


async def interrupt() -> None:
    """Give a Ctrl-C that ended reading its usual effect, now that everything is closed.

    While other readers of the loop close, this returns: the last one raises a KeyboardInterrupt, or
    a CancelledError under ``asyncio.run``, which raises the KeyboardInterrupt in the end.
    """
    current, loop = asyncio.current_task(), asyncio.get_running_loop()
    for task, is_certain in CLOSING.values():
        is_left = task.done() or (task is current and not is_certain)
        if task.get_loop() is loop and not is_left:
            return
    signal.raise_signal(signal.SIGINT)
    # The main task is cancelled here, and any other one ends with it.
    await asyncio.sleep(0)
    raise asyncio.CancelledError
