"""The service without its transport: a target and a body in, an answer and its fate out.

A front (HTTP/1.1 or HTTP/2) carries answers and breaks connections; it decides nothing.
"""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING

import orjson

from kinesis_publishers.testing.local_kinesis.account import Account
from kinesis_publishers.testing.local_kinesis.answers import Answer, StreamingAnswer
from kinesis_publishers.testing.local_kinesis.calls import CallLog
from kinesis_publishers.testing.local_kinesis.consumers import ConsumerArn
from kinesis_publishers.testing.local_kinesis.errors import (
    ApiError,
    resource_not_found,
    unknown_operation,
)
from kinesis_publishers.testing.local_kinesis.event_body import open_body
from kinesis_publishers.testing.local_kinesis.faults import Fault, Scope
from kinesis_publishers.testing.local_kinesis.operations import OPERATIONS
from kinesis_publishers.testing.local_kinesis.requests import Request
from kinesis_publishers.testing.local_kinesis.state import ServiceState
from kinesis_publishers.testing.local_kinesis.subscriptions import Subscription
from kinesis_publishers.testing.local_kinesis.tokens import ListToken, ShardIterator

if TYPE_CHECKING:
    from kinesis_publishers.clock import Clock
    from kinesis_publishers.testing.local_kinesis.limits import Behaviour, Limits

__all__ = ["KinesisService"]

_TARGET_PREFIX = "Kinesis_20131202."
_SHARD_MEMBERS = ("ShardId", "ShardToSplit", "ShardToMerge")


class KinesisService:
    """One account's Kinesis.

    ``lock`` guards everything: a server may answer in one thread while a test looks in from
    another. It is never held across an ``await``.
    """

    def __init__(self, limits: Limits, clock: Clock, behaviour: Behaviour) -> None:
        self.state = ServiceState(Account(clock, behaviour), limits)
        self.calls = CallLog()
        self.lock = RLock()

    @property
    def clock(self) -> Clock:
        """The time that the service lives in."""
        return self.state.account.clock

    async def handle(self, target: str, body: bytes) -> Answer | StreamingAnswer:
        """Answer one call; ``target`` is the X-Amz-Target header."""
        operation = target.removeprefix(_TARGET_PREFIX)
        at_seconds = self.state.monotonic()
        try:
            request = Request.parse(body)
        except ApiError as error:
            return Answer.refusing(error)
        with self.lock:
            scope = self._scope_of(operation, request)
            faults = self.state.faults.take_before(scope)
        for fault in faults:
            if fault.delay_seconds > 0:
                await self.clock.sleep(fault.delay_seconds)
        with self.lock:
            answer = self._answer(operation, request, faults[-1] if faults else None)
            self.calls.add(scope, at_seconds, _code_of(answer))
        if isinstance(answer, Subscription):
            return StreamingAnswer(await open_body(self.state, answer, self.lock))
        return answer

    def clear(self) -> None:
        """Forget streams, faults, calls and rates."""
        with self.lock:
            self.state.account.clear()
            self.state.subscriptions.clear(resource_not_found("The service was reset."))
            self.state.faults.clear()
            self.state.rates.clear()
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
