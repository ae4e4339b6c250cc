"""The errors that the local service answers with, named and worded as AWS does."""

from __future__ import annotations

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


def resource_not_found(message: str) -> ApiError:
    return ApiError("ResourceNotFoundException", message)


def resource_in_use(message: str) -> ApiError:
    return ApiError("ResourceInUseException", message)


def invalid_argument(message: str) -> ApiError:
    return ApiError("InvalidArgumentException", message)


def limit_exceeded(message: str) -> ApiError:
    return ApiError("LimitExceededException", message)


def throughput_exceeded(message: str) -> ApiError:
    return ApiError("ProvisionedThroughputExceededException", message)


def expired_iterator(message: str) -> ApiError:
    return ApiError("ExpiredIteratorException", message)


def expired_next_token(message: str) -> ApiError:
    return ApiError("ExpiredNextTokenException", message)


def validation(message: str) -> ApiError:
    return ApiError("ValidationException", message)


def serialization(message: str) -> ApiError:
    return ApiError("SerializationException", message)


def unknown_operation(message: str) -> ApiError:
    return ApiError("UnknownOperationException", message)


def internal_failure(message: str = "Internal service failure.") -> ApiError:
    return ApiError("InternalFailure", message, status=500)
