"""Reads whole streams: many shards at once, parents before children, one pool for all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Self, Unpack

from kinesis_publishers.abc import ShardAssigner
from kinesis_publishers.assembly import Services, open_checkpointer, open_services
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import CheckpointConfig, Options, Properties, Scalar
from kinesis_publishers.engine.delivery import DeliverySink, ShardStatus
from kinesis_publishers.engine.ending import ReadingEnd
from kinesis_publishers.engine.lineage import ancestors, blocked_shards
from kinesis_publishers.engine.shard_consumer import ShardConsumer
from kinesis_publishers.errors import ConfigError, StreamRecreatedError
from kinesis_publishers.event_loop import OwnProcess
from kinesis_publishers.events import EventSink
from kinesis_publishers.leases.leases import Leases
from kinesis_publishers.model import (
    ChildShard,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StreamProgress,
)
from kinesis_publishers.progress.checkpointer import Checkpointer
from kinesis_publishers.readers.bounds import bounds_of
from kinesis_publishers.readers.consumers import (
    AssignedSink,
    CallbackSink,
    OnBatch,
    RunningConsumers,
    call_hook,
    reported_run,
)
from kinesis_publishers.readers.guard import ConsumerGuard
from kinesis_publishers.readers.shard_table import ShardTable
from kinesis_publishers.readers.stream_consumers import shared_consumers
from kinesis_publishers.readers.streams import FetchedStreams
from kinesis_publishers.readers.watermarks import OnWatermark, WatermarkSink
from kinesis_publishers.tasks import TaskScope, wait_for_event
from kinesis_publishers.tracebacks import ShortTraceback


class KinesisDataFetcher:
    """Reads every shard of the configured streams and hands the records on.

    ``async with KinesisDataFetcher.from_properties(properties, on_batch) as fetcher`` followed by
    ``await fetcher.run()`` is the whole use. ``on_batch(shard, batch)`` is called for one batch per
    shard at a time, in the order of the shard. Until it returns, that shard is read ahead by little
    more than a page: a slow ``on_batch`` is the backpressure.

    Args:
        sink: what records are handed to.
        resume: how far each stream (by ARN) had been read before; streams that it does not name
            begin at the configured initial position.
        checkpointer: what writes progress to a store, if any; :meth:`prepare` lets it take the
            streams over, and what it gives then replaces ``resume``. It learns what has been
            processed from its :meth:`~kinesis_publishers.checkpoints.Checkpointer.sink`.
        assigner: which shards are read, if that is not decided by the services' own.
        guard: what removes stream consumers when this process is gone; it holds them before any is
            registered.
        end: where reading ends; ``None`` if it does not.

    Attributes:
        checkpointer: what writes progress to the store of checkpoints, ``None`` without one.
    """

    def __init__(
        self,
        services: Services,
        sink: DeliverySink,
        *,
        resume: Mapping[str, StreamProgress] | None = None,
        checkpointer: Checkpointer | None = None,
        assigner: ShardAssigner | None = None,
        guard: ConsumerGuard | None = None,
        end: StartingPosition | None = None,
    ) -> None:
        self._services = services
        self.end = ReadingEnd(end, services.clock, services.discovery)
        self.slow_calls, self.events = services.slow_calls, services.events
        # The owner of a request to it is the key of a shard.
        self.pool = services.pool
        self._process = OwnProcess()
        self.assigner = assigner or services.assigner
        self.assigner.on_change(lambda: self._wake.set())
        self.checkpointer = checkpointer
        self._sink = AssignedSink(sink, self.assigner)
        self.sharing = self._sink.sharing
        self._consumers = RunningConsumers(
            services.consumer_context(self._sink, services.factory.create, self.end),
            self._sink,
            self.assigner,
            checkpointer,
            self._note_finished,
        )
        self._streams = FetchedStreams(services, resume, checkpointer, guard, self._consumers.leave)
        self._coordinator: asyncio.Task[None] | None = None
        self._finished: set[ShardKey] = set()
        self._wake = asyncio.Event()
        # Shards that have ended, and how many of them a discovery has looked for children of.
        self._endings = self._settled_endings = 0
        # What ended shards are continued by, with their streams, until the coordinator takes it up.
        self._children: list[tuple[str, tuple[ChildShard, ...]]] = []
        self._is_stopping = False

    @classmethod
    @asynccontextmanager
    async def from_properties(
        cls,
        properties: Properties | Mapping[str, Scalar] | None,
        on_batch: OnBatch | DeliverySink,
        *,
        resume: Mapping[str, StreamProgress] | None = None,
        records_deliveries: bool = True,
        events: EventSink | None = None,
        clock: Clock | None = None,
        guard: ConsumerGuard | None = None,
        on_watermark: OnWatermark | None = None,
        **options: Unpack[Options],
    ) -> AsyncIterator[Self]:
        """Open clients as ``properties`` say, yield a fetcher, and close them.

        With ``kinesis.checkpoint.application`` reading continues where the application of that name
        has stopped, and what has been processed is written to its store.

        Args:
            properties: what to read, and how; ``None`` if ``options`` say everything.
            on_batch: what records are handed to.
            resume: as in the constructor; not together with checkpoints, which say the same.
            records_deliveries: whether a delivery counts as processed as soon as ``on_batch`` has
                taken it; ``False`` leaves it to calls of ``checkpointer.record``.
            events: takes diagnostic events in addition to the sinks that the properties name.
            clock: this machine's unless it is given.
            guard: removes stream consumers once this process is gone, and outlives the fetcher.
                Unless it is given, leaving the context removes them, and a guard of the fetcher's
                own serves only if this process is killed.
            on_watermark: is awaited with each watermark: the records before it were processed.
            **options: the same as keywords, which take precedence: see
                :class:`~kinesis_publishers.Options`.

        Raises:
            ConfigError: the properties cannot work; every problem is named.
            CheckpointError: the store of checkpoints cannot be used, or what it has.
        """
        properties, end = bounds_of(Properties.of(properties, options), clock)
        if resume is not None and CheckpointConfig.from_properties(properties).application:
            raise ConfigError(
                "resume and kinesis.checkpoint.application both say where reading continues: give "
                "one of them"
            )
        async with (
            shared_consumers(properties, events) as shared,
            open_services(
                shared.properties,
                events=shared.events,
                clock=clock,
                packs_columns=isinstance(on_batch, DeliverySink) and on_batch.packs_columns,
            ) as services,
            open_checkpointer(
                properties, clock=services.clock, events=services.events
            ) as checkpointer,
        ):
            sink = on_batch
            if not isinstance(sink, DeliverySink):
                sink = CallbackSink(sink, services.slow_calls)
            stored = None if checkpointer is None else checkpointer.stored
            leases = stored.shards if isinstance(stored, Leases) else None
            shared.leases = leases
            if checkpointer is not None:
                sink = checkpointer.sink(sink, records_deliveries=records_deliveries)
            if on_watermark is not None:
                on_watermark = partial(call_hook, "on_watermark", on_watermark, services.slow_calls)
            sink = WatermarkSink.around(sink, properties, services, leases, on_watermark)
            own = ConsumerGuard.for_properties(shared.properties) if guard is None else None
            try:
                yield cls(
                    services,
                    sink,
                    resume=resume,
                    checkpointer=checkpointer,
                    assigner=leases,
                    guard=guard or own,
                    end=end,
                )
            finally:
                if own is not None:
                    # Before the fetcher leaves the consumers: else it would not be the last user.
                    await asyncio.to_thread(own.dismiss)

    @property
    def _shards(self) -> ShardTable:
        return self._streams.shards

    @property
    def progress(self) -> dict[str, StreamProgress]:
        """How far each stream (by ARN) has been read, or is left: what ``resume`` takes."""
        return self._shards.by_stream(self._current_progress())

    @property
    def left_shards(self) -> Collection[ShardKey]:
        """The shards of the streams that this fetcher does not read."""
        return self._shards.left.keys()

    @property
    def statuses(self) -> list[ShardStatus]:
        """The shards that are being read now."""
        return self._consumers.statuses

    @property
    def has_children_of_ended(self) -> bool:
        """Whether what continues the shards that have ended was looked for, and is being read."""
        return self._settled_endings == self._endings

    def ancestors_of(self, key: ShardKey) -> frozenset[ShardKey]:
        """Return the shards, of those still listed, that a shard descends from."""
        return frozenset(ancestors([key], self._shards.listed))

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to read, unless the streams get further shards.

        Every shard has ended, was finished by :meth:`finish_shard`, or waits for an ancestor that
        was finished without having ended; and the children of those that ended have been looked
        for.
        """
        if self._streams.are_changed or not self.has_children_of_ended:
            return False
        # Asked after each answer of each shard: mostly, the first one that is read decides.
        if not self._finished.issuperset(self._consumers.keys):
            return False
        unread = {
            key
            for key, one in self._shards.progress.items()
            if not one.is_ended and key not in self._finished
        }
        if not unread or not self._services.discovery.config.parents_first:
            return not unread
        # What descends from a finished shard starts in a later fetcher that reads that to its end.
        progress = self._current_progress()
        return unread <= blocked_shards(self._shards.listed, progress, self._finished)

    def _current_progress(self) -> dict[ShardKey, ShardProgress]:
        return self._shards.progress | self._consumers.progress

    def finish_shard(self, key: ShardKey) -> None:
        """Read a shard no further, although it has not ended; the others are read on.

        A delivery in flight is finished, and so is an answer that has been asked for already: it is
        the last one. With parents first, its descendants are left to a later fetcher that reads it
        to its end.
        """
        self._finished.add(key)
        self._consumers.finish(key)

    async def prepare(self) -> None:
        """Find the streams and their shards, and fix where each shard begins; reads nothing.

        Calling it is optional: :meth:`run` does it first.

        Raises:
            ClosedError: this process was forked off the one in which the fetcher was opened.
            StreamNotFoundError: a stream does not exist.
            CheckpointError: ``resume`` is the progress of other streams.
            DataLossError: what ``resume`` says cannot be continued.
        """
        self._process.check("this fetcher")
        await self._streams.prepare()
        self.end.note_listing(self._shards.listed_at)

    def add_stream(self, stream: str) -> None:
        """Read another stream (a name or an ARN); one that does not exist fails :meth:`run`."""
        self._streams.add(stream)
        self._wake.set()

    def drop_stream(self, stream: str) -> None:
        """Stop reading a stream (a name or an ARN) after the delivery in progress.

        Its progress is recorded; it continues there if it is added again.

        Raises:
            ValueError: the stream is not read.
        """
        self._streams.drop(stream)
        self._wake.set()

    async def run(self) -> None:
        """Read until the end, if there is one, :meth:`stop` is called, or something fails.

        Raises:
            KinesisPublishersError: the first failure; every shard has been stopped then.
        """
        self._process.check("this fetcher")
        if self._is_stopping:
            return
        # The last checkpoints are written when every shard has stopped: around the scope.
        writing = nullcontext() if self.checkpointer is None else self.checkpointer.running()
        with ShortTraceback(), reported_run(self._services):
            reported = self._consumers.reported(self.slow_calls, lambda: self._shards.latest_at)
            async with writing, reported:
                while await self._must_begin_again():
                    self._streams.renew()
                    # Of shards that are gone, whose ids come again.
                    self._children.clear()
                    self._finished.clear()

    async def _must_begin_again(self) -> bool:
        """Read; return ``True`` if a stream was created again, and what it held may be missed."""
        try:
            async with TaskScope() as scope:
                self._coordinator = scope.spawn(self._coordinate(scope), name="find shards")
        except StreamRecreatedError:
            if self._services.data_loss.fails:
                raise
            if self.checkpointer is not None:
                # What waits belongs to the stream that is gone.
                await self.checkpointer.flush()
            return not self._is_stopping
        return False

    async def _coordinate(self, scope: TaskScope) -> None:
        """Start shards as they are found and may be read; :meth:`stop` cancels it."""
        if not self._streams.is_prepared:
            await self.prepare()
        self._assign(scope)
        clock, interval = self._services.clock, self._services.discovery.config.interval_seconds
        listed_at, end = clock.monotonic(), self.end
        while not (self._is_stopping or (end.until is not None and self.is_finished)):
            left = min(listed_at + interval - clock.monotonic(), end.seconds_to_listing)
            await wait_for_event(self._wake, timeout_seconds=left, clock=clock)
            self._wake.clear()
            endings = self._endings
            # Before the listing, which may be late, or take its time.
            while self._children:
                self._shards.add_children(*self._children.pop())
            if self._streams.are_changed:
                async with self._consumers.withdrawing(self._wake, self._shards.progress, scope):
                    await self._streams.change()
            await self._start_found(scope)
            is_due = clock.monotonic() >= listed_at + interval or end.seconds_to_listing <= 0
            if endings == self._settled_endings and not is_due:
                continue
            listed_at = clock.monotonic()
            async with self._consumers.withdrawing(self._wake, self._shards.progress, scope):
                await self._shards.discover(in_use=self._consumers.keys, given_up=self._finished)
            end.note_listing(self._shards.listed_at)
            await self._start_found(scope)
            self._settled_endings = endings
            self._sink.observe_discovery()

    async def _start_found(self, scope: TaskScope) -> None:
        await self._streams.write_first_checkpoints()
        self._assign(scope)

    def _assign(self, scope: TaskScope) -> None:
        """Start and stop consumers as the assigner says."""
        if self._is_stopping:
            return
        shards, known = self._shards, self._sink.sharing.known_progress()
        if new := known.keys() - self._consumers.keys:
            shards.progress.update({key: known[key] for key in new})
        self._consumers.assign(shards.startable(), shards.progress, scope, self._finished)

    def _note_finished(self, consumer: ShardConsumer) -> None:
        self._shards.progress[consumer.shard.key] = consumer.progress
        if consumer.progress.is_ended:
            # Its children may be read now; they are listed at once, not with the next round.
            self._endings += 1
            self._children.append((consumer.shard.stream_arn, consumer.status.child_shards))
        elif consumer.is_at_end:
            self._finished.add(consumer.shard.key)
        # If it was withdrawn, it may be this worker's again.
        self._wake.set()

    def stop(self) -> None:
        """Make :meth:`run` return: deliveries in flight are finished, all other work is cancelled.

        What was asked for and not delivered yet is dropped; a later fetcher reads it again.
        """
        self._is_stopping = True
        self._consumers.stop()
        # Listing and describing have retries: waiting for them could take minutes.
        if self._coordinator is not None:
            self._coordinator.cancel()
