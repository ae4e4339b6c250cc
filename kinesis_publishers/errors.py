"""The exceptions of the framework: one root, one tree.

Every message names what failed, where, and what to do next. Whether a call may be tried again is
the attribute ``retryable`` of :class:`ServiceError`, not a second tree. The end of a shard is a
result (:class:`~kinesis_publishers.model.results.RunResult`), never an exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "KinesisPublishersError",
    "ConfigError",
    "MissingOptionError",
    "InvalidOptionError",
    "UnknownOptionError",
    "ConfigErrors",
    "PluginLoadError",
    "ServiceError",
    "ThroughputExceededError",
    "LimitExceededError",
    "StreamNotFoundError",
    "ShardNotFoundError",
    "ConsumerNotFoundError",
    "ResourceInUseError",
    "AccessDeniedError",
    "CredentialsError",
    "EncryptionKeyError",
    "IteratorExpiredError",
    "InvalidArgumentError",
    "InternalServiceError",
    "ConnectionFailedError",
    "MalformedResponseError",
    "RetriesExhaustedError",
    "DataLossError",
    "PositionTrimmedError",
    "StreamRecreatedError",
    "ReplayMismatchError",
    "CheckpointError",
    "StaleCheckpointError",
    "AggregationError",
    "ConsumerGuardError",
    "PublisherCancelledError",
    "RecordsNotWrittenError",
    "ClosedError",
]


class KinesisPublishersError(Exception):
    """The root of every exception that this package raises on purpose."""


class ConfigError(KinesisPublishersError, ValueError):
    """A configuration that cannot work; raised before any call to AWS where possible."""


class MissingOptionError(ConfigError):
    """A required option is absent."""


class InvalidOptionError(ConfigError):
    """An option has a value that it cannot have, or two options contradict each other."""


class UnknownOptionError(ConfigError):
    """A key that no option has."""


class ConfigErrors(ConfigError):
    """Everything that is wrong with a configuration, in one message.

    Attributes:
        problems: the single errors, in the order in which they were found.
    """

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        heading = f"{count} configuration problem{'' if count == 1 else 's'}:"
        super().__init__("\n".join([heading, *(f"  - {problem}" for problem in self.problems)]))

    def __reduce__(self) -> tuple[type[ConfigErrors], tuple[tuple[ConfigError, ...]]]:
        return (type(self), (self.problems,))


class PluginLoadError(KinesisPublishersError):
    """A class named in the configuration cannot be loaded or does not fit."""


class ServiceError(KinesisPublishersError):
    """AWS refused or failed a call.

    Attributes:
        operation: the API operation, as ``GetRecords``.
        code: the AWS error code, or the name of the client's own exception.
        request_id: AWS's id of the request, where there was an answer.
        retryable: whether the same call may succeed later.
    """

    retryable = False

    def __init__(
        self,
        message: str,
        *,
        operation: str = "",
        code: str = "",
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.code = code
        self.request_id = request_id

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are pickled from Spark's workers: keyword-only fields travel as state.
        return (type(self), self.args, self.__dict__)


class ThroughputExceededError(ServiceError):
    """The shard's read quota (5 calls/s, 2 MB/s) or a call rate is used up for now."""

    retryable = True


class LimitExceededError(ServiceError):
    """An account-wide rate or a limit on resources was hit."""

    retryable = True


class StreamNotFoundError(ServiceError):
    """The stream does not exist in this account and region."""


class ShardNotFoundError(ServiceError):
    """The shard does not exist (any more) in the stream."""


class ConsumerNotFoundError(ServiceError):
    """The enhanced fan-out consumer does not exist (any more)."""


class ResourceInUseError(ServiceError):
    """The resource is being changed, or somebody else holds it."""

    retryable = True


class AccessDeniedError(ServiceError):
    """The credentials do not allow the call."""


class CredentialsError(ServiceError):
    """There are no usable credentials, or AWS did not accept them."""


class EncryptionKeyError(ServiceError):
    """The stream's KMS key cannot be used."""


class IteratorExpiredError(ServiceError):
    """A shard iterator is older than five minutes."""


class InvalidArgumentError(ServiceError):
    """AWS did not accept an argument of the call."""


class InternalServiceError(ServiceError):
    """AWS failed on its side (5xx)."""

    retryable = True


class ConnectionFailedError(ServiceError):
    """The connection could not be made, broke, or timed out."""

    retryable = True


class MalformedResponseError(ServiceError):
    """An answer could not be understood; nothing of it was delivered."""

    retryable = True


class RetriesExhaustedError(KinesisPublishersError):
    """A retryable call failed as often as its retry policy allows; the last error is the cause.

    Attributes:
        attempts: how many calls were made.
        elapsed_seconds: for how long it was tried.
    """

    def __init__(self, message: str, *, attempts: int = 0, elapsed_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.attempts = attempts
        self.elapsed_seconds = elapsed_seconds

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), self.args, self.__dict__)


class DataLossError(KinesisPublishersError):
    """Records that should have been read are gone."""


class PositionTrimmedError(DataLossError):
    """The retention period removed records that were not read yet, or may have."""


class StreamRecreatedError(DataLossError):
    """The stream was deleted and created again: the stored positions belong to another one."""


class ReplayMismatchError(DataLossError):
    """A range that was read before does not read the same any more."""


class CheckpointError(KinesisPublishersError):
    """A checkpoint or an offset cannot be read, written or used here."""


class StaleCheckpointError(CheckpointError):
    """Somebody else has written a checkpoint since it was loaded: two readers do the same work."""


class AggregationError(KinesisPublishersError):
    """An aggregate record contradicts its own tables."""


class ConsumerGuardError(KinesisPublishersError):
    """The process that removes stream consumers could not be started, or could not do its work."""


class PublisherCancelledError(KinesisPublishersError):
    """A publisher reported CANCELLED although nobody asked it to stop."""


class RecordsNotWrittenError(KinesisPublishersError):
    """Records that were to be written were not, or it is not known whether they were."""


class ClosedError(KinesisPublishersError):
    """The object was closed and cannot be used any more."""
