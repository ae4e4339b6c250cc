"""The clock that tests move: who is asleep, and how to wait for that."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_publishers.testing import ManualClock


async def test_waiting_for_sleepers_ends_when_enough_are_asleep(manual_clock: ManualClock) -> None:
    first = asyncio.create_task(manual_clock.sleep(5))
    waiting = asyncio.create_task(manual_clock.wait_for_sleepers(2))
    await manual_clock.settle()
    assert manual_clock.sleeper_count == 1
    assert not waiting.done()
    second = asyncio.create_task(manual_clock.sleep(7))
    await waiting
    await manual_clock.wait_for_sleepers(2)
    await manual_clock.advance(7)
    assert first.done()
    assert second.done()


async def test_a_timeout_says_whether_it_has_expired(manual_clock: ManualClock) -> None:
    async def wait_for(event: asyncio.Event) -> bool:
        with suppress(TimeoutError):
            async with manual_clock.timeout(5) as timeout:
                await event.wait()
        return timeout.expired()

    early, never = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(wait_for(event)) for event in (early, never)]
    await manual_clock.advance(4)
    early.set()
    await manual_clock.advance(1)
    assert [task.result() for task in tasks] == [False, True]


async def test_what_ends_in_the_turn_in_which_its_time_is_over_has_ended_in_time(
    manual_clock: ManualClock,
) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: problems.append(found))

    async def end_at_the_deadline() -> bool:
        async with manual_clock.timeout(5) as timeout:
            while manual_clock.monotonic() < 5:  # noqa: ASYNC110 - counts turns of the loop
                await asyncio.sleep(0)
        return timeout.expired()

    task = asyncio.create_task(end_at_the_deadline())
    await manual_clock.advance(5)
    assert not task.result()
    assert problems == []
