"""The shards that a fetcher reads at the moment: started, finished, handed over, taken away."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from datetime import datetime, timedelta
from functools import partial
from typing import TypeAlias, TypeVar

from attrs import define, evolve, field

from kinesis_publishers.abc import ShardAssigner, SharedReading
from kinesis_publishers.assembly import Services
from kinesis_publishers.engine.consumer_context import ConsumerContext
from kinesis_publishers.engine.delivery import Delivery, DeliverySink, ForwardingSink, ShardStatus
from kinesis_publishers.engine.shard_consumer import ShardConsumer
from kinesis_publishers.engine.slow_calls import LOOK_SECONDS, SlowCalls, name_of
from kinesis_publishers.errors import KinesisPublishersError, ProcessingCancelledError
from kinesis_publishers.events import FetcherStarted, FetcherStopped, LagMeasured
from kinesis_publishers.metrics.sinks import repeated
from kinesis_publishers.model import RecordBatch, Shard, ShardKey, ShardProgress
from kinesis_publishers.progress.checkpointer import Checkpointer
from kinesis_publishers.progress.rows import Progress
from kinesis_publishers.readers.watermarks import WatermarkSink
from kinesis_publishers.tasks import TaskScope, cancelled_from_outside_only

_LOGGER = logging.getLogger(__name__)

_T = TypeVar("_T")
_SILENCE = timedelta(seconds=30)

OnBatch: TypeAlias = Callable[[Shard, RecordBatch], Awaitable[None]]
"""Takes the records of a shard; once it returns, they count as processed."""


class AssignedSink(ForwardingSink):
    """Delivers only what this process may read at that moment, as ``sharing`` decides.

    Attributes:
        watermarks: what it delivers to, if there are watermarks.
        waiting: the shards with a delivery that may not be handed out yet.
    """

    def __init__(self, inner: DeliverySink, assigner: ShardAssigner) -> None:
        super().__init__(inner)
        self.sharing = SharedReading.of(assigner)
        self.watermarks = inner if isinstance(inner, WatermarkSink) else None
        self.waiting: set[ShardKey] = set()
        self.has_delivered = False

    async def deliver(self, delivery: Delivery) -> None:
        key, payload_bytes = delivery.shard.key, delivery.batch.payload_bytes
        self.has_delivered = True
        self.waiting.add(key)
        try:
            await self.sharing.permission(key)
        finally:
            self.waiting.discard(key)
        if self.watermarks is not None and self.takes_failures:
            delivery = evolve(delivery, batch=evolve(delivery.batch, failures={}))
        await self._inner.deliver(delivery)
        self.sharing.note_delivery(key, payload_bytes)

    def observe(self, status: ShardStatus) -> None:
        if status.progress.is_ended:
            self.sharing.note_children(status.shard.key, status.child_shards)
        self._inner.observe(status)


class CallbackSink(DeliverySink):
    """Calls ``on_batch`` for each delivery, and reports calls that take long."""

    def __init__(self, on_batch: OnBatch, slow_calls: SlowCalls) -> None:
        self._on_batch = on_batch
        self._name = name_of(on_batch)
        self._slow_calls = slow_calls

    async def deliver(self, delivery: Delivery) -> None:
        shard, batch = delivery.shard, delivery.batch
        try:
            with self._slow_calls.watching(self._name, shard.key, batch):
                await self._on_batch(shard, batch)
        finally:
            delivery.release()


async def call_hook(
    name: str, hook: Callable[..., Awaitable[None]], slow_calls: SlowCalls, *subject: object
) -> None:
    """Await what a hook does with ``subject``, and report it if that takes long.

    A note names the hook in what it raises; ``TypeError`` if it is no async function.
    """
    what = " for ".join([name, *map(str, subject)])
    try:
        with slow_calls.watching(what, None):
            told: object = hook(*subject)
            if not inspect.isawaitable(told):
                raise TypeError(
                    f"{name} returned {told!r}, not an awaitable: use an async function"
                )
            with cancelled_from_outside_only(ProcessingCancelledError, what):
                await told
    except Exception as error:
        error.add_note(f"It was raised by {what}.")
        raise


@contextmanager
def reported_run(services: Services) -> Iterator[None]:
    """Report the beginning and the end of a fetcher's run, and what it has failed by."""
    services.events(FetcherStarted(streams=services.streams))
    began_at, error = services.clock.monotonic(), None
    try:
        yield
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
        raise
    finally:
        seconds = services.clock.monotonic() - began_at
        services.events(FetcherStopped(streams=services.streams, seconds=seconds, error=error))


@define(eq=False)
class RunningConsumers:
    """Starts and stops the consumers of shards as the assigner says.

    ``finished`` receives each consumer that has stopped, for any reason.
    """

    _context: ConsumerContext
    _sink: AssignedSink
    _assigner: ShardAssigner
    _checkpointer: Checkpointer | None
    _finished: Callable[[ShardConsumer], None]
    _running: dict[ShardKey, tuple[ShardConsumer, asyncio.Task[None]]] = field(
        factory=dict, init=False
    )
    # What is being finished for another worker; and what another worker has taken.
    _leaving: set[ShardKey] = field(factory=set, init=False)
    _lost: set[ShardKey] = field(factory=set, init=False)
    _silence_is_said: bool = field(default=False, init=False)

    @property
    def keys(self) -> Collection[ShardKey]:
        """The shards that are being read."""
        return self._running.keys()

    @property
    def statuses(self) -> list[ShardStatus]:
        """How far each of them has been read."""
        return [consumer.status for consumer, _ in self._running.values()]

    @property
    def progress(self) -> dict[ShardKey, ShardProgress]:
        """Where reading of each of them continues."""
        return {key: consumer.progress for key, (consumer, _) in self._running.items()}

    @asynccontextmanager
    async def reported(
        self, slow_calls: SlowCalls, latest_at: Callable[[], datetime | None]
    ) -> AsyncIterator[None]:
        """Report how far each is behind, and what takes long; advance watermarks.

        It also logs once that nothing has come since reading began at LATEST, ``latest_at()``.
        """

        async def report() -> None:
            slow_calls.look()
            self._report_lag()
            self._report_silence(latest_at())

        clock, watermarks = self._context.clock, self._sink.watermarks
        advancing = nullcontext() if watermarks is None else watermarks.advancing()
        looks = repeated(report, interval_seconds=LOOK_SECONDS, clock=clock, name="lag")
        async with looks, advancing:
            yield

    def _report_lag(self) -> None:
        for status in self.statuses:
            seconds = status.lag_seconds(self._context.clock.now())
            if seconds is not None:
                self._context.events(LagMeasured(shard=status.shard.key, seconds=seconds))

    def _report_silence(self, since: datetime | None) -> None:
        if since is None or self._sink.has_delivered or self._silence_is_said:
            return
        if self._context.clock.now() - since >= _SILENCE:
            self._silence_is_said = True
            _LOGGER.warning(
                "No record has come since reading began at LATEST, at %s UTC. What was put before "
                "is not read: to read it, begin at TRIM_HORIZON (kinesis.stream.initpos, start=).",
                f"{since:%H:%M:%S}",
            )

    def assign(
        self,
        startable: Sequence[Shard],
        progress: Progress,
        scope: TaskScope,
        given_up: Collection[ShardKey] = (),
    ) -> None:
        """Start what may be read and is this process's, in ``scope``; stop what is no longer.

        The parents of the ``startable`` shards were read to their ends, and ``progress`` says where
        they begin. What was ``given_up`` is read no further on purpose.
        """
        # Reading continues although its parent, which was processed here, is read again: its end
        # was not recorded before another worker got it.
        running = [one.shard for one, _ in self._running.values() if not one.progress.is_ended]
        shards = {one.key: one for one in (*startable, *running)}
        # What was lost is begun again, from what is stored, when its consumer has stopped.
        startable = [one for key, one in shards.items() if key not in self._lost]
        mine, leaving = self._assigner.mine(startable), self._sink.sharing.leaving()
        if (watermarks := self._sink.watermarks) is not None:
            # What has ended a moment ago is startable until that is noted.
            over = {key for key, (one, _) in self._running.items() if one.progress.is_ended}
            # What is handed over is followed until its last delivery has been processed.
            here = {*mine, *(self._running.keys() & leaving)} - over - {*given_up}
            watermarks.follow([one for one in startable if one.key in here], progress)
        for key in leaving:
            known = progress.get(key)
            # One that has ended here stays: its end waits to be told and recorded.
            has_ended = key not in self._running and known is not None and known.is_ended
            if key not in self._leaving and not has_ended:
                self._leaving.add(key)
                scope.spawn(self._hand_over(key), name=f"hand {key} over")
        for key, (consumer, _) in self._running.items():
            is_wanted = key in mine or key in leaving or consumer.progress.is_ended
            if not is_wanted and key not in self._lost:
                self._lost.add(key)
                self._sink.withdraw(key, is_lost=True)
                self._stop(key, at_once=True)
        for shard in startable:
            key = shard.key
            if key in mine and key not in self._running and key not in given_up:
                if self._checkpointer is not None:
                    # Of a time before another worker had it.
                    self._checkpointer.forget(key)
                enough = None if watermarks is None else watermarks.enough_records
                consumer = ShardConsumer(shard, progress[key], self._context, enough)
                task = scope.spawn(consumer.run(), name=f"read {shard}")
                self._running[key] = (consumer, task)
                # After a failure has cancelled the scope: nothing begins the shard again then.
                task.add_done_callback(partial(self._note_end, consumer))

    @asynccontextmanager
    async def withdrawing(
        self, wake: asyncio.Event, progress: Progress, scope: TaskScope
    ) -> AsyncIterator[None]:
        """Stop what is no longer this process's whenever ``wake`` is set; start nothing."""

        async def stop_reading() -> None:
            while await wake.wait():
                wake.clear()
                self.assign((), progress, scope)

        async with TaskScope() as stopping:
            stopping.spawn(stop_reading(), name="stop what is another worker's")
            try:
                yield
            finally:
                stopping.cancel()
                # It may have been set for a shard that can start.
                wake.set()

    def _note_end(self, consumer: ShardConsumer, _: object) -> None:
        self._running.pop(consumer.shard.key, None)
        self._lost.discard(consumer.shard.key)
        self._finished(consumer)

    def _stop(self, key: ShardKey, *, at_once: bool = False) -> None:
        """Stop reading a shard; unless ``at_once``, after what is being processed of it."""
        consumer, task = self._running[key]
        consumer.stop()
        # What waits for its lease may wait for as long as the store is down.
        if at_once or not consumer.status.is_delivering or key in self._sink.waiting:
            task.cancel()

    async def leave(self, stream_arn: str) -> None:
        """Read a stream no further: finish what has been delivered, and record it."""
        async with TaskScope() as scope:
            for key in [one for one in self._running if one.stream_arn == stream_arn]:
                scope.spawn(self._hand_over(key), name=f"leave {key}")

    async def _hand_over(self, key: ShardKey) -> None:
        """Finish and record the delivered records of a shard, and release it to another worker."""
        try:
            if key in self._running:
                task = self._running[key][1]
                self._sink.withdraw(key, is_lost=False)
                self._stop(key)
                await asyncio.wait([task])
                await self._sink.let_go(key)
            if self._checkpointer is not None:
                await self._checkpointer.flush()
            await self._sink.sharing.release([key])
        except KinesisPublishersError as error:
            # It is asked for again until it is released, or taken.
            if self._checkpointer is None or not self._checkpointer.stored.is_bearable(error):
                raise
        finally:
            self._leaving.discard(key)

    def finish(self, key: ShardKey) -> None:
        """Read a shard no further: the delivery in progress, or else the next one, is its last."""
        if key in self._running:
            self._running[key][0].stop()

    def stop(self) -> None:
        """Finish the deliveries in progress, and cancel everything else."""
        for key in self._running:
            self._stop(key)
