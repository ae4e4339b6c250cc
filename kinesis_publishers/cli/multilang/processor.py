"""The work of one shard: one message to its process after the other."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from attrs import define, field

from kinesis_publishers.checkpoints.kcl_rows import checkpoint_of
from kinesis_publishers.cli.multilang.checkpoints import NO_CHECKPOINT, ShardCheckpoints
from kinesis_publishers.cli.multilang.child import CHECKPOINT, Child, ProcessorError
from kinesis_publishers.cli.shared.kcl_properties import DaemonConfig
from kinesis_publishers.clock import Clock
from kinesis_publishers.engine.delivery import Delivery
from kinesis_publishers.model import RecordBatch, Shard, ShardProgress

# The work of a call, and what is set at its end.
_Call: TypeAlias = tuple[Callable[[], Awaitable[None]], asyncio.Event]
_ASK_AGAIN_SECONDS: Final = 0.2
# The names and fields of the messages in the KCL 3.5's amazon-kinesis-client-multilang.
_INITIALIZE: Final = "initialize"
_PROCESS_RECORDS: Final = "processRecords"
_LEASE_LOST: Final = "leaseLost"
_SHARD_ENDED: Final = "shardEnded"
_SHUTDOWN_REQUESTED: Final = "shutdownRequested"
_NUMBERS: Final = ("sequenceNumber", "subSequenceNumber")


@define(eq=False)
class ShardProcessor:
    """A process, and the shard that it works on.

    Its calls are done one after another, in the order in which they are asked for. It begins once
    the ``former`` one has ended, and the ends of the shard's parents are stored.

    Attributes:
        is_cut: whether it gets no more records.
        has_ended: set when the process is gone.
    """

    shard: Shard
    _config: DaemonConfig
    _checkpoints: ShardCheckpoints
    _clock: Clock
    _former: ShardProcessor | None
    is_cut: bool = field(default=False, init=False)
    has_ended: asyncio.Event = field(factory=asyncio.Event, init=False)
    _child: Child | None = field(default=None, init=False)
    _is_over: bool = field(default=False, init=False)
    _calls: asyncio.Queue[_Call] = field(factory=asyncio.Queue, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    async def run(self) -> None:
        """Work until the shard ends, is lost or is left; raises ``ProcessorError``."""
        self._task = asyncio.current_task()
        try:
            if self._former is not None and not self.is_cut:
                await self._former.has_ended.wait()
            # As in the KCL: another worker may still have to finish a parent.
            while not self.is_cut and not all(
                map(self._checkpoints.has_stored_end, self.shard.parent_keys)
            ):
                await self._clock.sleep(_ASK_AGAIN_SECONDS)
            stored = self._checkpoints.stored
            if stored is not None and not self.is_cut:
                await self._work(stored)
        finally:
            self.is_cut = True
            self.has_ended.set()
            while not self._calls.empty():
                self._calls.get_nowait()[1].set()

    async def _work(self, stored: ShardProgress) -> None:
        self._child = await Child.start(str(self.shard), self._config.command, self._clock)
        try:
            numbers = dict(zip(_NUMBERS, checkpoint_of(stored, None), strict=True))
            await self._tell(_INITIALIZE, shardId=self.shard.shard_id, **numbers)
            while not self._is_over:
                work, done = await self._calls.get()
                try:
                    await work()
                finally:
                    done.set()
        except asyncio.CancelledError:
            self._child.kill()
            raise
        finally:
            await self._child.end()

    async def process(self, delivery: Delivery) -> None:
        """Hand records over and wait for the answer; nothing is done once this one is cut."""
        await self._ask(lambda: self._hand_over(delivery)).wait()

    def pass_empty(self, millis_behind_latest: int | None) -> None:
        """Call the process without records, unless it has something to do."""
        if self._calls.empty():
            self._ask(lambda: self._process_records(None, millis_behind_latest))

    def end(self, progress: ShardProgress) -> None:
        """Tell the process that its shard has ended, with ``progress``."""
        self._ask(lambda: self._end(progress))

    def leave(self, *, is_lost: bool) -> None:
        """Let the process finish what it has, and end; unless ``is_lost`` it may checkpoint."""
        self.cut()
        self._checkpoints.is_lost |= is_lost
        self._ask(lambda: self._leave(is_lost))

    def cut(self) -> None:
        """Hand over no more records."""
        self.is_cut = True
        if self._child is None and self._task is not None:
            self._task.cancel()

    def _ask(self, work: Callable[[], Awaitable[None]]) -> asyncio.Event:
        if self.has_ended.is_set():
            return self.has_ended
        done = asyncio.Event()
        self._calls.put_nowait((work, done))
        return done

    async def _hand_over(self, delivery: Delivery) -> None:
        while not (self.is_cut or self._checkpoints.may_hand_over):
            await self._clock.sleep(_ASK_AGAIN_SECONDS)
        last = delivery.batch.last_sequence_number
        if last is not None and not self.is_cut:
            self._checkpoints.note(delivery.progress, last)
            await self._process_records(delivery.batch, delivery.batch.millis_behind_latest)

    async def _process_records(self, batch: RecordBatch | None, lag: int | None) -> None:
        if not self.is_cut:
            message = _records_message(batch, lag)
            await self._exchange(_PROCESS_RECORDS, message)

    async def _end(self, progress: ShardProgress) -> None:
        if self.is_cut:
            return
        self._checkpoints.note(progress)
        await self._tell(_SHARD_ENDED)
        self._is_over = True
        if not self._checkpoints.is_end_written and self._checkpoints.stored is not None:
            raise ProcessorError(
                f"The processor of {self.shard} has not checkpointed in {_SHARD_ENDED}: "
                "the end is not recorded, and the next run begins at the last checkpoint"
            )

    async def _leave(self, is_lost: bool) -> None:
        if not is_lost:
            await self._tell(_SHUTDOWN_REQUESTED)
        await self._tell(_LEASE_LOST)
        self._is_over = True

    async def _tell(self, action: str, **fields: Any) -> None:
        await self._exchange(action, _message(action, **fields))

    async def _exchange(self, action: str, message: bytes) -> None:
        assert self._child is not None
        self._child.write(message)
        while (answer := await self._answer(action))["action"] == CHECKPOINT:
            numbers = {name: answer.get(name) for name in _NUMBERS}
            error: str | None = NO_CHECKPOINT
            if action not in (_INITIALIZE, _LEASE_LOST):
                error = await self._checkpoints.write(*numbers.values())
            self._child.write(_message(CHECKPOINT, error=error, **numbers))
        if (done := answer.get("responseFor")) != action:
            raise ProcessorError(
                f"The processor of {self.shard} has answered {done!r:.100} to {action}"
            )

    async def _answer(self, action: str) -> dict[str, Any]:
        assert self._child is not None
        try:
            async with self._clock.timeout(self._config.timeout_seconds):
                return await self._child.answer()
        except TimeoutError:
            self._child.kill()
            late = f"The processor of {self.shard} has not answered {action} in timeoutInSeconds"
            raise ProcessorError(late) from None


def _message(action: str, **fields: Any) -> bytes:
    return json.dumps({"action": action, **fields}).encode() + b"\n"


def _records_message(batch: RecordBatch | None, millis_behind_latest: int | None) -> bytes:
    """Return the line with the records of a batch; ``None`` is no record."""
    records = [
        {
            "action": "record",
            "data": b64encode(one.data).decode(),
            "partitionKey": one.partition_key,
            "sequenceNumber": one.sequence_number,
            # The KCL has no other number for a record outside of an aggregate.
            "subSequenceNumber": one.sub_sequence_number or 0,
            "approximateArrivalTimestamp": round(one.arrival_epoch_seconds * 1000),
        }
        for one in batch or ()
    ]
    return _message(_PROCESS_RECORDS, records=records, millisBehindLatest=millis_behind_latest)
