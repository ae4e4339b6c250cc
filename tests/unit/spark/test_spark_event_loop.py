"""The bridge from synchronous callers to asyncio: lazy, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import threading
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers_spark.event_loop import EventLoopThread, iterate

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


def test_all_values_come_in_order_and_the_source_is_closed() -> None:
    source = Source(3)
    assert list(iterate(source.values())) == [0, 1, 2]
    assert source.log == ["opened", "made 0", "made 1", "made 2", "closed"]


def test_nothing_is_made_before_it_is_asked_for() -> None:
    source = Source()
    values = iterate(source.values())
    assert source.log == []
    assert next(values) == 0
    assert source.log == ["opened", "made 0"]
    assert next(values) == 1
    assert source.log == ["opened", "made 0", "made 1"]
    values.close()  # type: ignore[attr-defined]


def test_a_consumer_that_closes_early_closes_the_source() -> None:
    source = Source()
    values = iterate(source.values())
    next(values)
    values.close()  # type: ignore[attr-defined]
    assert source.log == ["opened", "made 0", "closed"]


def test_a_consumer_that_goes_away_closes_the_source() -> None:
    source = Source()
    assert list(islice(iterate(source.values()), 2)) == [0, 1]
    gc.collect()
    assert source.log[-1] == "closed"


def test_a_consumer_that_fails_closes_the_source() -> None:
    source = Source()
    with pytest.raises(ZeroDivisionError):
        sum(1 // number for number in iterate(source.values()))
    gc.collect()
    assert source.log[-1] == "closed"


def test_an_iterator_that_was_never_asked_leaves_nothing() -> None:
    source = Source()
    iterate(source.values()).close()  # type: ignore[attr-defined]
    gc.collect()
    assert source.log == []


def test_an_error_reaches_the_consumer_after_the_values_before_it() -> None:
    source = Source(fail_at=2)
    values = iterate(source.values())
    assert [next(values), next(values)] == [0, 1]
    with pytest.raises(LookupError, match="no 2"):
        next(values)
    assert source.log[-1] == "closed"


def test_a_source_that_ends_at_once_yields_nothing() -> None:
    assert list(iterate(Source(0).values())) == []


def test_two_iterations_may_be_interleaved() -> None:
    one, other = iterate(Source(2).values()), iterate(Source(2).values())
    assert [next(one), next(other), next(one), next(other)] == [0, 0, 1, 1]
    assert list(one) == list(other) == []


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
