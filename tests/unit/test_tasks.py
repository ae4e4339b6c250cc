"""Task ownership: the first failure wins, siblings stop, nothing is left behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers.tasks import TaskScope, cancellable, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kinesis_publishers.testing.manual_clock import ManualClock


async def fail(error: Exception) -> None:
    raise error


async def wait_for_ever(cancelled: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled.append("cancelled")
        raise


async def run_together(*works: Coroutine[Any, Any, None]) -> None:
    """Start one task after the other in a scope, each after the one before has begun."""
    async with TaskScope() as scope:
        for at, work in enumerate(works):
            scope.spawn(work, name=str(at))
            await asyncio.sleep(0)
        await asyncio.Event().wait()


async def cancel_once_started(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def set_soon(event: asyncio.Event) -> None:
    event.set()


def other_tasks() -> set[asyncio.Task[object]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


async def test_leaving_a_scope_waits_for_its_tasks():
    done = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append(1)

    async with TaskScope() as scope:
        scope.spawn(work(), name="a")
        scope.spawn(work(), name="b")
    assert done == [1, 1]


async def test_the_first_failure_is_raised_itself_and_not_in_a_group():
    error = LookupError("first")
    with pytest.raises(LookupError) as caught:
        async with TaskScope() as scope:
            scope.spawn(fail(error), name="a")
    assert caught.value is error


async def test_a_failure_stops_the_siblings():
    cancelled: list[str] = []
    works = [wait_for_ever(cancelled), wait_for_ever(cancelled), fail(LookupError())]
    with pytest.raises(LookupError):
        await run_together(*works)
    assert cancelled == ["cancelled", "cancelled"]
    assert other_tasks() == set()


async def test_a_failure_of_the_body_stops_the_tasks():
    cancelled: list[str] = []

    async def read() -> None:
        async with TaskScope() as scope:
            scope.spawn(wait_for_ever(cancelled), name="a")
            await asyncio.sleep(0)
            raise KeyError("body")

    with pytest.raises(KeyError, match="body"):
        await read()
    assert cancelled == ["cancelled"]


async def test_what_fails_later_is_noted_on_what_failed_first():
    async def fail_on_cancel() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("second")

    with pytest.raises(LookupError) as caught:
        await run_together(fail_on_cancel(), fail(LookupError("first")))
    assert caught.value.__notes__ == ["also failed: OSError('second')"]


async def test_the_cause_of_a_failure_stays():
    async def fail_with_cause() -> None:
        raise LookupError from OSError("cause")

    with pytest.raises(LookupError) as caught:
        async with TaskScope() as scope:
            scope.spawn(fail_with_cause(), name="a")
    assert isinstance(caught.value.__cause__, OSError)


async def test_cancelling_the_owner_of_a_scope_cancels_its_tasks():
    cancelled: list[str] = []

    async def own() -> None:
        async with TaskScope() as scope:
            scope.spawn(wait_for_ever(cancelled), name="a")

    await cancel_once_started(own())
    assert cancelled == ["cancelled"]


async def test_a_failure_leaves_no_request_to_stop_behind():
    for work in (fail(LookupError()), fail(LookupError())):
        with pytest.raises(LookupError):
            async with TaskScope() as scope:
                scope.spawn(work, name="a")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.parametrize("is_body", [False, True])
async def test_a_scope_that_is_cancelled_ends_so_although_a_task_fails(is_body: bool):
    started, caught = asyncio.Event(), []

    async def fail_on_cancel() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("first") from LookupError()

    async def own() -> None:
        try:
            async with TaskScope() as outer:
                outer.spawn(wait_for_ever([]), name="a")
                async with TaskScope() as scope:
                    scope.spawn(fail_on_cancel(), name="b")
                    if is_body:
                        await asyncio.Event().wait()
        except BaseException as error:
            # What cleans up may wait.
            await asyncio.sleep(0)
            caught.append(error)
            raise

    owner = asyncio.create_task(own())
    await started.wait()
    owner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await owner
    assert owner.cancelled()
    (error,) = caught
    assert error.__notes__ == ["also failed: OSError('first')"]


async def test_what_is_started_in_a_scope_that_is_being_cancelled_does_not_run():
    ran, late = [], []
    scope = TaskScope()

    async def run() -> None:
        ran.append(1)

    async def start_another() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            late.append(scope.spawn(run(), name="late"))

    async def own() -> None:
        async with scope:
            scope.spawn(start_another(), name="a")

    await cancel_once_started(own())
    assert [one.cancelled() for one in late] == [True]
    assert ran == []


async def test_nothing_is_started_in_a_scope_that_has_been_left():
    async with TaskScope() as scope:
        pass
    work = set_soon(asyncio.Event())
    with pytest.raises(RuntimeError, match="finished"):
        scope.spawn(work, name="a")
    work.close()


async def test_cancelling_a_scope_ends_it_without_an_error():
    cancelled: list[str] = []
    async with TaskScope() as scope:
        scope.spawn(wait_for_ever(cancelled), name="a")
        await asyncio.sleep(0)
        scope.cancel()
    assert cancelled == ["cancelled"]


async def test_a_task_that_cancels_its_own_scope_ends_it():
    cancelled: list[str] = []
    async with TaskScope() as scope:

        async def cancel_all() -> None:
            scope.cancel()

        scope.spawn(wait_for_ever(cancelled), name="a")
        await asyncio.sleep(0)
        scope.spawn(cancel_all(), name="b")
    assert cancelled == ["cancelled"]


async def test_an_event_that_is_set_is_not_waited_for(manual_clock: ManualClock):
    event = asyncio.Event()
    event.set()
    assert await wait_for_event(event, timeout_seconds=10, clock=manual_clock)
    assert manual_clock.sleeps == []


async def test_waiting_ends_when_the_event_is_set(manual_clock: ManualClock):
    event = asyncio.Event()
    waiting = asyncio.create_task(wait_for_event(event, timeout_seconds=10, clock=manual_clock))
    await manual_clock.settle()
    assert not waiting.done()
    event.set()
    assert await waiting
    assert manual_clock.sleeper_count == 0
    assert other_tasks() == set()


async def test_an_event_that_is_set_while_waiting_begins_leaves_nothing_unawaited(
    manual_clock: ManualClock,
):
    event = asyncio.Event()
    setting = asyncio.create_task(set_soon(event))
    assert await wait_for_event(event, timeout_seconds=10, clock=manual_clock)
    await setting
    assert manual_clock.sleeper_count == 0


async def test_waiting_ends_when_the_time_is_over(manual_clock: ManualClock):
    event = asyncio.Event()
    waiting = asyncio.create_task(wait_for_event(event, timeout_seconds=10, clock=manual_clock))
    await manual_clock.advance(9.5)
    assert not waiting.done()
    await manual_clock.advance(0.5)
    assert not await waiting
    assert other_tasks() == set()


async def test_waiting_can_be_cancelled(manual_clock: ManualClock):
    waiting = asyncio.create_task(
        wait_for_event(asyncio.Event(), timeout_seconds=10, clock=manual_clock)
    )
    await manual_clock.settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert other_tasks() == set()


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("error", [None, OSError("broken pipe")])
async def test_a_request_to_stop_is_not_swallowed(turns: int, error: Exception | None):
    async def swallow() -> None:
        # Before Python 3.12 it returns if what it waits for is done at the same moment.
        await asyncio.wait_for(asyncio.sleep(0), 60)
        for _ in range(5):
            await asyncio.sleep(0)
        if error is not None:
            raise error

    task = asyncio.ensure_future(cancellable(swallow))
    for _ in range(turns):
        await asyncio.sleep(0)
    assert task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_is_not_asked_to_stop_ends_as_it_does():
    assert await cancellable(lambda: asyncio.sleep(0, "a result")) == "a result"
    with pytest.raises(OSError, match="broken pipe"):
        await cancellable(lambda: fail(OSError("broken pipe")))
