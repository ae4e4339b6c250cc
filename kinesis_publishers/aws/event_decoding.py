"""Decodes the frames of SubscribeToShard: events, and what the service ends a subscription with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from kinesis_publishers.aws.decoding import decode_page, parse_records, refuse_undecodable
from kinesis_publishers.aws.errors import service_error
from kinesis_publishers.errors import InternalServiceError, MalformedResponseError, ServiceError
from kinesis_publishers.model import SequenceNumber, SubscriptionEvent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_publishers.aws.event_stream import Frame

__all__ = ["OPERATION", "carries_records", "decode_event", "raise_if_refused"]

OPERATION = "SubscribeToShard"


def carries_records(headers: Mapping[str, str]) -> bool:
    """Say whether a frame with these headers is for :func:`decode_event`."""
    kind = headers.get(":message-type")
    return kind == "event" and headers.get(":event-type") == "SubscribeToShardEvent"


def decode_event(payload: bytes) -> SubscriptionEvent:
    """Decode the payload of a ``SubscribeToShardEvent``.

    Raises:
        MalformedResponseError: it is not what the service model describes; nothing of it is
            returned.
    """
    with refuse_undecodable(OPERATION, len(payload)):
        answer, payloads = parse_records(payload)
        return SubscriptionEvent(
            page=decode_page(answer, payloads, None),
            continuation_sequence_number=_continuation(answer.get("ContinuationSequenceNumber")),
        )


def _continuation(value: Any) -> SequenceNumber | None:
    if value is None:
        return None
    # Only a null one is the end of the shard: an empty one must not be taken for it.
    if not isinstance(value, str):
        raise TypeError("the continuation is not a string")
    return SequenceNumber(value)


def raise_if_refused(frame: Frame, *, where: str, request_id: str | None) -> None:
    """Raise what ``frame`` ends the subscription with, if that is what it does.

    Other events pass, among them ``initial-response`` and those that are not invented yet.

    Args:
        frame: a frame without records.
        where: the shard, for the message.
        request_id: AWS's id of the call.

    Raises:
        ServiceError: of the class that the code has where a call is refused with it.
        MalformedResponseError: the frame is of no known kind.
    """
    kind = frame.headers.get(":message-type")
    if kind == "event":
        return
    if kind == "exception":
        code, fallback = frame.headers.get(":exception-type", ""), ServiceError
        message = _message(frame.payload)
    elif kind == "error":
        # What the service model does not foresee is a failure of the service.
        code, fallback = frame.headers.get(":error-code", ""), InternalServiceError
        message = frame.headers.get(":error-message", "")
    else:
        raise MalformedResponseError(
            f"{OPERATION} of {where}: a frame of the unknown kind {kind!r}. Nothing of it was "
            "delivered.",
            operation=OPERATION,
            code="MalformedResponse",
            request_id=request_id,
        )
    raise service_error(
        code,
        message,
        operation=OPERATION,
        where=where,
        request_id=request_id,
        fallback=fallback,
    )


def _message(payload: bytes) -> str:
    try:
        details = orjson.loads(payload)
        return str(details.get("message") or details.get("Message") or "")
    except (ValueError, AttributeError):
        # The code says what happened; a text that cannot be read changes nothing.
        return ""
