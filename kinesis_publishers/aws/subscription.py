"""An accepted subscription: decodes events from the bytes of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from attrs import define, field

from kinesis_publishers.abc import ShardSubscription
from kinesis_publishers.aws.calls import Answer, ServiceCalls
from kinesis_publishers.aws.carriers.carrier import SubscriptionResponse
from kinesis_publishers.aws.decoding import decode_natively, decode_page, parse_records
from kinesis_publishers.aws.errors import complete_answer, service_error
from kinesis_publishers.aws.event_stream import EventStreamDecoder, Frame
from kinesis_publishers.clock import Clock
from kinesis_publishers.errors import (
    ConnectionFailedError,
    InternalServiceError,
    MalformedResponseError,
    ServiceError,
)
from kinesis_publishers.model import SequenceNumber, SubscriptionEvent

OPERATION = "SubscribeToShard"
_MAX_REFUSAL_BYTES = 1024 * 1024


def carries_records(headers: Mapping[str, str]) -> bool:
    """Return whether :func:`decode_event` decodes a frame with these headers."""
    kind = headers.get(":message-type")
    return kind == "event" and headers.get(":event-type") == "SubscribeToShardEvent"


def decode_event(payload: bytes, *, is_packed: bool = False) -> SubscriptionEvent:
    """Decode the payload of a ``SubscribeToShardEvent``; raises as ``decode_get_records``."""
    with complete_answer(OPERATION, f"{len(payload)} bytes"):
        found = decode_natively(payload, is_cbor=False, is_packed=is_packed)
        if found is not None and found[0].next_shard_iterator is None:
            page, continuation = found
        else:
            answer, payloads = parse_records(payload)
            page = decode_page(answer, payloads, None)
            continuation = answer.get("ContinuationSequenceNumber")
        return SubscriptionEvent(
            page=page, continuation_sequence_number=_continuation(continuation)
        )


def _continuation(value: Any) -> SequenceNumber | None:
    if not isinstance(value, str | None):
        raise TypeError("the continuation is not a string")
    # Only null marks the end of the shard, not an empty string.
    return None if value is None else SequenceNumber(value)


def error_in_frame(frame: Frame, where: str, request_id: str | None) -> ServiceError | None:
    """Return the error in ``frame``, as of a refused call with its code; ``None`` for an event."""
    kind = frame.headers.get(":message-type")
    if kind == "event":
        return None
    if kind == "exception":
        code, fallback = frame.headers.get(":exception-type", ""), ServiceError
        message = _message(frame.payload)
    elif kind == "error":
        # An exception outside the service model is a failure of the service.
        code, fallback = frame.headers.get(":error-code", ""), InternalServiceError
        message = frame.headers.get(":error-message", "")
    else:
        return MalformedResponseError(
            f"{OPERATION} of {where}: a frame of the unknown kind {kind!r}. Nothing of it was "
            "delivered.",
            operation=OPERATION,
            code="MalformedResponse",
            request_id=request_id,
        )
    return service_error(
        code, message, operation=OPERATION, where=where, request_id=request_id, fallback=fallback
    )


def _message(payload: bytes) -> str:
    try:
        details = orjson.loads(payload)
        return str(details.get("message") or details.get("Message") or "")
    except (ValueError, AttributeError):
        # The code decides; an unreadable text changes nothing.
        return ""


async def refusal_in(response: SubscriptionResponse, calls: ServiceCalls, where: str) -> Exception:
    body = b""
    while (chunk := await response.read()) and len(body) < _MAX_REFUSAL_BYTES:
        body += chunk
    if response.status >= 300:
        return calls.refusal(OPERATION, Answer(response.status, response.headers, body))
    return MalformedResponseError(
        f"{OPERATION} of {where}: the answer has the status {response.status}, which Kinesis does "
        "not give. Check the endpoint and the proxy.",
        operation=OPERATION,
        code="MalformedResponse",
        request_id=response.headers.get("x-amzn-requestid"),
    )


# The service sends an event every few seconds, even without records. Flink gives up after 35 s, too
# (FanOutShardSubscription).
_SILENCE_SECONDS = 35.0
# An event may have 14 MiB, which takes longer on a slow line. The time does not count while at
# least this much arrives.
_SLOWEST_BYTES_PER_SECOND = 32 * 1024


@define(eq=False)
class EventStreamSubscription(ShardSubscription):
    """Reads from the network only while a caller waits for an event."""

    # As SubscriptionResponse.read.
    _read_chunk: Callable[[], Awaitable[bytes]]
    _where: str = field(kw_only=True)
    _clock: Clock = field(kw_only=True)
    _is_packed: bool = field(default=False, kw_only=True)
    _request_id: str | None = field(default=None, kw_only=True)
    _decoder: EventStreamDecoder = field(init=False)
    # For the network, since the last whole event.
    _waited_seconds: float = field(default=0.0, init=False)
    _is_over: bool = field(default=False, init=False)
    _ended_by: ServiceError | None = field(default=None, init=False)

    @_decoder.default
    def _new_decoder(self) -> EventStreamDecoder:
        return EventStreamDecoder(f"{OPERATION} of {self._where}")

    async def wait_for_event(self) -> int | None:
        while True:
            head = self._decoder.peek()
            if head is not None and carries_records(head.headers):
                # The payloads are base64 inside of it.
                return head.payload_bytes * 3 // 4
            if (frame := self._take()) is None:
                if not await self._read():
                    return None
            elif (error := error_in_frame(frame, self._where, self._request_id)) is not None:
                self._ended_by = error
                raise error

    async def receive(self) -> SubscriptionEvent:
        if await self.wait_for_event() is None:
            raise RuntimeError("receive() was called although no event was announced")
        while (frame := self._take()) is None:
            await self._read()
        return decode_event(frame.payload, is_packed=self._is_packed)

    def _take(self) -> Frame | None:
        frame = self._decoder.take()
        if frame is not None:
            self._waited_seconds = 0.0
        return frame

    async def _read(self) -> bool:
        """Read and feed the next bytes; return False at the end of the body."""
        chunk = b"" if self._is_over else await self._read_in_time()
        if chunk:
            self._decoder.feed(chunk)
            in_time = len(chunk) / _SLOWEST_BYTES_PER_SECOND
            self._waited_seconds = max(0.0, self._waited_seconds - in_time)
            return True
        self._is_over = True
        if self._decoder.is_inside_frame:
            raise self._failure("the connection ended inside an event", "SubscriptionCutOff")
        return False

    async def _read_in_time(self) -> bytes:
        if self._ended_by is not None:
            raise self._ended_by
        began_at = self._clock.monotonic()
        try:
            async with self._clock.timeout(_SILENCE_SECONDS - self._waited_seconds):
                return await self._read_chunk()
        except ConnectionFailedError as error:
            self._ended_by = error
            raise
        except TimeoutError as error:
            self._ended_by = self._failure(
                f"no whole event came within {_SILENCE_SECONDS:.0f} s, not even a heartbeat",
                "SubscriptionSilent",
            )
            raise self._ended_by from error
        except asyncio.CancelledError:
            # HTTP clients do not show whether they had already read something.
            self._ended_by = self._failure("a wait was cancelled", "SubscriptionCancelled")
            raise
        finally:
            self._waited_seconds += self._clock.monotonic() - began_at

    def _failure(self, problem: str, code: str) -> ConnectionFailedError:
        return ConnectionFailedError(
            f"{OPERATION} of {self._where}: {problem}. Subscribe again from the continuation.",
            operation=OPERATION,
            code=code,
            request_id=self._request_id,
        )
