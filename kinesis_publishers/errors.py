"""The exceptions of the framework: one root, one tree.

Every message names what failed, where, and what to do next. Whether a call may be tried again is
the attribute ``retryable`` of :class:`ServiceError`, not a second tree. The end of a shard is a
result (:class:`~kinesis_publishers.model.records.RunResult`), never an exception.
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
    "ReaderReplacedError",
    "StaleCheckpointError",
    "AggregationError",
    "ConsumerGuardError",
    "ProcessingCancelledError",
    "PublisherCancelledError",
    "RecordsNotWrittenError",
    "ClosedError",
]


class KinesisPublishersError(Exception):
    """The root of every exception that this package raises on purpose.

    What to do: catch this one to catch them all; what is more special stands below.
    """


class ConfigError(KinesisPublishersError, ValueError):
    """A configuration that cannot work; raised before any call to AWS where possible.

    What to do: correct the configuration as the message says. Nothing has been read yet.
    """


class MissingOptionError(ConfigError):
    """A required option is absent.

    What to do: set the key that the message names.
    """


class InvalidOptionError(ConfigError):
    """An option has a value that it cannot have, or two options contradict each other.

    What to do: give the key a value of the kind that the message says is expected, or keep one of
    the two keys that it names.
    """


class UnknownOptionError(ConfigError):
    """A key that no option has.

    What to do: use the key that the message suggests, or remove this one.
    """


class ConfigErrors(ConfigError):
    """Everything that is wrong with a configuration, in one message.

    What to do: correct every problem of the list.

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
    """A class named in the configuration cannot be loaded or does not fit.

    What to do: install the module where the error was raised (in Spark on every machine), and see
    to it that the class is a subclass of the interface that the message names.
    """


class ServiceError(KinesisPublishersError):
    """AWS refused or failed a call.

    What to do: see the subclass. ``request_id`` is what AWS's support asks for.

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
    """The shard's read quota (5 calls/s, 2 MB/s) or a call rate is used up for now.

    For the command ``put`` it is the write quota (1,000 records/s, 1 MB/s).

    What to do: nothing if it passes. If it stays, others use the quota: poll less often, read with
    enhanced fan-out, or split the shards.
    """

    retryable = True


class LimitExceededError(ServiceError):
    """An account-wide rate or a limit on resources was hit.

    What to do: nothing if it is a rate. If it is the number of stream consumers (20 per stream),
    remove one.
    """

    retryable = True


class StreamNotFoundError(ServiceError):
    """The stream does not exist in this account and region.

    What to do: check name, region and account. A stream that was deleted while it was read ends the
    reader with this error, a few seconds later: one that is not found once may be there.
    """


class ShardNotFoundError(ServiceError):
    """The shard does not exist (any more) in the stream.

    What to do: nothing if the shard was read to its end. Otherwise its records have left the
    retention, see ``PositionTrimmedError``.
    """


class ConsumerNotFoundError(ServiceError):
    """The enhanced fan-out consumer does not exist (any more).

    What to do: with ``NONE`` register the consumer again, and configure its new ARN. With ``LAZY``
    and ``EAGER`` it is registered again by itself.
    """


class ResourceInUseError(ServiceError):
    """The resource is being changed, or somebody else holds it.

    What to do: wait; the change ends, or the other subscription is taken over. If a warning says
    that another reader takes subscriptions over, give each application a consumer name of its own.
    """

    retryable = True


class AccessDeniedError(ServiceError):
    """The credentials do not allow the call.

    What to do: allow the action that the message names, for the stream or consumer that it names.
    """


class CredentialsError(ServiceError):
    """There are no usable credentials, or AWS did not accept them.

    What to do: check ``aws.credentials.provider`` and what it reads, the age of a session token,
    and the clock of the machine. It is retryable where a provider is expected to have new ones.
    """


class EncryptionKeyError(ServiceError):
    """The stream's KMS key cannot be used.

    What to do: allow ``kms:Decrypt`` on the key (``kms:GenerateDataKey`` to write), and see that
    the key is enabled and exists.
    """


class IteratorExpiredError(ServiceError):
    """A shard iterator is older than five minutes.

    What to do: nothing, the iterator is replaced from the stored position. Whoever writes a
    publisher has to do that as well.
    """


class InvalidArgumentError(ServiceError):
    """AWS did not accept an argument of the call.

    What to do: read AWS's words in the message. A sequence number of another stream or shard is the
    usual reason.
    """


class InternalServiceError(ServiceError):
    """AWS failed on its side (5xx).

    What to do: nothing if it passes; else see the service's health page.
    """

    retryable = True


class ConnectionFailedError(ServiceError):
    """The connection could not be made, broke, or timed out.

    What to do: check ``aws.endpoint``, proxies, security groups and VPC endpoints. For an https
    endpoint that is not AWS's own set ``aws.cabundle``.
    """

    retryable = True


class MalformedResponseError(ServiceError):
    """An answer could not be understood; nothing of it was delivered.

    What to do: look for what stands between you and AWS, as a proxy that cuts answers off, and
    check ``aws.endpoint``.
    """

    retryable = True


class RetriesExhaustedError(KinesisPublishersError):
    """A retryable call failed for as long as its retry policy allows; the last error is the cause.

    What to do: see the cause. ``kinesis.retry.outagemillis`` says how long an outage may last; a
    ``maxretries`` that is set alone says how often its call is repeated.

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
    """Records that should have been read are gone.

    What to do: see the subclass. ``kinesis.failondataloss = false`` goes on with what is left and
    logs what is missing; a restart of the reader does not bring it back.
    """


class PositionTrimmedError(DataLossError):
    """The retention period removed records that were not read yet, or may have.

    What to do: raise the stream's retention, and keep readers from being down or behind for so
    long. To go on, set ``kinesis.failondataloss = false``, or begin anew with another checkpoint.
    """


class StreamRecreatedError(DataLossError):
    """The stream was deleted and created again: the stored positions belong to another one.

    What to do: begin with a new checkpoint, at ``TRIM_HORIZON`` to read all of the new stream; or
    set ``kinesis.failondataloss = false``, which does that where the stream was.
    """


class ReplayMismatchError(DataLossError):
    """A range that was read before does not read the same any more.

    What to do: nothing was delivered twice or left out; the micro-batch cannot be made the same
    again. Raise the retention, or set ``kinesis.failondataloss = false`` to go on with what is
    left.
    """


class CheckpointError(KinesisPublishersError):
    """A checkpoint or an offset cannot be read, written or used here.

    What to do: use the checkpoint with the streams and the version that wrote it, restore it, or
    begin with a new one.
    """


class StaleCheckpointError(CheckpointError):
    """Another reader has written a checkpoint since it was loaded: two readers do the same work.

    What to do: give each reader a ``kinesis.checkpoint.application`` of its own, or run one of
    them.
    """


class ReaderReplacedError(StaleCheckpointError):
    """Another reader of the application has started and taken over; this one has stopped.

    What to do: nothing. No record is lost: the other reader goes on from the last checkpoint. If a
    supervisor restarts this one, it waits for as long as the other one runs.
    """


class AggregationError(KinesisPublishersError):
    """A record begins like an aggregate and is not a valid one.

    What to do: find the producer; its library writes aggregates that are not valid.
    ``kinesis.aggregation.on-invalid = plain`` delivers them as they are.

    Attributes:
        valid_records: how many records of the same answer, as Kinesis stored them, stand before it.
    """

    def __init__(self, message: str, *, valid_records: int = 0) -> None:
        super().__init__(message)
        self.valid_records = valid_records


class ConsumerGuardError(KinesisPublishersError):
    """The process that removes stream consumers could not be started, or could not do its work.

    What to do: mend what the message and ``consumer-guard.log`` (beside the leases) say, or set
    ``kinesis.stream.efo.deregister = never`` and remove consumers by hand.
    """


class PublisherCancelledError(KinesisPublishersError):
    """A publisher reported CANCELLED, or was cancelled, although nobody asked it to stop.

    What to do: correct the publisher, which is not one of ours: return INCOMPLETE to be run again,
    and handle the cancellation of tasks of its own.
    """


class ProcessingCancelledError(KinesisPublishersError):
    """What takes the records let a CancelledError out although nobody asked it to stop.

    What to do: handle it where it comes from: a task or future that was waited for, and that
    somebody else has cancelled. The records do not count as processed.
    """


class RecordsNotWrittenError(KinesisPublishersError):
    """Records that were to be written were not, or it is not known whether they were."""


class ClosedError(KinesisPublishersError):
    """The object was closed and cannot be used any more.

    What to do: use the object inside its ``async with``; a fetcher is opened anew for the next run.
    """
