"""The event loop of a command, with signals, keys and pipes that do not block it."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import stat
import sys
import termios
import tty
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Final, TypeVar

from click.exceptions import Exit

T = TypeVar("T")

# SIGHUP is a terminal that was closed.
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_until_signal(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` in an event loop of its own and return its result.

    The first signal (Ctrl-C, SIGTERM, or a closed terminal) cancels it, so that it gives back what
    it holds, and raises ``Exit`` with 128 plus its number; a second one ends the process at once. A
    signal that is ignored, as SIGHUP under nohup, stays ignored.
    """
    received: list[signal.Signals] = []
    try:
        return asyncio.run(_cancelled_by_signals(work, received))
    except asyncio.CancelledError:
        if not received:
            raise
        raise Exit(128 + received[0]) from None


async def _cancelled_by_signals(work: Coroutine[Any, Any, T], received: list[signal.Signals]) -> T:
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
        return await work
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


# An arrow, a function key, or Alt with another one.
_SEVERAL_CHARACTERS: Final = re.compile(r"\x1b([\[O][0-9;]*)?.?", re.DOTALL)


@contextmanager
def pressed_keys(handle: Callable[[str], None]) -> Iterator[bool]:
    """Call ``handle`` with each key while the context lasts; yield whether keys can be read.

    They can in the foreground of a terminal, which gets its mode back at the end. Ctrl-C stays a
    signal.
    """
    if sys.stdin is None or not sys.stdin.isatty() or _is_in_background(sys.stdin.fileno()):
        yield False
        return
    fd, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(fd)

    def read() -> None:
        text = b""
        with suppress(OSError):  # the terminal is gone
            text = os.read(fd, 64)
        if not text:
            loop.remove_reader(fd)
        for key in _SEVERAL_CHARACTERS.sub("", text.decode("ascii", "ignore")):
            handle(key)

    tty.setcbreak(fd, termios.TCSANOW)
    loop.add_reader(fd, read)
    try:
        yield True
    finally:
        loop.remove_reader(fd)
        # In the background it would stop this process; the shell has set a mode of its own.
        if not _is_in_background(fd):
            with suppress(termios.error):
                termios.tcsetattr(fd, termios.TCSANOW, before)


def _is_in_background(fd: int) -> bool:
    with suppress(OSError):  # not the terminal of this session: nothing stops the process
        return os.tcgetpgrp(fd) != os.getpgrp()
    return False


# What a pipe that is ready takes without blocking (POSIX: at least 512).
_PIPE_BUFFER: Final = 4096
_BLOCK_BYTES: Final = 65_536


class OutputPipe:
    """Writes bytes to a file, a terminal or a pipe; a slow reader does not block the event loop."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._fd = _pollable_descriptor(stream)
        self._lock = asyncio.Lock()

    def on_reader_gone(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once the pipe has no reader left, as after ``| head -1``.

        The next write, which would find out, may be hours away.
        """
        fd = self._fd
        if fd is None or not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return
        loop = asyncio.get_running_loop()

        def report() -> None:
            loop.remove_reader(fd)
            callback()

        # The writing end is never readable: the event means an error.
        loop.add_reader(fd, report)

    async def write(self, data: bytes) -> None:
        """Write all of ``data``, and nothing of another call in between."""
        async with self._lock:
            if self._fd is None:
                self._stream.write(data)
                self._stream.flush()
                return
            left, loop = memoryview(data), asyncio.get_running_loop()
            while left:
                await _until_ready(self._fd, loop.add_writer, loop.remove_writer)
                left = left[os.write(self._fd, left[:_PIPE_BUFFER]) :]


async def read_blocks(stream: IO[bytes]) -> AsyncIterator[bytes]:
    """Yield what can be read as it comes, until the end of ``stream``."""
    fd, loop = _pollable_descriptor(stream), asyncio.get_running_loop()
    while True:
        if fd is not None:
            await _until_ready(fd, loop.add_reader, loop.remove_reader)
            block = os.read(fd, _BLOCK_BYTES)
        else:
            block = stream.read(_BLOCK_BYTES)
        if not block:
            return
        yield block


def _pollable_descriptor(stream: IO[bytes]) -> int | None:
    """Return the descriptor; ``None`` without one, or of a file, which never blocks."""
    loop = asyncio.get_running_loop()
    with suppress(io.UnsupportedOperation, PermissionError):
        fd = stream.fileno()
        loop.add_writer(fd, lambda: None)
        loop.remove_writer(fd)
        return fd
    return None


async def _until_ready(fd: int, add: Callable[..., None], remove: Callable[[int], object]) -> None:
    ready = asyncio.Event()
    add(fd, ready.set)
    try:
        await ready.wait()
    finally:
        remove(fd)
