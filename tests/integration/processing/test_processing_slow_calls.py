"""Calls that take long, in each way of the simple API."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import (
    DeadLetter,
    KinesisDataFetcher,
    ScanResult,
    read,
    records,
    scan,
)
from kinesis_publishers.events import CallbackDelayed

if TYPE_CHECKING:
    from kinesis_publishers import Event
    from tests.integration.processing.processing_support import Orders


def scan_slowly(orders: Orders, wait: Callable[[], bool], **more: Any) -> None:
    def process(_: object) -> ScanResult:
        wait()
        return ScanResult.STOP

    scan(orders.properties(), process, **more)


def put_aside_slowly(orders: Orders, wait: Callable[[], bool], **more: Any) -> None:
    def process(_: object) -> None:
        raise ZeroDivisionError

    def put(*_: object) -> None:
        wait()
        raise InterruptedError

    with pytest.raises(InterruptedError):
        scan(orders.properties(), process, on_error=DeadLetter(put), **more)


def loop_slowly(orders: Orders, wait: Callable[[], bool], **more: Any) -> None:
    with records(orders.properties(), **more) as stream:
        for _ in stream:
            wait()
            break


def read_slowly(orders: Orders, wait: Callable[[], bool], **more: Any) -> None:
    async def main() -> None:
        async with read(orders.properties(), **more) as stream:
            async for _ in stream:
                await asyncio.to_thread(wait)
                break

    asyncio.run(main())


def scan_with_slow_watermarks(orders: Orders, wait: Callable[[], bool], **more: Any) -> None:
    def tell(_: object) -> None:
        wait()
        stop.set()

    stop = threading.Event()
    scan(orders.properties(), lambda _: None, on_watermark=tell, stop=stop, **more)


def fetch_with_slow_watermarks(orders: Orders, wait: Callable[[], bool], **more: Any) -> None:
    async def take(*_: object) -> None:
        pass

    async def main() -> None:
        async def tell(_: object) -> None:
            await asyncio.to_thread(wait)
            fetcher.stop()

        async with KinesisDataFetcher.from_properties(
            orders.properties(), take, on_watermark=tell, **more
        ) as fetcher:
            await fetcher.run()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("work", "name"),
    [
        (scan_slowly, f"{__name__}.scan_slowly.<locals>.process"),
        (partial(scan_slowly, decode="text"), f"{__name__}.scan_slowly.<locals>.process"),
        (partial(scan_slowly, per_batch=True), f"{__name__}.scan_slowly.<locals>.process"),
        (put_aside_slowly, "put of DeadLetter for record "),
        (loop_slowly, "the body of the loop"),
        (read_slowly, "the body of the loop"),
        (scan_with_slow_watermarks, "on_watermark for 20"),
        (fetch_with_slow_watermarks, "on_watermark for 20"),
    ],
    ids=[
        *("record", "value", "batch", "dead letter", "loop", "async loop"),
        *("watermark", "async watermark"),
    ],
)
def test_a_call_that_takes_long_is_reported_while_it_does_and_when_it_returns(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, work: Callable[..., None], name: str
) -> None:
    monkeypatch.setattr("kinesis_publishers.readers.consumers.LOOK_SECONDS", 0.02)
    orders.put(3, key="one shard")
    events: list[CallbackDelayed] = []
    is_reported = threading.Event()

    def note(event: Event) -> None:
        # Another call may take that long on a busy machine.
        if isinstance(event, CallbackDelayed) and event.callback.startswith(name):
            events.append(event)
            is_reported.set()

    work(orders, partial(is_reported.wait, 60), events=note, processing_slow_after="50ms")
    assert is_reported.is_set()
    assert (events[0].has_returned, events[-1].has_returned) == (False, True)
