"""The service without its transport: a target and a body in, an answer and its fate out.

A front (HTTP/1.1 or HTTP/2) carries answers and breaks connections; it decides nothing. The log of
calls tells a test how often a client asked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import orjson
from attrs import define, field, frozen

from kinesis_publishers.clock import Clock
from kinesis_publishers.testing.local_kinesis.answers import (
    Answer,
    ApiError,
    StreamingAnswer,
    unknown_operation,
)
from kinesis_publishers.testing.local_kinesis.event_feed import open_body
from kinesis_publishers.testing.local_kinesis.faults import Fault, Scope
from kinesis_publishers.testing.local_kinesis.limits import Behaviour, Limits
from kinesis_publishers.testing.local_kinesis.operations import OPERATIONS
from kinesis_publishers.testing.local_kinesis.requests import ListToken, Request, ShardIterator
from kinesis_publishers.testing.local_kinesis.state import ServiceState
from kinesis_publishers.testing.local_kinesis.stream import ConsumerArn
from kinesis_publishers.testing.local_kinesis.subscriptions import Subscription

_TARGET_PREFIX = "Kinesis_20131202."
_SHARD_MEMBERS = ("ShardId", "ShardToSplit", "ShardToMerge")


class KinesisService:
    """One account's Kinesis.

    ``lock`` guards everything: a server may answer in one thread while a test looks in from
    another. It is never held across an ``await``.
    """

    def __init__(self, limits: Limits, clock: Clock, behaviour: Behaviour) -> None:
        self.state = ServiceState(clock, behaviour, limits)
        self.calls = CallLog()
        self.lock = RLock()

    @contextmanager
    def locked(self) -> Iterator[ServiceState]:
        """Hold the lock, and yield what it guards."""
        with self.lock:
            yield self.state

    async def handle(self, target: str, body: bytes) -> Answer | StreamingAnswer:
        """Answer one call; ``target`` is the X-Amz-Target header."""
        operation = target.removeprefix(_TARGET_PREFIX)
        at_seconds = self.state.clock.monotonic()
        try:
            request = Request.parse(body)
        except ApiError as error:
            return Answer.refusing(error)
        with self.lock:
            scope = self._scope_of(operation, request)
            faults = self.state.faults.take_before(scope)
        for fault in faults:
            if fault.delay_seconds > 0:
                await self.state.clock.sleep(fault.delay_seconds)
        with self.lock:
            answer = self._answer(operation, request, faults[-1] if faults else None)
            self.calls.add(scope, at_seconds, _code_of(answer))
        if isinstance(answer, Subscription):
            return StreamingAnswer(await open_body(self.state, answer, self.lock))
        return answer

    def clear(self) -> None:
        """Forget streams, faults, calls and rates."""
        with self.lock:
            self.state.clear()
            self.calls.clear()

    def _answer(
        self, operation: str, request: Request, fault: Fault | None
    ) -> Answer | Subscription:
        if fault is not None and fault.kind == "reset":
            return Answer(200, b"", delivery="reset")
        try:
            if fault is not None and fault.kind == "body":
                return Answer(fault.status, fault.message.encode())
            error = fault.to_error(operation) if fault is not None else None
            if error is not None:
                raise error
            body = self._run(operation, request)
        except ApiError as refused:
            return Answer.refusing(refused)
        if isinstance(body, Subscription):
            return body
        is_truncated = fault is not None and fault.kind == "truncate"
        return Answer(200, body, delivery="truncate" if is_truncated else "whole")

    def _run(self, operation: str, request: Request) -> bytes | Subscription:
        run = OPERATIONS.get(operation)
        if run is None:
            raise unknown_operation(f"The local service has no operation {operation}.")
        members = run(self.state, request)
        if isinstance(members, bytes | Subscription):
            return members
        return b"" if members is None else orjson.dumps(members)

    def _scope_of(self, operation: str, request: Request) -> Scope:
        """Return what a call is about; a malformed one is about nothing, it is refused later."""
        try:
            if operation == "GetRecords":
                iterator = ShardIterator.decode(request.required_text("ShardIterator"))
                return Scope(operation, iterator.stream_name, iterator.shard_id)
            if request.has("ConsumerARN"):
                arn = ConsumerArn.parse(request.required_text("ConsumerARN"))
                return Scope(operation, arn.stream_name, request.text("ShardId"))
            if request.has("ResourceARN"):
                _, _, name = request.required_text("ResourceARN").rpartition(":stream/")
                return Scope(operation, name.partition("/")[0])
            if request.has("StreamName") or request.has("StreamARN"):
                shard_ids = (request.text(member) for member in _SHARD_MEMBERS)
                shard_id = next((found for found in shard_ids if found), None)
                return Scope(operation, self.state.name_in(request), shard_id)
            if operation == "ListShards" and request.has("NextToken"):
                token = ListToken.decode(request.required_text("NextToken"))
                return Scope(operation, token.stream_name)
        except ApiError:
            pass
        return Scope(operation)


def _code_of(answer: Answer | Subscription) -> str:
    if isinstance(answer, Subscription):
        return ""
    return answer.error_code if answer.delivery == "whole" else answer.delivery


# A benchmark makes hundreds of thousands of calls: the newest are kept, all are counted.
_KEPT_CALLS = 100_000


@frozen
class Call:
    """One call as it arrived.

    Attributes:
        at_seconds: arrival on the server's monotonic clock.
        code: the AWS error code of the answer; empty for success, ``reset`` or ``truncate`` if the
            connection was broken.
    """

    operation: str
    stream: str | None
    shard_id: str | None
    at_seconds: float
    code: str


@define
class CallLog:
    """The newest calls and the number of all."""

    _calls: deque[Call] = field(factory=lambda: deque(maxlen=_KEPT_CALLS))
    _counts: Counter[str] = field(factory=Counter)

    def add(self, scope: Scope, at_seconds: float, code: str) -> None:
        self._calls.append(Call(scope.operation, scope.stream, scope.shard_id, at_seconds, code))
        self._counts[scope.operation] += 1

    def clear(self) -> None:
        self._calls.clear()
        self._counts.clear()

    def find(
        self, operation: str | None = None, stream: str | None = None, shard_id: str | None = None
    ) -> list[Call]:
        """Return the calls that match, oldest first."""
        return [
            call
            for call in self._calls
            if operation in (None, call.operation)
            and stream in (None, call.stream)
            and shard_id in (None, call.shard_id)
        ]

    def describe(self) -> dict[str, object]:
        """Return counts per operation, and times per operation and ``stream/shard``."""
        times: dict[str, dict[str, list[float]]] = {}
        for call in self._calls:
            place = "/".join(part for part in (call.stream, call.shard_id) if part)
            times.setdefault(call.operation, {}).setdefault(place, []).append(call.at_seconds)
        return {"counts": dict(self._counts), "times": times}


def busiest_second(calls: list[Call]) -> int:
    """Return the largest number of calls within any one second."""
    times = sorted(call.at_seconds for call in calls)
    # Half-open: a call exactly one second after another belongs to the next second.
    return max(
        (position + 1 - bisect_right(times, at - 1.0) for position, at in enumerate(times)),
        default=0,
    )
