"""The subjects of contracts, and how contracts run and cancel them."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, NoReturn, TypeVar

import pytest
from attrs import frozen

from kinesis_publishers.abc import PublisherContext, RecordPublisher, RecordPublisherFactory
from kinesis_publishers.config import Properties
from kinesis_publishers.config.parsers import Scalar
from kinesis_publishers.model import Record, Shard, StartingPosition
from kinesis_publishers.testing.fakes.planes import publisher_context
from kinesis_publishers.testing.fakes.recording import finish
from kinesis_publishers.testing.manual_clock import ManualClock

_T = TypeVar("_T")
# Of real time: a contract takes milliseconds unless the publisher hangs.
_PATIENCE_SECONDS = 30.0


@frozen(kw_only=True)
class HeldShard:
    """A shard that holds records.

    Attributes:
        shard: which one.
        records: its records in order, with the sequence numbers and arrival times that they
            have there.
    """

    shard: Shard
    records: Sequence[Record]


class PublisherSubject(ABC):
    """The publisher under test, for any source of records.

    What a publisher need not be able to do is declared by the class attributes; the tests that need
    it are skipped otherwise, and say so.

    Attributes:
        clock: the clock of the publisher, if a test can move it. Without one it runs in real
            time, and what takes longer than 30 seconds fails.
        can_hold_open: ``hold`` takes ``is_open``.
        can_be_interrupted: :meth:`interrupt_after` is there.
        can_be_throttled: :meth:`throttle` is there.
    """

    clock: ManualClock | None = None
    can_hold_open: ClassVar[bool] = False
    can_be_interrupted: ClassVar[bool] = False
    can_be_throttled: ClassVar[bool] = False

    @abstractmethod
    async def hold(self, records: Sequence[Record], *, is_open: bool = False) -> HeldShard:
        """Let another shard hold ``records``, from which publishers are then made.

        Payloads, partition keys, order and the distances between arrival times are kept; the rest
        may become what it has to be where the publisher has its records from. All of them are there
        when it returns: none is yet to arrive, however fast time passes. Let the records come
        in several deliveries if that can be chosen: what holds between two deliveries is not tested
        otherwise.

        Args:
            records: none, or up to a dozen.
            is_open: more may come: its end is never reached (only with ``can_hold_open``).
        """

    @abstractmethod
    async def publisher(self, held: HeldShard, start: StartingPosition) -> RecordPublisher:
        """Return a new publisher of a shard that is held."""

    async def interrupt_after(self, deliveries: int) -> None:
        """Let the service break off once, after this many deliveries of the next publisher.

        An iterator expires or a subscription ends: what the publisher remembers of the
        service is of no use after that (only with ``can_be_interrupted``).
        """
        raise NotImplementedError("can_be_interrupted is True, but interrupt_after() is not there")

    async def throttle(self, times: int) -> None:
        """Let the service refuse the next ``times`` reads (only with ``can_be_throttled``)."""
        raise NotImplementedError("can_be_throttled is True, but throttle() is not there")

    async def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close what publishers were made with; the contract does so at the end of each test."""

    async def finish(self, work: Awaitable[_T]) -> _T:
        """Run ``work`` to its end, with the clock moving on if there is one; return its result."""
        if self.clock is not None:
            task = asyncio.ensure_future(work)
            watch = partial(assert_sleeps_on_its_clock, task)
            return await finish(task, self.clock, on_step=watch)
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await work


class FactorySubject(PublisherSubject):
    """The factory under test. It also serves the contract of its publishers.

    Attributes:
        factory_class: the class under test.
        bad_properties: properties that the factory must refuse, each complete but for the one thing
            that is wrong; with none the test is skipped.
    """

    factory_class: ClassVar[type[RecordPublisherFactory]]
    bad_properties: Sequence[Mapping[str, Scalar]] = ()
    # On the class, so that a subclass need not call any __init__.
    _in_use: tuple[RecordPublisherFactory, ...] = ()

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, Scalar]:
        """The properties of a factory that reads the shards that are held."""

    @property
    def context(self) -> PublisherContext:
        """The context of the factory. Nothing of AWS answers, unless a subclass overrides it."""
        return publisher_context(clock=self.clock)

    def factory(self) -> RecordPublisherFactory:
        """Return a new factory whose properties were pickled, as on their way to a worker."""
        parsed = Properties.parse(self.properties, complete=False)
        travelled: Properties = pickle.loads(pickle.dumps(parsed))
        factory = self.factory_class.from_properties(travelled, self.context)
        self._in_use = (*self._in_use, factory)
        return factory

    async def publisher(self, held: HeldShard, start: StartingPosition) -> RecordPublisher:
        return await self.factory().create(start, held.shard)

    async def close(self) -> None:
        async with AsyncExitStack() as stack:
            for factory in self._in_use:
                stack.push_async_callback(factory.close)
            self._in_use = ()


_C = TypeVar("_C", bound=type)

# Turns of the event loop: a task that is done but for its last steps is gone within these.
_TURNS = 20
#: Of real time: how long something may take to get to where it is cancelled.
REACHING_SECONDS = 10.0
#: Of real time: how long something that was cancelled may take to close what it has open.
CANCELLING_SECONDS = 5.0


def missing_fixture(kind: str, name: str = "subject") -> Any:
    """Return a fixture whose error names the fixture that a subclass lacks."""

    @pytest.fixture(name=name)
    def refuse(self: object) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} needs a fixture `{name}` that returns a {kind}: override it in "
            "the class"
        )

    return refuse


def closes_subject(contract: _C) -> _C:
    """Let every test of ``contract`` close its subject at the end, however it ends.

    A fixture could not: it may run on another event loop than the test, and what was opened on one
    cannot be closed on the other.
    """
    for name, test in inspect.getmembers(contract, inspect.iscoroutinefunction):
        if name.startswith("test_"):
            setattr(contract, name, _closing(test))
    return contract


def _closing(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def test_and_close(self: object, subject: Any, **more: object) -> None:
        try:
            await test(self, subject, **more)
        except BaseException:
            # The error of the test counts, a skip included.
            with suppress(Exception):
                await subject.finish(subject.close())
            raise
        await subject.finish(subject.close())

    return test_and_close


def require(subject: object, capability: str) -> None:
    """Skip the test if ``subject`` does not declare ``capability``."""
    if not getattr(subject, capability):
        pytest.skip(f"{type(subject).__name__}.{capability} is False")


@contextmanager
def no_task_is_left() -> Iterator[None]:
    """Check that the block leaves no task running."""
    before = asyncio.all_tasks()
    yield
    left = [task for task in asyncio.all_tasks() - before if not task.done()]
    names = ", ".join(f"{one.get_name()} ({one.get_coro()})" for one in left)
    for task in left:
        task.cancel()
    assert not left, (
        f"left running: {names}. Own every task (asyncio.TaskGroup), and wait for it before "
        "returning or raising"
    )


async def assert_can_be_cancelled(
    work: Coroutine[Any, Any, object],
    is_reached: Callable[[], bool],
    *,
    what: str,
    clock: ManualClock | None = None,
) -> None:
    """Cancel ``work`` once it ``is_reached``; check that it ends at once, as cancelled, and whole.

    ``what`` says in words where it is cancelled; ``clock`` is what it sleeps on, if a test can move
    that.
    """
    with no_task_is_left():
        task = asyncio.get_running_loop().create_task(work)
        try:
            assert await _comes_true(is_reached, task, clock), (
                f"{what}: it did not come to that within {REACHING_SECONDS:g} s: it waits for "
                "something that never happens"
            )
            if task.done():
                raise AssertionError(f"{what}: it ended with {task.result()!r} before that")
            task.cancel()
            await asyncio.wait([task], timeout=CANCELLING_SECONDS)
            assert task.done(), f"{what}: it ran on after it was cancelled: let CancelledError pass"
            assert task.cancelled(), (
                f"{what}: cancelling it ended in {task.exception() or task.result()!r} instead of "
                "CancelledError: never swallow it, and raise nothing else in its place"
            )
            await let_others_run()
        finally:
            await _end(task)


async def _end(task: asyncio.Task[object]) -> None:
    """Cancel ``task`` until it ends, within reason: the task may swallow a cancellation."""
    for _ in range(_TURNS):
        if task.done():
            return
        task.cancel()
        await asyncio.wait([task], timeout=0.05)


async def _comes_true(
    condition: Callable[[], bool], task: asyncio.Task[object], clock: ManualClock | None
) -> bool:
    deadline = asyncio.get_running_loop().time() + REACHING_SECONDS
    while not (task.done() or condition()):
        if asyncio.get_running_loop().time() > deadline:
            return False
        if clock is None:
            await asyncio.sleep(0.001)
        else:
            await clock.advance(0.1)
            assert_sleeps_on_its_clock(task)
    return True


def assert_sleeps_on_its_clock(work: asyncio.Future[Any]) -> None:
    """Check that ``work`` is not just now in ``asyncio.sleep``; only where there is a clock."""
    awaited: Any = work.get_coro() if isinstance(work, asyncio.Task) else None
    while awaited is not None:
        is_sleep = getattr(awaited, "cr_code", None) is asyncio.sleep.__code__
        # A sleep of 0 only lets others run.
        assert not (is_sleep and awaited.cr_frame and awaited.cr_frame.f_locals["delay"] > 0), (
            "it waits in asyncio.sleep(): sleep on the clock that it was given (context.clock), or "
            "no test of it can do without real time"
        )
        awaited = getattr(awaited, "cr_await", None)


async def let_others_run() -> None:
    """Let tasks take their last steps."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def outcome_of(work: Awaitable[object]) -> BaseException | None:
    """Return what ``work`` raises, ``None`` if it does not."""
    try:
        await work
    except BaseException as error:  # noqa: BLE001 - the error is the result
        return error
    return None
