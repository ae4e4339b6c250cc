"""The bridge from synchronous callers to asyncio: nothing is left behind."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.event_loop import EventLoopThread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Source:
    """Counts to ``stop`` with a resource held, a suspension before each value, and a log."""

    def __init__(self, stop: int = 5, *, fail_at: int | None = None) -> None:
        self.log: list[str] = []
        self._stop = stop
        self._fail_at = fail_at

    async def values(self) -> AsyncIterator[int]:
        self.log.append("opened")
        try:
            for number in range(self._stop):
                await asyncio.sleep(0)
                if number == self._fail_at:
                    raise LookupError(f"no {number}")
                self.log.append(f"made {number}")
                yield number
        finally:
            await asyncio.sleep(0)  # closing a connection takes a turn of the loop, too
            self.log.append("closed")


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_work_runs_in_the_named_thread_and_closing_ends_it() -> None:
    loop = EventLoopThread(name="bridge-test")

    async def where() -> str:
        return threading.current_thread().name

    try:
        assert loop.start(where()).result(10) == "bridge-test"
        (thread,) = threads("bridge-test")
    finally:
        loop.close()
    assert not thread.is_alive()


def test_a_failure_is_the_futures() -> None:
    loop = EventLoopThread(name="bridge-test")

    async def fail() -> None:
        raise LookupError("nowhere")

    try:
        with pytest.raises(LookupError, match="nowhere"):
            loop.start(fail()).result(10)
    finally:
        loop.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_waiting_caller_is_told_when_work_ends_the_loop() -> None:
    loop = EventLoopThread(name="bridge-test")
    started = threading.Event()

    async def wait() -> None:
        started.set()
        await asyncio.sleep(3600)

    async def exits() -> None:
        raise SystemExit(3)

    waiting = loop.start(wait())
    assert started.wait(10)
    with pytest.raises(SystemExit):
        loop.start(exits()).result(10)
    with pytest.raises(CancelledError):
        waiting.result(10)
    for thread in threads("bridge-test"):
        thread.join(10)


def test_closing_cancels_what_runs_and_waits_for_its_cleaning_up() -> None:
    loop = EventLoopThread(name="bridge-test")
    source, started = Source(), threading.Event()

    async def work() -> None:
        try:
            async for _ in source.values():
                started.set()
                await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.05)
            source.log.append("cleaned up")

    future = loop.start(work())
    assert started.wait(10)
    loop.close()
    assert future.cancelled()
    assert "cleaned up" in source.log
    assert "closed" in source.log


def test_closing_waits_for_the_threads_that_work_has_started() -> None:
    loop = EventLoopThread(name="bridge-test")

    async def work() -> threading.Thread:
        return await asyncio.to_thread(threading.current_thread)

    try:
        worker = loop.start(work()).result(10)
        assert worker.is_alive()
    finally:
        loop.close()
    assert not worker.is_alive()


def test_a_call_runs_in_the_thread_before_what_is_started_after_it() -> None:
    loop = EventLoopThread(name="bridge-test")
    seen: list[str] = []

    async def snapshot() -> list[str]:
        return list(seen)

    try:
        loop.call(
            lambda text: seen.append(f"{text} in {threading.current_thread().name}"), "called"
        )
        assert loop.start(snapshot()).result(10) == ["called in bridge-test"]
    finally:
        loop.close()
