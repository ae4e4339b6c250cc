"""What a contract needs to know of the thing that it tests: the value of its one fixture."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

from attrs import frozen

from kinesis_publishers.config import Properties
from kinesis_publishers.testing.contracts.base import assert_sleeps_on_its_clock
from kinesis_publishers.testing.fakes.planes import publisher_context
from kinesis_publishers.testing.fakes.reading import finish

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from kinesis_publishers.abc import (
        PublisherContext,
        RecordPublisher,
        RecordPublisherFactory,
    )
    from kinesis_publishers.config.parsers import Scalar
    from kinesis_publishers.model import Record, Shard, StartingPosition
    from kinesis_publishers.testing.manual_clock import ManualClock

__all__ = ["FactorySubject", "HeldShard", "PublisherSubject"]

_T = TypeVar("_T")
# Of real time: a contract takes milliseconds unless the publisher hangs.
_PATIENCE_SECONDS = 30.0


@frozen(kw_only=True)
class HeldShard:
    """A shard that holds records.

    Attributes:
        shard: which one.
        records: what it holds, in its order, with the sequence numbers and arrival times that they
            have there.
    """

    shard: Shard
    records: Sequence[Record]


class PublisherSubject(ABC):
    """How a contract gets at a publisher, wherever that has its records from.

    What a publisher need not be able to do is declared by the class attributes; the tests that need
    it are skipped otherwise, and say so.

    Attributes:
        clock: what the publisher sleeps on, if a test can move it. Without one it runs in real
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
            records: what it holds: none, or up to a dozen.
            is_open: more may come: its end is never reached (only with ``can_hold_open``).
        """

    @abstractmethod
    async def publisher(self, held: HeldShard, start: StartingPosition) -> RecordPublisher:
        """Return a new publisher of a shard that is held."""

    async def interrupt_after(self, deliveries: int) -> None:
        """Let the service break off, once, after so many deliveries of the next publisher.

        An iterator expires or a subscription ends: whatever the publisher has remembered of the
        service is of no use any more (only with ``can_be_interrupted``).
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
    """How a contract gets at a factory; it does for the contract of its publishers as well.

    Attributes:
        factory_class: what is tested.
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
        """What the factory may use: nothing of AWS answers, unless a subclass says otherwise."""
        return publisher_context(clock=self.clock)

    def factory(self) -> RecordPublisherFactory:
        """Return a new factory."""
        parsed = Properties.parse(self.properties, complete=False)
        return self.factory_class.from_properties(parsed, self.context)

    async def publisher(self, held: HeldShard, start: StartingPosition) -> RecordPublisher:
        factory = self.factory()
        self._in_use = (*self._in_use, factory)
        return await factory.create(start, held.shard)

    async def close(self) -> None:
        async with AsyncExitStack() as stack:
            for factory in self._in_use:
                stack.push_async_callback(factory.close)
            self._in_use = ()
