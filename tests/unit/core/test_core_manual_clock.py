"""The clock that tests move: who is asleep, and how to wait for that."""

from __future__ import annotations

import asyncio
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
