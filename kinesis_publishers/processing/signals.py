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

_Stop: TypeAlias = "Callable[[signal.Signals], None]"
_Loop: TypeAlias = "asyncio.AbstractEventLoop | None"

_FINISHING: Final = b"\nFinishing what has begun. Ctrl-C again stops at once.\n"
_STDERR: Final = 2
_DEFAULT_HANDLERS: Final = (signal.SIG_DFL, signal.default_int_handler)
# One handler per signal stops everything that reads in a loop, or, without one, in threads.
_STOPS: dict[_Loop, defaultdict[signal.Signals, list[_Stop]]] = {}
# The previous handlers and ours. A handler that the program installs meanwhile stays.
_FORMER: dict[tuple[_Loop, signal.Signals], Any] = {}
_INSTALLED: dict[tuple[_Loop, signal.Signals], Any] = {}
# Readers that Ctrl-C has stopped and that have not closed yet: their task, and whether they are
# certain to close.
_CLOSING: dict[object, tuple[asyncio.Task[Any], bool]] = {}


def _is_free(one: signal.Signals) -> bool:
    handler = signal.getsignal(one)
    if handler in _DEFAULT_HANDLERS or handler in _INSTALLED.values():
        return True
    # asyncio.run installs this one: it is the program's default for Ctrl-C.
    return isinstance(handler, partial) and isinstance(
        getattr(handler.func, "__self__", None), asyncio.Runner
    )


@contextmanager
def stopped_by_signals(stop: _Stop, *, in_loop: bool = True) -> Iterator[None]:
    """Call ``stop`` when SIGTERM or Ctrl-C comes while the body runs.

    The first signal calls every ``stop`` once; the same signal has its normal effect when it comes
    again. A signal that the user's program handles or ignores remains its own, and only the main
    thread can handle any.

    Args:
        stop: is called with the signal.
        in_loop: whether the running event loop calls ``stop``. Otherwise the main thread does,
            between two steps of what it does then, as in a notebook, whose loop waits meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _forget_closed_loops()
    signals = [one for one in (signal.SIGTERM, signal.SIGINT) if _is_free(one)]
    loop = asyncio.get_running_loop() if in_loop else None
    stops = _STOPS.setdefault(loop, defaultdict(list))
    for one in signals:
        if not stops[one] and signal.getsignal(one) is not _INSTALLED.get((loop, one)):
            _install_handler(loop, one)
        stops[one].append(stop)
    try:
        yield
    finally:
        # A fork has released its parent's signals, and may handle them itself.
        for one in signals if _STOPS.get(loop) is stops else ():
            if stop in stops[one]:
                stops[one].remove(stop)
                if not (stops[one] or (loop and loop.is_closed())):
                    _remove_handler(loop, one)


@contextmanager
def stopped_with_others(stop: _Stop) -> Iterator[None]:
    """Call ``stop`` when a signal stops other readers of the running loop while the body runs.

    A reader that opens would miss it. Without others the signal has its usual effect.
    """
    stops = _STOPS.get(asyncio.get_running_loop())
    joined = [others for others in stops.values() if others] if stops else []
    for others in joined:
        others.append(stop)
    try:
        yield
    finally:
        for others in joined:
            with suppress(ValueError):
                others.remove(stop)


def _forget_closed_loops() -> None:
    # A closed loop has removed its handlers, also of contexts that were never left.
    for closed in [one for one in _STOPS if one is not None and one.is_closed()]:
        for one in _STOPS.pop(closed):
            _FORMER.pop((closed, one), None)
            _INSTALLED.pop((closed, one), None)
    for left in [reader for reader, (task, _) in _CLOSING.items() if task.done()]:
        del _CLOSING[left]


def _install_handler(loop: _Loop, one: signal.Signals) -> None:
    _FORMER[loop, one] = signal.getsignal(one)
    if loop is None:
        signal.signal(one, lambda *_: _stop_all(None, one))
    else:
        loop.add_signal_handler(one, _stop_all, loop, one)
    _INSTALLED[loop, one] = signal.getsignal(one)


def _remove_handler(loop: _Loop, one: signal.Signals) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # The next reader uses the handler, or the next signal removes it.
    handler = signal.getsignal(one)
    if handler is None:
        return  # The interpreter ends.
    if loop is not None:
        loop.remove_signal_handler(one)
    default = signal.default_int_handler if one is signal.SIGINT else signal.SIG_DFL
    former = _FORMER.pop((loop, one), default)
    installed = _INSTALLED.pop((loop, one), handler)
    # A handler that the program or another reader installed in the meantime stays.
    signal.signal(one, former if handler is installed else handler)
    for other, its_former in _FORMER.items():
        if other[1] is one and its_former is installed:
            _FORMER[other] = former


def _stop_all(loop: _Loop, one: signal.Signals) -> None:
    _remove_handler(loop, one)
    stops = _STOPS[loop].pop(one, [])
    if stops and one is signal.SIGINT:
        # Not by sys.stderr, whose writing this may have interrupted.
        with suppress(OSError):
            if os.isatty(_STDERR):
                os.write(_STDERR, _FINISHING)
    for stop in stops:
        stop(one)
    if not stops:
        signal.raise_signal(one)


def _release_in_child() -> None:
    # A fork's signals are not its parent's.
    if _FORMER:
        # Through it asyncio would tell the parent.
        signal.set_wakeup_fd(-1)
    for (_, one), former in reversed(_FORMER.items()):
        signal.signal(one, former)
    for held in (_STOPS, _FORMER, _INSTALLED, _CLOSING):
        held.clear()


os.register_at_fork(after_in_child=_release_in_child)


def await_closing(reader: object, task: asyncio.Task[Any], *, is_certain: bool) -> None:
    """Keep :func:`interrupt` from raising before ``reader``, which Ctrl-C has stopped, closes.

    ``task`` reads. If it ends before, it has left ``reader`` open; unless it ``is_certain`` to
    close it, it may have left it open and read on.
    """
    _CLOSING[reader] = task, is_certain


def has_closed(reader: object) -> None:
    """Forget a reader that has closed, whether or not Ctrl-C stopped it."""
    _CLOSING.pop(reader, None)


async def interrupt() -> None:
    """Give a Ctrl-C that ended reading its usual effect, now that everything is closed.

    While other readers of the loop close, this returns: the last one raises a KeyboardInterrupt, or
    a CancelledError under ``asyncio.run``, which raises the KeyboardInterrupt in the end.
    """
    current, loop = asyncio.current_task(), asyncio.get_running_loop()
    for task, is_certain in _CLOSING.values():
        is_left = task.done() or (task is current and not is_certain)
        if task.get_loop() is loop and not is_left:
            return
    signal.raise_signal(signal.SIGINT)
    # The main task is cancelled here, and any other one ends with it.
    await asyncio.sleep(0)
    raise asyncio.CancelledError
