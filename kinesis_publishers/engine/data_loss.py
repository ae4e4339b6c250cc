"""Detects records that were removed unread, and raises or reports the loss."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from datetime import datetime, timedelta

from attrs import define, field

from kinesis_publishers.clock import Clock
from kinesis_publishers.engine.lineage import uncovered_hash_keys
from kinesis_publishers.errors import (
    ConsumerNotFoundError,
    DataLossError,
    InternalServiceError,
    PositionTrimmedError,
    ServiceError,
    ShardNotFoundError,
    StreamNotFoundError,
    StreamRecreatedError,
)
from kinesis_publishers.events import DataLossTolerated, EventSink
from kinesis_publishers.model import (
    PositionType,
    SequenceNumber,
    Shard,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StreamIdentity,
    StreamSummary,
)
from kinesis_publishers.model.sources import KINESIS, source_of
from kinesis_publishers.retry import RetryBudget, RetryPolicy

# The shortest retention (AWS service limits): a younger position needs no call.
_SHORTEST_RETENTION = timedelta(hours=24)
# The total time of a shard's records that may be missing before that counts as loss: a reader that
# begins at TRIM_HORIZON reads records that are just leaving the retention, and the service's clock
# is known to a second.
_SLACK = timedelta(seconds=30)
# Between records as close as this, a retention that was read a minute ago is recent enough:
# otherwise each page of a reader that is behind would cost a call.
_CLOSE = timedelta(seconds=1)
_KNOWN_FOR = timedelta(minutes=1)

# A listing may lack a shard for a moment; the KCL's numbers.
_AUDIT_SECONDS = 120.0
_LOOKS_UNTIL_HOLE = 3

#: The errors for a shard that the service does not find.
SHARD_NOT_FOUND = (StreamNotFoundError, ShardNotFoundError, ConsumerNotFoundError)

# A node of the service may not know a listed shard yet; that lasts for a moment.
_ASK_AGAIN = RetryPolicy(
    max_retries=0, base_seconds=1.0, max_seconds=5.0, exponent=1.5, outage_seconds=300.0
)

_REMEDY = (
    "To continue with the remaining records, set kinesis.failondataloss = false; to begin again, "
    "remove the checkpoint or choose another initial position."
)


def recreated_message(known: datetime, found: datetime) -> str:
    return (
        f"the stream was created on {found.isoformat()}, but the positions belong to one that was "
        f"created on {known.isoformat()}: it was deleted and created again."
    )


@define(eq=False, kw_only=True)
class DataLossGuard:
    """Detects data loss, and raises or reports it according to ``kinesis.failondataloss``.

    Args:
        fail: whether to raise (the option's default), or to report an event and continue.
        describe: returns the current description of a stream (by ARN).
        has_shard: asks the service whether it still lists a shard. For a shard that has left the
            retention, the service reports a missing stream. ``None`` believes that report.
    """

    fails: bool = field(alias="fail")
    events: EventSink
    clock: Clock
    _describe: Callable[[str], Awaitable[StreamSummary]]
    has_shard: Callable[[Shard], Awaitable[bool]] | None = None
    _identities: dict[str, StreamIdentity] = field(factory=dict, init=False)
    _retentions: dict[str, tuple[datetime, timedelta]] = field(factory=dict, init=False)
    # The positions at which a loss was tolerated: each is reported once.
    _tolerated: dict[ShardKey, datetime] = field(factory=dict, init=False)
    # By stream: the time of the last audit, and the number of consecutive ones with holes.
    _audits: dict[str, tuple[float, int]] = field(factory=dict, init=False)
    # By shard: the total time whose records may have been removed unread.
    _unseen: dict[ShardKey, timedelta] = field(factory=dict, init=False)

    def missing(self, shard: Shard) -> MissingShard:
        """Return what decides if the service does not find ``shard``."""
        return MissingShard(shard, self)

    def note_identity(self, identity: StreamIdentity) -> None:
        """Remember the identity of a stream; another stream of its name is an error from now on."""
        self._identities[identity.arn] = identity

    async def check_identity(self, stream_arn: str, *, cause: Exception | None = None) -> None:
        """Check that a stream that is read was not deleted and created again.

        Raises:
            StreamRecreatedError: it was, even if loss is tolerated: its reader then prepares again.
        """
        if stream_arn in self._identities:
            # If the stream is gone, the caller says so better.
            with suppress(StreamNotFoundError):
                await self._retention(stream_arn, cause=cause)

    async def _retention(self, stream_arn: str, *, cause: Exception | None = None) -> timedelta:
        summary = await self._describe(stream_arn)
        known, found = self._identities.get(stream_arn), summary.identity
        if known is not None and known.created_at != found.created_at:
            message = recreated_message(known.created_at, found.created_at)
            raise StreamRecreatedError(f"{found.name}: {message} {_REMEDY}") from cause
        return timedelta(seconds=summary.retention_seconds)

    async def check_beginning(
        self,
        shard: Shard,
        progress: ShardProgress,
        now: datetime,
        first: SequenceNumber,
        arrived: datetime | None,
    ) -> None:
        """Report a loss if records may be missing between ``progress`` and ``first``, the next one.

        Raises:
            PositionTrimmedError: records may be missing, and loss is not tolerated.
        """
        position, asked = progress.position, progress.position.sequence_number
        if asked is None or position.type is not PositionType.AT_SEQUENCE_NUMBER:
            await self.check_retention(shard, progress, now, first=first, arrived=arrived)
        elif first != asked.whole:
            message = f"record {asked.whole} is gone; the next one that the stream still holds is"
            self.report(shard.key, f"{message} {first}.", after=progress, first=first)

    async def check_retention(
        self,
        shard: Shard,
        progress: ShardProgress,
        now: datetime,
        *,
        first: SequenceNumber | None = None,
        arrived: datetime | None = None,
    ) -> None:
        """Report a loss if records that came after ``progress`` may have been removed by ``now``.

        Later records still exist while ``progress.as_of`` lies within the retention. Call this
        before the delivery of ``first``, the next record, which arrived at ``arrived``: afterwards
        nothing shows what is missing before it. The rest is as for :meth:`check_beginning`.
        """
        as_of, key = progress.as_of, shard.key
        if as_of is None or progress.is_ended or as_of >= now - _SHORTEST_RETENTION:
            return
        if self._tolerated.get(key) == as_of:
            return
        asked_at, retention = self._retentions.get(shard.stream_arn, (None, timedelta()))
        is_close = arrived is not None and arrived - as_of <= _CLOSE
        if not is_close or asked_at is None or now - asked_at > _KNOWN_FOR:
            retention = await self._retention(shard.stream_arn)
            self._retentions[shard.stream_arn] = now, retention
        until = now - retention if arrived is None else min(now - retention, arrived)
        unseen = max(until - as_of, timedelta())
        if arrived is not None:
            self._unseen[key] = unseen = self._unseen.get(key, timedelta()) + unseen
        if unseen <= _SLACK:
            return
        self.report(
            key,
            f"everything up to {as_of.isoformat()} has been read ({progress.position}), but the "
            f"stream keeps records for {retention / timedelta(hours=1):g} hours only: records that "
            f"came after that, until {until.isoformat()}, may have been removed unread.",
            after=progress,
            until=until,
            first=first,
        )
        self._tolerated[key], self._unseen[key] = as_of, timedelta()

    async def report_trimmed(
        self, shard: Shard, progress: ShardProgress, *, cause: Exception
    ) -> None:
        """Report a trimmed position, unless no record after it can have been removed."""
        kept_since = self.clock.now() - await self._retention(shard.stream_arn, cause=cause)
        if progress.as_of is not None:
            was_reported = self._tolerated.get(shard.key) == progress.as_of
            if was_reported or kept_since - progress.as_of <= _SLACK:
                return
            self._tolerated[shard.key] = progress.as_of
        self.report(
            shard.key,
            # AWS may report that it belongs to another stream.
            f"the position where reading continues, {progress.position}, is no longer available "
            f"({str(cause).rstrip('.')}).",
            cause=cause,
            after=progress,
            until=kept_since,
        )

    def check_named(self, stream_arn: str, named: Iterable[str], listed: Collection[Shard]) -> None:
        """Report the shards in the options that no stream lists."""
        for shard_id in sorted({*named} - {shard.shard_id for shard in listed}) if listed else ():
            self.report(
                ShardKey(stream_arn, shard_id),
                "the options give a position for this shard, but no stream lists it: it has left "
                "the retention, there is none yet, or its name is misspelt.",
                kind=DataLossError,
            )

    def report_unread(
        self, shard: ShardKey, progress: ShardProgress, *, cause: Exception | None = None
    ) -> None:
        """Report that a shard has left the retention before its end was read."""
        self.report(
            shard,
            f"the shard was not read to its end (only to {progress.position}) and is no longer "
            "listed: it has left the retention.",
            cause=cause,
            after=progress,
        )

    def audit(self, stream_arn: str, listed: Iterable[Shard], now: float) -> None:
        """Check every two minutes that the open shards of a complete listing cover all hash keys.

        ``now`` is in seconds of the monotonic clock.

        Raises:
            DataLossError: at three consecutive checks some hash keys belonged to no open shard, and
                loss is not tolerated. Tolerated, it is reported once while it lasts.
        """
        looked_at, looks = self._audits.get(stream_arn, (now - _AUDIT_SECONDS, 0))
        if now - looked_at < _AUDIT_SECONDS:
            return
        has_hash_keys = (source_of(stream_arn) or KINESIS).has_hash_keys
        holes = uncovered_hash_keys(listed) if has_hash_keys else []
        looks = looks + 1 if holes else 0
        self._audits[stream_arn] = now, looks
        if looks == _LOOKS_UNTIL_HOLE:
            keys = ", ".join(f"{one.first} to {one.last}" for one in holes)
            self.report(
                ShardKey(stream_arn, "*"),
                f"for {_AUDIT_SECONDS * (_LOOKS_UNTIL_HOLE - 1):g} seconds no open shard of the "
                f"listing has had the hash keys {keys}: the listing lacks a shard, whose records "
                "are not read. Compare it with `aws kinesis list-shards`.",
                kind=DataLossError,
            )

    def report(
        self,
        shard: ShardKey,
        message: str,
        *,
        kind: type[DataLossError] = PositionTrimmedError,
        cause: Exception | None = None,
        after: ShardProgress | None = None,
        until: datetime | None = None,
        first: SequenceNumber | None = None,
    ) -> None:
        """Raise ``kind``, or report that reading continues without the lost records.

        Args:
            message: the missing records, with positions.
            after: the progress of the shard.
            until: the missing records arrived before this instant.
            first: the record with which reading continues.
        """
        text = f"{shard}: {message}"
        if self.fails:
            raise kind(f"{text} {_REMEDY}") from cause
        after = after or ShardProgress(position=StartingPosition.trim_horizon())
        self.events(
            DataLossTolerated(
                shard=shard,
                message=text,
                position=after.position,
                since=after.as_of,
                until=until,
                next_record=first,
            )
        )


class MissingShard:
    """Decides what follows when the service does not find a shard or its stream."""

    def __init__(self, shard: Shard, guard: DataLossGuard) -> None:
        self._shard, self._guard = shard, guard
        clock, events = guard.clock, guard.events
        self._retries = RetryBudget(_ASK_AGAIN, clock, events=events, shard=shard.key)

    def reset(self) -> None:
        """Reset the retries: the shard was found."""
        self._retries.reset()

    async def has_left(self, error: ServiceError, progress: ShardProgress) -> bool:
        """Return whether a shard has left the retention, and report it; otherwise wait.

        Raises:
            DataLossError: the shard has left, and loss is not tolerated.
            StreamRecreatedError: the stream is not the one that was read.
            ServiceError: ``error``, because the stream is gone or nothing can answer.
            RetriesExhaustedError: the service has listed both for long without finding them.
        """
        shard, is_listed = self._shard, None
        await self._guard.check_identity(shard.stream_arn, cause=error)
        if isinstance(error, ShardNotFoundError):
            is_listed = False
        elif self._guard.has_shard is not None:
            try:
                is_listed = await self._guard.has_shard(shard)
            except StreamNotFoundError as gone:
                # Without its stream, a consumer is not to blame.
                raise error if isinstance(error, StreamNotFoundError) else gone from error
        if is_listed is False:
            self._guard.report_unread(shard.key, progress, cause=error)
            return True
        if is_listed is None or not isinstance(error, StreamNotFoundError):
            raise error
        doubted = InternalServiceError(
            f"{str(error).rstrip('.')}. But stream and shard are listed.",
            operation=error.operation,
            code=error.code,
        )
        await self._guard.clock.sleep(self._retries.delay_after(doubted))
        return False
