"""A base class for publishers whose source is an asynchronous iterator of records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from typing import ClassVar, Final, Self, TypeAlias

from attrs import frozen

from kinesis_publishers.abc import (
    PublisherContext,
    RecordBatchConsumer,
    RecordPublisher,
    RecordPublisherFactory,
)
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import Option, Properties
from kinesis_publishers.model import (
    PositionType,
    RecordBatch,
    RunResult,
    Shard,
    StartingPosition,
    continue_from,
)


@frozen(kw_only=True)
class SourceRecord:
    """A record of a source that is not Kinesis.

    Attributes:
        data: the payload.
        sequence_number: the checkpoint. It increases from record to record of a shard, and a record
            has the same one whenever it is read.
        partition_key: 1 to 256 characters; ``None`` for a record without one.
        arrived_at: when the source stored the record (aware); defaults to the instant of reading.
    """

    data: bytes
    sequence_number: int
    partition_key: str | None = "-"
    arrived_at: datetime | None = None


Iterated: TypeAlias = "SourceRecord | Sequence[SourceRecord]"
"""One record, or several that are delivered together; ``()`` means that the tip is reached."""
_END: Final[list[SourceRecord]] = []

_Read: TypeAlias = "Callable[[Shard, StartingPosition], AsyncGenerator[Iterated, None]]"


class IteratedPublisherFactory(RecordPublisherFactory):
    """Reads each shard with :meth:`records`, an asynchronous generator that a subclass implements.

    Name the subclass in ``kinesis.stream.recordpublisher``. This class handles positions,
    backpressure, and which records were processed and which are read again.

    Attributes:
        options: the subclass's own options; every key begins with ``custom.``. :attr:`properties`
            has their values.
        properties: the configuration.
        context: the clock, the control plane and the other parts that a factory may use.
    """

    options: ClassVar[tuple[Option[object], ...]] = ()

    def __init__(self, properties: Properties, context: PublisherContext) -> None:
        self.properties = properties.custom(*self.options)
        self.context = context

    @classmethod
    def from_properties(cls, properties: Properties, context: PublisherContext) -> Self:
        return cls(properties, context)

    @abstractmethod
    def records(self, shard: Shard, start: StartingPosition) -> AsyncGenerator[Iterated, None]:
        """Yield the records of ``shard`` in order, one or several at a time.

        The generator may begin before ``start``: earlier records are skipped. Returning ends the
        shard. The generator waits for new records itself, with ``self.context.clock``, and yields
        ``()`` when there are none at the moment. It is closed when the shard is no longer read. If
        the application has not processed everything, :meth:`records` is called again.

        Args:
            shard: the shard to read.
            start: a position of the type TRIM_HORIZON, AT_SEQUENCE_NUMBER, AFTER_SEQUENCE_NUMBER
                or AT_TIMESTAMP.
        """

    async def create(self, starting_position: StartingPosition, shard: Shard) -> RecordPublisher:
        return _IteratedPublisher(self.records, shard, starting_position, self.context.clock)


class _IteratedPublisher(RecordPublisher):
    """Delivers what an iterator yields: one item per run."""

    def __init__(self, read: _Read, shard: Shard, start: StartingPosition, clock: Clock) -> None:
        self._read = read
        self._shard = shard
        self._position = start.require_pinned()
        self._clock = clock
        self._iterator: AsyncGenerator[Iterated, None] | None = None
        self._last: int | None = None
        self._has_ended = False

    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        if self._has_ended:
            return RunResult.COMPLETE
        if self._iterator is None:
            self._iterator, self._last = self._read(self._shard, self._position), None
        try:
            item = await anext(self._iterator, _END)
            found = self._wanted(item)
            if found:
                await consumer.wait_for_space(len(found), sum(len(one.data) for one in found))
            # Nothing at all, at the end too, says that the tip is reached.
            is_at_tip = isinstance(item, Sequence) and not item
            if found or is_at_tip:
                await self._deliver(found, consumer, is_at_tip=is_at_tip)
        except BaseException:
            await self._close()
            raise
        self._has_ended = item is _END
        return RunResult.COMPLETE if self._has_ended else RunResult.INCOMPLETE

    async def _deliver(
        self, found: Sequence[SourceRecord], consumer: RecordBatchConsumer, *, is_at_tip: bool
    ) -> None:
        now = self._clock.now()
        batch = RecordBatch(
            shard=self._shard,
            requested_at=now,
            payloads=[one.data for one in found],
            partition_keys=[one.partition_key for one in found],
            sequence_numbers=[str(one.sequence_number) for one in found],
            arrival_epoch_seconds=[(one.arrived_at or now).timestamp() for one in found],
            millis_behind_latest=0 if is_at_tip else None,
            has_arrival_times=all(one.arrived_at is not None for one in found),
        )
        processed = await consumer(batch)
        self._position = continue_from(self._position, processed)
        if found and (
            processed is None or processed.sequence_number != str(found[-1].sequence_number)
        ):
            # The rest is read again.
            await self._close()

    def _wanted(self, item: Iterated) -> list[SourceRecord]:
        records = [item] if isinstance(item, SourceRecord) else item
        for one in records:
            # It would be taken for one that was delivered before, and be left out.
            if self._last is not None and one.sequence_number <= self._last:
                raise ValueError(
                    f"{self._shard}: sequence number {one.sequence_number} after {self._last}: "
                    "records() must yield increasing ones"
                )
            self._last = one.sequence_number
        return [one for one in records if self._is_wanted(one)]

    def _is_wanted(self, record: SourceRecord) -> bool:
        position = self._position
        if position.sequence_number is not None:
            number = int(position.sequence_number.sequence_number)
            is_after = position.type is PositionType.AFTER_SEQUENCE_NUMBER
            return record.sequence_number >= number + is_after
        if position.timestamp is not None and record.arrived_at is not None:
            return record.arrived_at >= position.timestamp
        return True

    async def _close(self) -> None:
        iterator, self._iterator = self._iterator, None
        if iterator is not None:
            await iterator.aclose()
