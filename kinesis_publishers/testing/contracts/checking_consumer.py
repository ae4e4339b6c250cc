"""The consumer of publishers in a contract: it checks each delivery and reports what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from kinesis_publishers.abc import RecordPublisher
from kinesis_publishers.model import (
    Record,
    RecordBatch,
    RunResult,
    SequenceNumber,
    Shard,
    StartingPosition,
)
from kinesis_publishers.testing.contracts.subjects import (
    HeldShard,
    PublisherSubject,
    let_others_run,
)
from kinesis_publishers.testing.fakes.recording import ProcessBatch, RecordingConsumer
from kinesis_publishers.testing.manual_clock import ManualClock

TRIM_HORIZON = StartingPosition.trim_horizon()
# Enough for a publisher that delivers one record per run, and is throttled and heartbeats between.
_MOST_RUNS = 1000


class CheckingConsumer(RecordingConsumer):
    """Takes deliveries one at a time, and fails the test for one that no publisher may make.

    Args:
        process: as that of a recording consumer.
        clock: what the publisher sleeps on, if that is known.

    Attributes:
        slept_with_room: for how many seconds the publisher has slept with room.
    """

    def __init__(
        self, shard: Shard, process: ProcessBatch | None = None, *, clock: ManualClock | None = None
    ) -> None:
        super().__init__(process)
        self._shard = shard
        self._sleeps = [] if clock is None else clock.sleeps
        self._is_busy = False
        # How often it had slept when room was given for a delivery that has not come yet.
        self._sleeps_before: int | None = None
        self._violation: AssertionError | None = None
        self.slept_with_room = 0.0

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        with self._one_call("wait_for_space()"):
            for name, value in (("records", records), ("payload_bytes", payload_bytes)):
                assert isinstance(value, int), f"wait_for_space: {name} is {value!r}, not an int"
                assert value >= 0, f"wait_for_space: {name} is {value}: it cannot be negative"
            self.release_room()
            await let_others_run()
            await super().wait_for_space(records, payload_bytes)
        self._sleeps_before = len(self._sleeps)

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        with self._one_call("a delivery"):
            self.release_room()
            check_batch(batch, self._shard)
            await let_others_run()
            return await super().__call__(batch)

    def release_room(self) -> None:
        """Release the room, as a delivery or the end of a run does."""
        if self._sleeps_before is not None:
            self.slept_with_room += sum(self._sleeps[self._sleeps_before :])
        self._sleeps_before = None

    def check(self) -> None:
        """Fail for any problem so far, even if the publisher has swallowed or wrapped it."""
        if self._violation is not None:
            raise self._violation
        assert not self._is_busy, (
            "run() ended while the consumer was still processing: await every delivery"
        )

    @contextmanager
    def _one_call(self, what: str) -> Iterator[None]:
        try:
            assert not self._is_busy, (
                f"{what} came before the consumer had returned from the call before: await each "
                "call, and make one at a time"
            )
            self._is_busy = True
            yield
        except AssertionError as error:
            self._violation = self._violation or error
            raise
        finally:
            self._is_busy = False


async def run_to_end(publisher: RecordPublisher, consumer: CheckingConsumer) -> list[RunResult]:
    """Run ``publisher`` until its shard has ended; return what every run has returned."""
    results: list[RunResult] = []
    while RunResult.COMPLETE not in results:
        assert len(results) < _MOST_RUNS, (
            f"after {_MOST_RUNS} runs the publisher has not returned RunResult.COMPLETE, though "
            "its shard has ended: return it once the last record has been delivered"
        )
        results.append(await run_once(publisher, consumer))
    return results


async def run_once(publisher: RecordPublisher, consumer: CheckingConsumer) -> RunResult:
    """Run ``publisher`` once; check what it returns."""
    try:
        result: object = await publisher.run(consumer)
    finally:
        consumer.release_room()
        consumer.check()
    assert isinstance(result, RunResult), f"run() returned {result!r}, which is no RunResult"
    assert result is not RunResult.CANCELLED, (
        "run() returned CANCELLED though the publisher was not cancelled: return INCOMPLETE, "
        "and let CancelledError pass"
    )
    return result


async def read_shard(
    subject: PublisherSubject,
    held: HeldShard,
    start: StartingPosition = TRIM_HORIZON,
    *,
    process: ProcessBatch | None = None,
) -> CheckingConsumer:
    """Read a shard to its end with a new publisher; return what took its records."""
    consumer = CheckingConsumer(held.shard, process)
    await subject.finish(run_to_end(await subject.publisher(held, start), consumer))
    return consumer


_ARRIVAL_SECONDS = 0.001


def assert_same_records(
    delivered: Sequence[Record], expected: Sequence[Record], *, advice: str
) -> None:
    """Check that exactly ``expected`` was delivered; the message says what differs, and why.

    Arrival times may differ by a millisecond.
    """
    got, wanted = [_shown(one) for one in delivered], [_shown(one) for one in expected]
    assert got == wanted, f"{advice}\n  delivered: {got}\n  expected:  {wanted}"
    for one, other in zip(delivered, expected, strict=True):
        arrival, wanted_arrival = one.arrival_epoch_seconds, other.arrival_epoch_seconds
        # A service may round to milliseconds.
        assert abs(arrival - wanted_arrival) <= _ARRIVAL_SECONDS, (
            f"record {one.sequence_number} was delivered with arrival_epoch_seconds {arrival!r} "
            f"instead of {wanted_arrival!r}: it is when the record arrived, in seconds since 1970"
        )


def _shown(record: Record) -> tuple[str, str | None, bytes]:
    return record.sequence_number, record.partition_key, record.data[:64]


def check_batch(batch: object, shard: Shard) -> None:
    """Fail the test for a batch of ``shard`` that contradicts itself."""
    assert isinstance(batch, RecordBatch), f"{batch!r} was delivered, which is no RecordBatch"
    assert batch.shard.key == shard.key, (
        f"a batch of {batch.shard} was delivered by the publisher of {shard}: set RecordBatch.shard"
    )
    _check_columns(batch)
    numbers = [int(one) for one in batch.sequence_numbers]
    assert all(one < other for one, other in pairwise(numbers)), (
        f"the sequence numbers of a batch do not increase (compared as integers): {numbers}"
    )
    assert batch.requested_at.tzinfo is not None, "requested_at must have a time zone (UTC)"
    lag: Any = batch.millis_behind_latest
    assert lag is None or (isinstance(lag, int) and lag >= 0), (
        f"millis_behind_latest is {lag!r}: it is a number of milliseconds, or None if unknown"
    )


def _check_columns(batch: RecordBatch) -> None:
    columns: dict[str, tuple[Sequence[object], type | tuple[type, ...]]] = {
        "payloads": (batch.payloads, bytes),
        "partition_keys": (batch.partition_keys, (str, type(None))),
        "sequence_numbers": (batch.sequence_numbers, str),
        "arrival_epoch_seconds": (batch.arrival_epoch_seconds, (int, float)),
    }
    if batch.encryption_types is not None:
        columns["encryption_types"] = (batch.encryption_types, (str, type(None)))
    for name, (values, kinds) in columns.items():
        assert len(values) == len(batch), (
            f"a batch has {len(batch)} payloads and {len(values)} {name}: one of each per record"
        )
        wrong = [value for value in values if not isinstance(value, kinds)]
        assert not wrong, f"{name} of a batch has {wrong[0]!r}, of type {type(wrong[0]).__name__}"
