"""Scripted faults: what goes wrong, for which calls, how often. The front carries them out."""

from __future__ import annotations

from typing import Literal, get_args

from attrs import Factory, asdict, define, field, frozen, validators

from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.testing.local_kinesis.answers import (
    ApiError,
    internal_failure,
    limit_exceeded,
    throughput_exceeded,
)

_RecordKind = Literal["repeated", "reversed"]
_PageKind = Literal["empty", "no_next_iterator", _RecordKind]
_EventKind = Literal[
    "reset_mid_event",
    "truncated_frame",
    "bad_crc",
    "silence",
    "exception",
    "trickle",
    "end",
    "continues_with_children",
]
FaultKind = Literal[
    "throttle",
    "internal_failure",
    "error",
    "body",
    "reset",
    "truncate",
    "delay",
    _PageKind,
    _EventKind,
]

_DATA_OPERATIONS = frozenset(
    {"GetRecords", "GetShardIterator", "PutRecord", "PutRecords", "SubscribeToShard"}
)
_WRITES = frozenset({"PutRecord", "PutRecords"})
_EVENT_KINDS = frozenset(get_args(_EventKind))
_RECORD_KINDS = frozenset(get_args(_RecordKind))
_PAGE_KINDS = frozenset(get_args(_PageKind))


@frozen
class Scope:
    """What a call is about; a fault matches by these."""

    operation: str
    stream: str | None = None
    shard_id: str | None = None


@frozen
class Fault:
    """Something that goes wrong.

    Attributes:
        operation: its name, or ``*`` for any.
        kind: ``throttle`` (ProvisionedThroughputExceededException; LimitExceededException from
            the control plane), ``internal_failure`` (HTTP 500), ``error`` (``code``, ``message``,
            ``status``), ``body`` (nothing was done, the answer is ``message``, unchanged),
            ``reset`` (of the connection, nothing was done), ``truncate`` (done, but the answer ends
            before its Content-Length) or ``delay`` (only that). For GetRecords: ``empty`` (no
            records although there are some), ``no_next_iterator`` (neither an iterator nor child
            shards although the shard continues), ``repeated`` (each record twice) or ``reversed``
            (the last record first); the latter two hit an event of SubscribeToShard, too. Within
            the body of an accepted SubscribeToShard: ``reset_mid_event`` (half a frame, then a
            reset), ``truncated_frame`` (half a frame, then the end of the body), ``bad_crc`` (a
            frame whose checksum is wrong), ``trickle`` (a frame in 20 pieces, ``delay_seconds``
            between them), and instead of an event ``end`` (of the body), ``exception`` (a frame
            with ``code`` and ``message``, then the end) or ``silence`` (nothing more, not even
            events without records, until the subscription ends). ``continues_with_children`` hits
            the last event of a closed shard: it has ChildShards and a continuation as well.
        stream: only calls for this stream.
        shard_id: only calls for this shard. For PutRecords: only the entries that go to it fail.
        times: how many calls it hits, None for all; 1 unless ``lasting_seconds`` is given.
        every: it hits each n-th of the calls that match.
        lasting_seconds: for how long it hits calls, by the server's clock and from when it was
            planned: a ``reset`` of ``*`` makes an outage.
        delay_seconds: the answer is held back so long; not with what hits a page, nor for one
            shard of a write.
        status: of ``error`` (400 unless given) and ``body`` (200).
        after_events: how many events a subscription delivers before the fault hits it; 0 unless
            given. With ``reset``: the call is accepted and the connection breaks after this many.
    """

    operation: str
    kind: FaultKind = field(validator=validators.in_(get_args(FaultKind)))
    stream: str | None = field(default=None, kw_only=True)
    shard_id: str | None = field(default=None, kw_only=True)
    lasting_seconds: float | None = field(default=None, kw_only=True)
    times: int | None = field(
        default=Factory(lambda self: 1 if self.lasting_seconds is None else None, takes_self=True),
        kw_only=True,
    )
    every: int = field(default=1, kw_only=True, validator=validators.ge(1))
    delay_seconds: float = field(default=0.0, kw_only=True)
    code: str = field(default="", kw_only=True)
    message: str = field(default="", kw_only=True)
    status: int = field(
        default=Factory(lambda self: 200 if self.kind == "body" else 400, takes_self=True),
        kw_only=True,
    )
    after_events: int | None = field(
        default=None, kw_only=True, validator=validators.optional(validators.ge(0))
    )

    def __attrs_post_init__(self) -> None:
        if self.kind in ("error", "exception") and not self.code:
            raise ValueError(f"a fault of kind {self.kind!r} needs the code of an AWS error")
        if self.is_in_events:
            self._check_event_fault()
        elif self.is_inside(self.operation) and (
            self.delay_seconds or self.kind in ("delay", "reset", "truncate")
        ):
            raise ValueError(
                f"a fault of kind {self.kind!r}, or of one shard of a write, cannot delay or break "
                "an answer: it is part of one that succeeds"
            )
        if self.kind == "truncate" and self.operation == "SubscribeToShard":
            raise ValueError(
                "the answer to SubscribeToShard has no Content-Length to end before: use kind "
                "'truncated_frame'"
            )

    @property
    def is_in_events(self) -> bool:
        """Whether it hits the events of a subscription rather than the call that opens it."""
        return (
            self.kind in _EVENT_KINDS
            or self.after_events is not None
            or (self.kind in _RECORD_KINDS and self.operation == "SubscribeToShard")
        )

    def matches(self, scope: Scope) -> bool:
        return (
            self.operation in ("*", scope.operation)
            and self.stream in (None, scope.stream)
            and self.shard_id in (None, scope.shard_id)
            and not (self.kind == "truncate" and scope.operation == "SubscribeToShard")
            and (
                self.kind not in _PAGE_KINDS or self.is_in_events or scope.operation == "GetRecords"
            )
        )

    def is_inside(self, operation: str) -> bool:
        """Tell whether the operation itself applies the fault, rather than being replaced by it."""
        return (
            self.kind in _PAGE_KINDS
            or self.is_in_events
            or (operation in _WRITES and self.shard_id is not None)
        )

    def to_error(self, operation: str) -> ApiError | None:
        """Return the error that the call answers, or None if the kind is no error."""
        if self.kind == "internal_failure":
            return internal_failure()
        if self.kind == "error":
            return ApiError(self.code, self.message or "Scripted fault.", self.status)
        if self.kind != "throttle":
            return None
        if operation in _DATA_OPERATIONS:
            return throughput_exceeded(self.message or "Rate exceeded for shard.")
        return limit_exceeded(self.message or "Rate exceeded.")

    def arrange(self, fragments: list[bytes]) -> list[bytes]:
        """Return the records of a page or an event as the fault leaves them."""
        if self.kind == "repeated":
            return [fragment for fragment in fragments for _ in range(2)]
        return fragments[::-1] if self.kind == "reversed" else fragments

    def _check_event_fault(self) -> None:
        if self.kind != "reset" and self.kind not in _EVENT_KINDS | _RECORD_KINDS:
            raise ValueError(f"after_events does not go with kind {self.kind!r}")
        if self.operation != "SubscribeToShard":
            raise ValueError(
                f"a fault of kind {self.kind!r} after events is one of SubscribeToShard, not of "
                f"{self.operation!r}"
            )
        if self.delay_seconds and self.kind != "trickle":
            raise ValueError(
                f"a fault of kind {self.kind!r} cannot delay events; a second one of kind 'delay' "
                "delays the call"
            )


@define
class _ActiveFault:
    fault: Fault
    added_at: float
    matched_count: int = 0
    hit_count: int = 0

    def is_spent(self, now: float) -> bool:
        times, seconds = self.fault.times, self.fault.lasting_seconds
        return (times is not None and self.hit_count >= times) or (
            seconds is not None and now >= self.added_at + seconds
        )

    def hits(self) -> bool:
        self.matched_count += 1
        if self.matched_count % self.fault.every:
            return False
        self.hit_count += 1
        return True


@define
class FaultPlan:
    """The faults that are still to happen, in the order in which they were added."""

    _clock: Clock = field(factory=SystemClock)
    _active: list[_ActiveFault] = field(factory=list)

    def add(self, fault: Fault) -> None:
        self._active.append(_ActiveFault(fault, self._clock.monotonic()))

    def clear(self) -> None:
        self._active.clear()

    def take_before(self, scope: Scope) -> list[Fault]:
        """Return what hits a call before it is carried out: delays, then at most one other."""
        taken: list[Fault] = []
        for active in self._matching(scope, inside=False):
            if active.hits():
                taken.append(active.fault)
                if active.fault.kind != "delay":
                    break
        return taken

    def take_inside(self, scope: Scope) -> Fault | None:
        """Return what hits a part of a call while it is carried out."""
        return next((a.fault for a in self._matching(scope, inside=True) if a.hits()), None)

    def describe(self) -> list[dict[str, object]]:
        """Return every fault with the number of calls it has matched and hit."""
        return [
            asdict(active.fault)
            | {"matched_count": active.matched_count, "hit_count": active.hit_count}
            for active in self._active
        ]

    def _matching(self, scope: Scope, *, inside: bool) -> list[_ActiveFault]:
        now = self._clock.monotonic()
        return [
            active
            for active in self._active
            if not active.is_spent(now)
            and active.fault.is_inside(scope.operation) is inside
            and active.fault.matches(scope)
        ]
