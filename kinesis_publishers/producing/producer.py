"""Writes records; each returns a future of the place where it was written."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, Unpack

from kinesis_publishers.assembly import WritingServices, open_writing
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import MetricsConfig, Options, ProducerConfig, Properties, Scalar
from kinesis_publishers.errors import (
    BufferFullError,
    ClosedError,
    KinesisPublishersError,
    RecordsNotWrittenError,
)
from kinesis_publishers.event_loop import Usability
from kinesis_publishers.events import EventSink, ProducerStarted, ProducerStopped
from kinesis_publishers.formats import Encoder, Format, encoder_of, open_tracing
from kinesis_publishers.producing.buffer import Buffer
from kinesis_publishers.producing.checking import Data, Item, RecordChecker
from kinesis_publishers.producing.outstanding import Outstanding
from kinesis_publishers.producing.queues import ShardQueues
from kinesis_publishers.producing.records import (
    AnyFuture,
    ManyPuts,
    PutResult,
    Row,
    Run,
    utf8_bytes,
)
from kinesis_publishers.producing.routing import ShardMap
from kinesis_publishers.producing.sender import Sender
from kinesis_publishers.producing.spool import Spilling, Spool, open_spool

if TYPE_CHECKING:
    from kinesis_publishers.formats.spans import Tracing

_LOGGER = logging.getLogger(__name__)
# `put_many` handles its records in chunks of this size, which is the size of a call.
CHUNK_RECORDS = 500
# The buffer is reserved in this many pieces.
_PIECES = 16
_CLOSED = "is closed"


class KinesisProducer:
    """Writes records to one stream in batches, and sends refused records again.

    ``async with KinesisProducer.from_properties(properties) as producer`` is the usual way to open
    one; leaving the context delivers what was put. It belongs to one event loop; other threads use
    a :class:`~kinesis_publishers.producing.blocking.BlockingProducer`.

    A record is written at least once: after a lost answer it may be there twice.
    """

    def __init__(
        self,
        services: WritingServices,
        shard_map: ShardMap,
        encode: Encoder | None = None,
        tracing: Tracing | None = None,
        spool: Spool | None = None,
    ) -> None:
        self._services = services
        self._config = config = services.config
        #: The time that the records have.
        self.clock = services.clock
        self._queues = ShardQueues(services, shard_map)
        self._buffer = Buffer(self._queues, config)
        self._outstanding = Outstanding(self._queues, self._buffer, services.events)
        self._sender = Sender(services, self._queues, self._outstanding)
        self._buffer.on_wait = self._sender.wake
        self._spilling: Spilling | None = None
        if spool is not None:
            enter = partial(self._put_run, is_from_disk=True)
            self._spilling = Spilling(services, spool, self._buffer, enter)
            self._sender.further = self._spilling.run
        self._last_number = 0
        # With order, each record may wait for another one.
        most = 1 if self._queues.has_order else config.max_records // _PIECES
        self._piece_records = max(1, most)
        self._piece_bytes = max(1, config.max_bytes // _PIECES)
        self._sending: asyncio.Task[None] | None = None
        self._closing: asyncio.Event | None = None
        self._use = Usability(f"the producer for {services.name}")
        self.checker = RecordChecker(services, encode)
        #: The span of a put, whose future it takes.
        self.sending: Callable[[Any], AbstractContextManager[Any]] = nullcontext
        if tracing is not None:
            self.sending = partial(tracing.sending, services.name)

    @classmethod
    @asynccontextmanager
    async def from_properties(
        cls,
        properties: Properties | Mapping[str, Scalar] | None = None,
        *,
        encode: str | Format[Any] | Encoder | None = None,
        events: EventSink | None = None,
        clock: Clock | None = None,
        **options: Unpack[Options],
    ) -> AsyncIterator[Self]:
        """Open clients for ``properties``, yield a producer, deliver its records, and close.

        Args:
            properties: the stream (``kinesis.streams``), where it is, and ``kinesis.producer.*``.
            encode: makes the payloads of what is put: ``json``, ``gzip``, one of
                :mod:`kinesis_publishers.formats`, or your own function. Without it bytes are put.
            events: takes diagnostic events in addition to the sinks that the properties name.
            clock: by default this machine's.
            **options: the properties as keywords: see :class:`~kinesis_publishers.Options`.

        Raises:
            ConfigError: the properties cannot work; every problem is named.
            TypeError, ValueError: ``encode`` is no encoder.
            KinesisPublishersError: the stream cannot be described, or its shards cannot be listed.
            RecordsNotWrittenError: on leaving, as of :meth:`close`.
        """
        properties, encoder = Properties.of(properties, options), encoder_of(encode)
        tracing = open_tracing() if MetricsConfig.from_properties(properties).traces else None
        with open_spool(ProducerConfig.from_properties(properties).spill_path) as spool:
            async with (
                open_writing(properties, events=events, clock=clock) as services,
                cls(services, await ShardMap.listed(services), encoder, tracing, spool) as producer,
            ):
                yield producer

    async def __aenter__(self) -> Self:
        loop = self._use.begin()
        if self._spilling is not None:
            await self._spilling.open()
        self._sending = loop.create_task(self._sender.run(), name="kinesis producer")
        self._sending.add_done_callback(self._note_end)
        shards = self._queues.shard_map.choices or len(self._queues.shard_map.open_shards)
        self._services.events(ProducerStarted(stream_arn=self._services.arn, shards=shards))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        # A loop that is closed without cancelling its tasks ends the sender silently.
        if self._use.is_open and self._outstanding.records:
            _LOGGER.error(
                "A producer for %s was left with %d records that were not written, or not for "
                "certain: close it, or use `async with`.",
                self._services.name,
                self._outstanding.records,
            )

    @property
    def has_spool(self) -> bool:
        """Whether records go to a disk while the service is away."""
        return self._spilling is not None

    @property
    def pending_records(self) -> int:
        """The number of records that were put and are neither written nor given up."""
        return self._outstanding.records + self._buffer.on_disk

    @property
    def pending_bytes(self) -> int:
        """The data and partition keys of those in memory, in bytes."""
        return self._buffer.bytes

    async def put(
        self, data: Data, partition_key: str | None = None, explicit_hash_key: str | None = None
    ) -> asyncio.Future[PutResult]:
        """Return once a record has a place in the buffer, with the future of its result.

        Await the future to learn where the record was written. It raises ``ServiceError``,
        ``RecordExpiredError``, ``BufferFullError`` or ``ClosedError`` if it was not written.

        Args:
            data: the payload, of 0 bytes up to what the stream takes (1 MiB by default); with
                ``encode`` the value of which it is made.
            partition_key: 1 to 256 characters; without one the partitioner chooses it.
            explicit_hash_key: decimal; determines the shard instead of the partition key.

        Raises:
            InvalidRecordError: the service would refuse the record, or ``encode`` has raised;
                nothing was put.
            ClosedError: the producer is closed, or cannot be used here.
        """
        future: asyncio.Future[PutResult] = self._use.loop().create_future()
        with self.sending(future):
            item = self.checker.encoded((data, partition_key, explicit_hash_key))
            await self.put_row(self.checker.row_of(item), future)
        return future

    async def put_row(self, row: Row, future: AnyFuture) -> None:
        """Put a checked record whose result goes to ``future``, which may be another thread's."""
        self._use.check_open()
        data, key, hash_key, marker = row
        size = len(data) + utf8_bytes(key)
        if size > self.checker.surely_fits or marker is not None:
            await self.checker.check_size(data, key, marker)
        try:
            await self._buffer.enter(key, hash_key, 1, size)
        except BufferFullError as error:
            await self._spill(Run.of_one(future, row, put_at=self.clock.monotonic()), error)
            return
        now = self.clock.monotonic()
        queue = self._queues.queue_of(key, hash_key)
        self._outstanding.records += 1
        may_share = hash_key is None and marker is None and not self._queues.has_order
        since = now - self._config.linger_seconds
        put = queue.add_to_open(data, key, size, since) if may_share else None
        if put is None:
            self._last_number += 1
            run = Run.of_one(future, row, self._last_number, now)
            queue.append(run, is_open=may_share)
        else:
            put.expect(future, now)
        if self._sender.note(1, size, now):
            # Let the sender start its calls before more records are put.
            await asyncio.sleep(0)

    def key_of(self, row: Row) -> str | None:
        """Return the partition key with which a checked record is sent."""
        return self._queues.queue_of(row[1], row[2]).key_of(row[1])

    def refuse(self, row: Row, future: AnyFuture, error: KinesisPublishersError) -> None:
        """Fail a record that has no place in the buffer."""
        self._outstanding.refuse(Run.of_one(future, row), error)

    async def _spill(self, run: Run, error: RecordsNotWrittenError) -> None:
        """Store records on disk that have no place in the buffer, or fail them."""
        try:
            if self._spilling is None:
                raise error
            await self._spilling.append(run)
        except RecordsNotWrittenError as further:
            self._outstanding.refuse(run, further)

    async def put_many(self, records: Iterable[Item]) -> asyncio.Future[Sequence[PutResult]]:
        """Return once all records have had a place in the buffer, with the future of their results.

        Args:
            records: user records, or tuples of data, partition key and perhaps explicit hash key,
                as for :meth:`put`. Records before an invalid one are put.

        Returns:
            A future of a result for each record, in their order. If any was not written it raises
            ``RecordsNotWrittenError``, whose ``results`` have a result or an error for each.

        Raises:
            InvalidRecordError, ClosedError: as of :meth:`put`.
        """
        future: asyncio.Future[Sequence[PutResult]] = self._use.loop().create_future()
        put = ManyPuts(future)
        left = iter(records)
        with self.sending(future):
            try:
                while chunk := list(islice(left, CHUNK_RECORDS)):
                    await self.put_chunk(chunk, put)
            finally:
                put.complete()
        return future

    async def put_chunk(self, chunk: Sequence[Item], put: ManyPuts) -> None:
        self._use.check_open()
        run, problem = await self.checker.run_of(chunk, put)
        run.places = put.expect(len(run))
        if run:
            await self._put_run(run)
        if problem is not None:
            raise problem

    async def _put_run(self, run: Run, *, is_from_disk: bool = False) -> None:
        most, most_bytes = self._piece_records, self._piece_bytes
        shares = [own for _, own in self._queues.split(run)]
        pieces = [piece for own in shares for piece in own.pieces(most, most_bytes)]
        if self._buffer.on_disk and not is_from_disk and run.size <= most_bytes:
            pieces = [run]  # The disk takes them at once.
        done = 0
        try:
            for piece in pieces:
                await self._put_piece(piece, is_from_disk=is_from_disk)
                done += 1
                if self._sender.note(len(piece), piece.size, self.clock.monotonic()):
                    # Let the sender start its calls before more records are put.
                    await asyncio.sleep(0)
        except BaseException as error:
            # What comes from the disk stays there.
            for piece in pieces[done:] if not is_from_disk else ():
                not_put = RecordsNotWrittenError(f"the record was not put: {error!r}")
                piece.put.fail(piece.places, not_put)
            raise

    async def _put_piece(self, piece: Run, *, is_from_disk: bool) -> None:
        request = piece.partition_keys[0], piece.hash_key_at(0), len(piece), piece.size
        try:
            await self._buffer.enter(*request, is_from_disk=is_from_disk)
        except BufferFullError as error:
            piece.put_at = self.clock.monotonic()
            await self._spill(piece, error)
            return
        self._last_number += 1
        piece.number, piece.put_at = self._last_number, self.clock.monotonic()
        self._outstanding.records += len(piece)
        # Predict again: the stream may have been resharded meanwhile.
        for queue, own in self._queues.split(piece):
            queue.append(own)

    async def flush(self) -> None:
        """Send everything now, and return when each record so far is written or given up.

        Raises:
            RecordsNotWrittenError: records were given up since the last flush, even if their
                futures were awaited. The message names the first ones.
        """
        self._use.loop()
        with self._outstanding.raising_failures(self._services.name):
            await self._deliver()

    async def close(self, *, timeout_seconds: float | None = None) -> None:
        """Take no more records, deliver those that were put, and end.

        Delivery takes at most ``kinesis.producer.recordttlmillis``. After a cancellation or
        ``timeout_seconds``, the futures of the remaining records raise ``ClosedError``; those on
        disk stay there.

        Raises:
            RecordsNotWrittenError: as of :meth:`flush`.
        """
        if self._sending is None or self._use.is_left:
            return
        if self._closing is not None:
            await self._closing.wait()
            return
        self._closing = asyncio.Event()
        try:
            with self._outstanding.raising_failures(self._services.name):
                # Without a disk, the records expire by themselves.
                limit = math.inf if self._spilling is None else self._config.ttl_seconds
                seconds = limit if timeout_seconds is None else timeout_seconds
                await self._end(self._sending, seconds)
        finally:
            try:
                left_on_disk = None if self._spilling is None else await self._spilling.close()
            finally:
                self._closing.set()
        if left_on_disk is not None:
            raise left_on_disk

    async def _end(self, sending: asyncio.Task[None], seconds: float) -> None:
        try:
            if not self._use.ended:
                self._use.ended = _CLOSED
                with suppress(TimeoutError):
                    async with self.clock.timeout(seconds):
                        closed = ClosedError(f"the producer for {self._services.name} {_CLOSED}")
                        await self._deliver(closed)
        finally:
            left = self.pending_records
            if not sending.done():
                sending.cancel()
                await asyncio.wait([sending])
            self._services.events(ProducerStopped(stream_arn=self._services.arn, records=left))

    async def _deliver(self, closed: ClosedError | None = None) -> None:
        if self._spilling is not None:
            await self._spilling.drain()
        if closed is not None:
            self._buffer.close(closed)
        for queue in self._queues:
            queue.seal()
        self._sender.wake()
        await self._outstanding.wait(self._last_number)

    def _note_end(self, sending: asyncio.Task[None]) -> None:
        """Give up the remaining records: nothing more is sent."""
        error: KinesisPublishersError
        error = ClosedError("the producer was closed before the record was sent")
        if sending.cancelled():
            if not self._use.ended:
                self._use.ended = "has ended with its event loop"
                _LOGGER.error(
                    "The event loop of a producer for %s has ended with %d records that were not "
                    "written: close the producer before, or use `async with`.",
                    self._services.name,
                    self._outstanding.records,
                )
        else:
            self._use.ended = f"has failed: {(cause := sending.exception())!r}"
            _LOGGER.error("The producer for %s has failed", self._services.name, exc_info=cause)
            error = RecordsNotWrittenError(f"the producer {self._use.ended}")
            error.__cause__ = cause
        if self._spilling is not None:
            self._spilling.end(error)
        self._buffer.close(error)
        self._outstanding.give_up_all(error)
