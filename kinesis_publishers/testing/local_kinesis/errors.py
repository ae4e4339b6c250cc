"""The errors that the local service answers with, named and worded as AWS does."""

from __future__ import annotations

from functools import partial

__all__ = [
    "ApiError",
    "expired_iterator",
    "expired_next_token",
    "internal_failure",
    "invalid_argument",
    "limit_exceeded",
    "resource_in_use",
    "resource_not_found",
    "serialization",
    "throughput_exceeded",
    "unknown_operation",
    "validation",
]


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
