"""Scripted faults: what goes wrong, for which calls, how often. Carrying it out is the front's."""

from __future__ import annotations

from typing import Literal, get_args

from attrs import asdict, define, field, frozen, validators

from kinesis_publishers.testing.local_kinesis.errors import (
    ApiError,
    internal_failure,
    limit_exceeded,
    throughput_exceeded,
)

__all__ = ["Fault", "FaultKind", "FaultPlan", "Scope"]

FaultKind = Literal[
    "throttle",
    "internal_failure",
    "error",
    "reset",
    "truncate",
    "delay",
    "empty",
    "reset_mid_event",
    "truncated_frame",
    "bad_crc",
    "silence",
    "exception",
    "trickle",
    "end",
]

_DATA_OPERATIONS = frozenset(
    {"GetRecords", "GetShardIterator", "PutRecord", "PutRecords", "SubscribeToShard"}
)
_WRITES = frozenset({"PutRecord", "PutRecords"})
_EVENT_KINDS = frozenset(
    {"reset_mid_event", "truncated_frame", "bad_crc", "silence", "exception", "trickle", "end"}
)


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
        operation: the name of the operation, or ``*`` for any.
        kind: ``throttle`` (ProvisionedThroughputExceededException; LimitExceededException from
            the control plane), ``internal_failure`` (HTTP 500), ``error`` (``code``, ``message``,
            ``status``), ``reset`` (of the connection, nothing was done), ``truncate`` (done, but
            the answer ends before its Content-Length), ``delay`` (only that) or ``empty``
            (GetRecords answers no records although there are some). Within the body of an accepted
            SubscribeToShard: ``reset_mid_event`` (half a frame, then a reset), ``truncated_frame``
            (half a frame, then the end of the body), ``bad_crc`` (a frame whose checksum is
            wrong), ``trickle`` (a frame in 20 pieces, ``delay_seconds`` between them), and instead
            of an event ``end`` (of the body), ``exception`` (a frame with ``code`` and
            ``message``, then the end) or ``silence`` (nothing more, not even events without
            records, until the subscription ends).
        stream: only calls for this stream.
        shard_id: only calls for this shard. For PutRecords: only the entries that go to it fail.
        times: how many calls it hits; None for all.
        every: it hits each n-th of the calls that match.
        delay_seconds: the answer is held back so long; not with ``empty``, nor for one shard of a
            write.
        after_events: how many events a subscription delivers before the fault hits it; 0 unless
            given. With ``reset``: the call is accepted and the connection breaks after so many.
    """

    operation: str
    kind: FaultKind = field(validator=validators.in_(get_args(FaultKind)))
    stream: str | None = field(default=None, kw_only=True)
    shard_id: str | None = field(default=None, kw_only=True)
    times: int | None = field(default=1, kw_only=True)
    every: int = field(default=1, kw_only=True, validator=validators.ge(1))
    delay_seconds: float = field(default=0.0, kw_only=True)
    code: str = field(default="", kw_only=True)
    message: str = field(default="", kw_only=True)
    status: int = field(default=400, kw_only=True)
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
                "a fault of kind 'empty', or of one shard of a write, cannot delay or break an "
                "answer: it is part of one that succeeds"
            )
        if self.kind == "truncate" and self.operation == "SubscribeToShard":
            raise ValueError(
                "the answer to SubscribeToShard has no Content-Length to end before: use kind "
                "'truncated_frame'"
            )

    @property
    def is_in_events(self) -> bool:
        """Whether it hits the events of a subscription rather than the call that opens it."""
        return self.kind in _EVENT_KINDS or self.after_events is not None

    @property
    def events_before(self) -> int:
        """How many events a subscription delivers before the fault hits it."""
        return self.after_events or 0

    def matches(self, scope: Scope) -> bool:
        return (
            self.operation in ("*", scope.operation)
            and self.stream in (None, scope.stream)
            and self.shard_id in (None, scope.shard_id)
            and not (self.kind == "truncate" and scope.operation == "SubscribeToShard")
        )

    def is_inside(self, operation: str) -> bool:
        """Tell whether the operation itself applies the fault, rather than being replaced by it."""
        return (
            self.kind == "empty"
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

    def _check_event_fault(self) -> None:
        if self.kind != "reset" and self.kind not in _EVENT_KINDS:
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
    matched_count: int = 0
    hit_count: int = 0

    @property
    def is_spent(self) -> bool:
        return self.fault.times is not None and self.hit_count >= self.fault.times

    def hits(self) -> bool:
        self.matched_count += 1
        if self.matched_count % self.fault.every:
            return False
        self.hit_count += 1
        return True


@define
class FaultPlan:
    """The faults that are still to happen, in the order in which they were added."""

    _active: list[_ActiveFault] = field(factory=list)

    def add(self, fault: Fault) -> None:
        self._active.append(_ActiveFault(fault))

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
        return [
            active
            for active in self._active
            if not active.is_spent
            and active.fault.is_inside(scope.operation) is inside
            and active.fault.matches(scope)
        ]
