"""The work of one shard: one message to its process after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from attrs import define, field

from kinesis_publishers.cli.multilang import protocol
from kinesis_publishers.cli.multilang.child import Child
from kinesis_publishers.cli.multilang.leased import ILLEGAL, NO_CHECKPOINT, SHUTDOWN, Leased
from kinesis_publishers.cli.multilang.places import IllegalPlaceError, Places
from kinesis_publishers.cli.multilang.protocol import CheckpointRequest
from kinesis_publishers.cli.shared.kcl_properties import DaemonConfig
from kinesis_publishers.clock import Clock
from kinesis_publishers.engine.delivery import Delivery
from kinesis_publishers.errors import ProcessorError
from kinesis_publishers.model import RecordBatch, Shard, ShardProgress

_ASK_AGAIN_SECONDS: Final = 0.2


@define(eq=False)
class ShardProcessor:
    """A process, and the shard that it works on.

    Its calls are done one after the other, in the order in which they are asked for.

    Attributes:
        is_cut: whether it gets no more records.
        has_ended: whether the process is gone.
    """

    shard: Shard
    _config: DaemonConfig
    _leased: Leased
    _clock: Clock
    # What must have ended before this one begins.
    _earlier: Sequence[ShardProcessor]
    _is_begun: bool = field(default=False, init=False)
    _is_over: bool = field(default=False, init=False)
    is_cut: bool = field(default=False, init=False)
    has_ended: asyncio.Event = field(factory=asyncio.Event, init=False)
    _calls: asyncio.Queue[_Call] = field(factory=asyncio.Queue, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _child: Child = field(init=False)
    _places: Places = field(init=False)

    async def run(self) -> None:
        """Work until the shard ends, is lost or is left.

        Raises:
            ProcessorError: the process does not do what it should.
        """
        self._task = asyncio.current_task()
        try:
            for one in self._earlier:
                await one.has_ended.wait()
            stored = self._leased.stored(self.shard.key)
            if stored is None or self.is_cut:
                return
            self._is_begun = True
            self._child = await Child.start(str(self.shard), self._config.command, self._clock)
            try:
                await self._work(stored)
            except asyncio.CancelledError:
                self._child.kill()
                raise
            finally:
                await self._child.end()
        finally:
            self.is_cut = self._is_over = True
            self.has_ended.set()
            while not self._calls.empty():
                self._calls.get_nowait().is_done.set()

    async def _work(self, stored: ShardProgress) -> None:
        self._places = Places(stored)
        message = protocol.initialize(self.shard.shard_id, stored)
        await self._exchange(protocol.INITIALIZE, message, may_checkpoint=False)
        while not self._is_over:
            call = await self._calls.get()
            try:
                if call.is_wanted:
                    await call.work()
            finally:
                call.is_done.set()

    async def process(self, delivery: Delivery) -> None:
        """Hand records over and wait for the answer; nothing is done once this one is cut."""
        call = self._ask(lambda: self._hand_over(delivery))
        try:
            await call.is_done.wait()
        finally:
            # The caller may have been cancelled before its turn.
            call.is_wanted = False

    def pass_empty(self, millis_behind_latest: int | None) -> None:
        """Call the process without records, unless it has something to do."""
        if self._calls.empty():
            self._ask(lambda: self._process_records(None, millis_behind_latest))

    def end(self, progress: ShardProgress) -> None:
        """Tell the process that its shard has ended, with ``progress``."""
        self._ask(lambda: self._end(progress))

    def lose(self) -> None:
        """Tell the process that another worker has the shard."""
        self.cut()
        self._ask(self._lose)

    def leave(self) -> None:
        """Ask the process to stop; it may checkpoint."""
        self.cut()
        self._ask(self._leave)

    def cut(self) -> None:
        """Hand over no more records; what the process has is finished."""
        self.is_cut = True
        if not self._is_begun:
            self.cancel()

    def cancel(self) -> None:
        """Kill the process."""
        if self._task is not None:
            self._task.cancel()

    def _ask(self, work: Callable[[], Awaitable[None]]) -> _Call:
        call = _Call(work)
        if self.has_ended.is_set():
            call.is_done.set()
        else:
            self._calls.put_nowait(call)
        return call

    async def _hand_over(self, delivery: Delivery) -> None:
        while not (self.is_cut or self._leased.may_hand_over(self.shard.key)):
            await self._clock.sleep(_ASK_AGAIN_SECONDS)
        last = delivery.batch.last_sequence_number
        if self.is_cut or last is None:
            return
        self._places.note_handed(last, delivery.progress)
        await self._process_records(delivery.batch, delivery.batch.millis_behind_latest)

    async def _process_records(self, batch: RecordBatch | None, lag: int | None) -> None:
        if not self.is_cut:
            await self._exchange(protocol.PROCESS_RECORDS, protocol.process_records(batch, lag))

    async def _end(self, progress: ShardProgress) -> None:
        if self.is_cut:
            return
        self._places.note_end(progress)
        await self._tell(protocol.SHARD_ENDED)
        if not self._places.is_end_written and self._leased.stored(self.shard.key) is not None:
            raise ProcessorError(
                f"The processor of {self.shard} has not checkpointed in {protocol.SHARD_ENDED}: "
                "the end of the shard is not recorded, and the next run reads it again from the "
                "last checkpoint"
            )
        self._is_over = True

    async def _lose(self) -> None:
        await self._tell(protocol.LEASE_LOST, may_checkpoint=False)
        self._is_over = True

    async def _leave(self) -> None:
        await self._tell(protocol.SHUTDOWN_REQUESTED)
        await self._lose()

    async def _tell(self, action: str, *, may_checkpoint: bool = True) -> None:
        if not self._is_over:
            message = protocol.message(action)
            await self._exchange(action, message, may_checkpoint=may_checkpoint)

    async def _exchange(self, action: str, message: bytes, *, may_checkpoint: bool = True) -> None:
        self._child.write(message)
        while isinstance(answer := await self._answer(action), CheckpointRequest):
            error = await self._checkpoint(answer) if may_checkpoint else NO_CHECKPOINT
            self._child.write(answer.answer(error))
        if answer.response_for != action:
            raise ProcessorError(
                f"The processor of {self.shard} has answered {answer.response_for!r:.100} to "
                f"{action}"
            )

    async def _answer(self, action: str) -> protocol.Answer:
        seconds = self._config.timeout_seconds
        try:
            if seconds is None:
                return await self._child.answer()
            async with self._clock.timeout(seconds):
                return await self._child.answer()
        except TimeoutError:
            self._child.kill()
            raise ProcessorError(
                f"The processor of {self.shard} has not answered {action} within {seconds:g} "
                "seconds (timeoutInSeconds)"
            ) from None
        except ProcessorError as error:
            raise ProcessorError(f"{error}, while it had to answer {action}") from None

    async def _checkpoint(self, request: CheckpointRequest) -> str | None:
        """Write a checkpoint; return the name of the KCL's exception if it is not written."""
        try:
            progress = self._places.wanted(request)
        except IllegalPlaceError:
            return ILLEGAL
        if progress is None:
            return None if self._leased.stored(self.shard.key) else SHUTDOWN
        if (error := await self._leased.write(self.shard.key, progress)) is None:
            self._places.note_written(progress)
        return error


@define(eq=False)
class _Call:
    work: Callable[[], Awaitable[None]]
    is_wanted: bool = field(default=True, init=False)
    is_done: asyncio.Event = field(factory=asyncio.Event, init=False)
