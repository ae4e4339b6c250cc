"""The answers to a client: a whole one, a body that is made while it is sent, an error."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from email.utils import formatdate
from functools import partial
from typing import Literal

import orjson
from attrs import field, frozen


class ConnectionBroken(Exception):
    """Raised by the body of a :class:`StreamingAnswer`: the front breaks the connection here."""


@frozen
class _Headed:
    """What every answer has; its Date header shows ``now_ms``, the time of the service."""

    now_ms: int = field(default=0, kw_only=True)
    content_type: str = field(default="application/x-amz-json-1.1", kw_only=True)

    @property
    def headers(self) -> dict[str, str]:
        return {
            "Content-Type": self.content_type,
            "Date": formatdate(self.now_ms / 1000, usegmt=True),
            "x-amzn-RequestId": str(uuid.uuid4()),
        }


@frozen
class Answer(_Headed):
    """What goes back to the client.

    Attributes:
        delivery: "truncate" sends the body's Content-Length but only half of the body, "reset"
            breaks the connection without a word.
    """

    status: int
    body: bytes
    error_code: str = ""
    delivery: Literal["whole", "truncate", "reset"] = "whole"

    def cut_short(self) -> tuple[int, bytes]:
        """Return the length that a truncated answer promises, and what it sends of its body."""
        # An empty body cannot be cut short: promise a little more than there is.
        promised = max(len(self.body), 2)
        return promised, self.body[: promised // 2]

    @classmethod
    def refusing(cls, error: ApiError) -> Answer:
        """Return the answer that says ``error``."""
        body = orjson.dumps({"__type": error.code, "message": error.message})
        return cls(error.status, body, error_code=error.code)


@frozen
class StreamingAnswer(_Headed):
    """The accepted answer to SubscribeToShard: status 200 and a body without a known end.

    Attributes:
        body: the pieces of the body. A front sends each as soon as it has it, ends the body cleanly
            after the last one, breaks the connection without a word when it raises
            :class:`ConnectionBroken` (a TCP reset, or RST_STREAM on HTTP/2), and closes the
            generator when the client is gone.
    """

    body: AsyncGenerator[bytes, None]
    status: int = field(default=200, init=False)
    content_type: str = field(default="application/vnd.amazon.eventstream", init=False)


class ApiError(Exception):
    """An error answer: AWS's error code, its message and the HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


resource_not_found = partial(ApiError, "ResourceNotFoundException")
resource_in_use = partial(ApiError, "ResourceInUseException")
invalid_argument = partial(ApiError, "InvalidArgumentException")
limit_exceeded = partial(ApiError, "LimitExceededException")
throughput_exceeded = partial(ApiError, "ProvisionedThroughputExceededException")
expired_iterator = partial(ApiError, "ExpiredIteratorException")
expired_next_token = partial(ApiError, "ExpiredNextTokenException")
validation = partial(ApiError, "ValidationException")
serialization = partial(ApiError, "SerializationException")
unknown_operation = partial(ApiError, "UnknownOperationException")
internal_failure = partial(ApiError, "InternalFailure", "Internal service failure.", status=500)
