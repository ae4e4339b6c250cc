"""The exceptions of the framework: one root, one tree.

Every message names what failed, where, and what to do next. The attribute ``retryable`` of
:class:`ServiceError` says whether a call may be repeated. The end of a shard is a ``RunResult``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class KinesisPublishersError(Exception):
    """The root of every exception that this package raises on purpose.

    What to do: catch this class to catch all of them, or one of the subclasses below.
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
    """An option has an invalid value, or two options contradict each other.

    What to do: give the key a value that the message asks for, or keep one of the two keys.
    """


class UnknownOptionError(ConfigError):
    """No option has this key.

    What to do: use the key that the message suggests, or remove this one.
    """


class ConfigErrors(ConfigError):
    """All problems of a configuration, in one message, and one by one in ``problems``.

    What to do: correct every problem in the list.
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

    What to do: install the module where the error was raised (in Spark on every machine), and make
    the class a subclass of the interface that the message names.
    """


class ServiceError(KinesisPublishersError):
    """AWS refused or failed a call.

    What to do: see the subclass. AWS's support asks for the ``request_id``.

    Attributes:
        operation: the API operation, for example ``GetRecords``.
        code: the AWS error code, or the name of the client's own exception.
        request_id: AWS's id of the request, if there was an answer.
        retryable: whether the same call may succeed later.
    """

    retryable = False

    # Exceptions are pickled from Spark's workers: the message is the argument, the rest is state.
    def __init__(
        self, message: str, *, operation: str = "", code: str = "", request_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.code = code
        self.request_id = request_id


class ThroughputExceededError(ServiceError):
    """A shard's quota to read (5/s, 2 MB/s) or write (1,000/s, 1 MB/s), or a call rate, is used.

    What to do: nothing if it passes. If it persists, other readers use the quota: poll less often,
    read with enhanced fan-out, or split the shards.
    """

    retryable = True


class LimitExceededError(ServiceError):
    """An account-wide rate or a limit on resources was hit.

    What to do: nothing if it is a rate. If it is the number of stream consumers (20 per stream, 50
    with On-demand Advantage), remove one.
    """

    retryable = True


class StreamNotFoundError(ServiceError):
    """The stream does not exist in this account and region.

    What to do: check name, region and account. Of a stream that is deleted while it is read, the
    reader ends with this error a few seconds later: a single such answer may be wrong.
    """


class ShardNotFoundError(ServiceError):
    """The stream has no such shard, or no longer has it.

    What to do: nothing if the shard was read to its end. Otherwise see ``PositionTrimmedError``.
    """


class ConsumerNotFoundError(ServiceError):
    """The enhanced fan-out consumer does not exist, or no longer exists.

    What to do: with ``NONE``, register it again and configure its new ARN. Else nothing.
    """


class ResourceInUseError(ServiceError):
    """The resource is being changed, or another client holds it.

    What to do: wait until the change ends, or the other subscription is taken over. If a warning
    says that another reader takes over subscriptions, give each application its own consumer name.
    """

    retryable = True


class AccessDeniedError(ServiceError):
    """The credentials do not allow the call.

    What to do: allow the action that the message names, for the stream or consumer that it names.
    """


class CredentialsError(ServiceError):
    """There are no usable credentials, or AWS did not accept them.

    What to do: check ``aws.credentials.provider``, the age of a session token, and the machine's
    clock. The error is retryable if the provider is expected to supply new credentials.
    """


class EncryptionKeyError(ServiceError):
    """The stream's KMS key cannot be used.

    What to do: allow ``kms:Decrypt`` (``kms:GenerateDataKey`` to write) on the key, and enable it.
    """


class IteratorExpiredError(ServiceError):
    """A shard iterator is older than five minutes.

    What to do: nothing, it is replaced. A custom publisher begins at the stored position again.
    """


class InvalidArgumentError(ServiceError):
    """AWS did not accept an argument of the call.

    What to do: read AWS's words. The usual reason is a sequence number of another stream or shard.
    """


class InternalServiceError(ServiceError):
    """AWS failed on its side (5xx), or the store of checkpoints takes no writes for now.

    What to do: nothing if it passes; else see the service's health page, or the message.
    """

    retryable = True


class ConnectionFailedError(ServiceError):
    """The connection could not be established, broke, or timed out.

    What to do: check ``aws.endpoint``, proxies, security groups and VPC endpoints. For an https
    endpoint that is not AWS's own, set ``aws.cabundle``.
    """

    retryable = True


class MalformedResponseError(ServiceError):
    """An answer could not be understood; none of it was delivered.

    What to do: look for what changes answers between the reader and AWS, such as a proxy.
    """

    retryable = True


class RetriesExhaustedError(KinesisPublishersError):
    """A retryable call failed until its policy allowed no more; the last error is its context.

    What to do: see the message. ``kinesis.retry.outagemillis`` says how long an outage may last; a
    ``maxretries`` that is set alone says how often its call is repeated.

    Attributes:
        attempts: how many calls were made.
        elapsed_seconds: how long the attempts took.
    """

    def __init__(self, message: str, *, attempts: int = 0, elapsed_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.attempts = attempts
        self.elapsed_seconds = elapsed_seconds


class DataLossError(KinesisPublishersError):
    """Records that should have been read are gone.

    What to do: see the subclass. With ``kinesis.failondataloss = false`` the reader continues with
    the remaining records and logs what is missing; a restart does not bring it back.
    """


class PositionTrimmedError(DataLossError):
    """The retention period removed, or may have removed, records that were not read yet.

    What to do: raise the stream's retention, and keep readers from being down or behind that
    long. To continue, set ``kinesis.failondataloss = false``, or begin with a new checkpoint.
    """


class StreamRecreatedError(DataLossError):
    """The stream was deleted and created again: the stored positions belong to another one.

    What to do: begin with a new checkpoint, at ``TRIM_HORIZON`` to read all of the new stream; or
    set ``kinesis.failondataloss = false``, which reads the new stream from its first record.
    """


class ReplayMismatchError(DataLossError):
    """A range that was read before no longer yields the same records.

    What to do: nothing was delivered twice or left out, but the micro-batch cannot be repeated.
    Raise the retention, or set ``kinesis.failondataloss = false`` to continue without it.
    """


class CheckpointError(KinesisPublishersError):
    """A checkpoint or an offset cannot be read, written or used here.

    What to do: use it with the streams and the version that wrote it, or begin with a new one.
    """


class StaleCheckpointError(CheckpointError):
    """Another reader wrote a checkpoint after this one loaded it: two readers do the same work.

    What to do: give each reader its own ``kinesis.checkpoint.application``, or run only one.

    Attributes:
        written: the new versions of the other checkpoints of the batch, which were written.
    """

    def __init__(self, message: str, *, written: Mapping[Any, Any] | None = None) -> None:
        super().__init__(message)
        self.written = dict(written or {})


class ReaderReplacedError(StaleCheckpointError):
    """Another reader of the application has started and taken over; this one has stopped.

    What to do: nothing: the other one continues from the last checkpoint. A restarted one waits.
    """


class LeaseError(KinesisPublishersError):
    """Two workers have the same name, or a reader without leases writes their checkpoints.

    What to do: leave ``kinesis.lease.workerid`` out, or give each worker its own name; set
    ``kinesis.lease.enabled`` in all processes of the application.
    """


class EventTimeError(KinesisPublishersError, ValueError):
    """A ``WatermarkAssigner`` cannot say the event time of a record.

    What to do: return ``None`` for such a record, or let a ``DeadLetter`` (``on_error``) take it.
    """


class AggregationError(KinesisPublishersError):
    """A record begins like an aggregate but is not valid.

    What to do: find the producer, whose library writes invalid aggregates.
    ``kinesis.aggregation.on-invalid = plain`` delivers them as they are.

    Attributes:
        valid_records: how many records of the same answer, as Kinesis stored them, precede it.
    """

    def __init__(self, message: str, *, valid_records: int = 0) -> None:
        super().__init__(message)
        self.valid_records = valid_records


class SchemaError(KinesisPublishersError):
    """A schema cannot be used here; the record is not at fault, and not put aside.

    What to do: allow the calls it names, check the connection, or install what is missing.
    """


class ConsumerGuardError(KinesisPublishersError):
    """The process that removes stream consumers could not be started, or could not do its work.

    What to do: fix the problem that the message and ``consumer-guard.log`` (next to the leases)
    name, or set ``kinesis.stream.efo.deregister = never`` and remove consumers by hand.
    """


class ProcessingCancelledError(KinesisPublishersError):
    """The application's callback raised a CancelledError without a request to stop.

    What to do: handle it at its origin, a task or future that the callback waited for and that was
    cancelled elsewhere. The records do not count as processed.
    """


class NotProcessedError(KinesisPublishersError):
    """Records are older than ``max_age``, or the callback of ``scan`` has returned them as failed.

    What to do: let ``on_error`` repeat the call, or put the records aside.
    """

    is_too_old = False


class PublisherCancelledError(KinesisPublishersError):
    """A publisher reported CANCELLED, or was cancelled, without a request to stop.

    What to do: let the custom publisher return INCOMPLETE, and handle its tasks' cancellation.
    """


class InvalidRecordError(KinesisPublishersError, ValueError):
    """A record that no stream, or not this one, takes; nothing of it was sent.

    What to do: correct what the message names: a key, or the size of the data.
    """


class RecordsNotWrittenError(KinesisPublishersError):
    """Records were not written, or it is not known whether they were.

    What to do: put them again, or keep them elsewhere; the cause or the records' errors say why. A
    record may be in the stream nevertheless if the answer to a call was lost.

    Attributes:
        results: for ``put_many``, a ``PutResult`` or an error for each record, in their order;
            ``flush`` and ``close`` have the error of each record that failed.
    """

    def __init__(self, message: str, *, results: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.results = tuple(results)


class RecordExpiredError(RecordsNotWrittenError):
    """A record was not accepted within its time to live, ``kinesis.producer.recordttlmillis``.

    What to do: see the cause, the last refusal. If the stream throttles, it needs more shards; if
    the service is away for longer at times, keep records on disk (``kinesis.producer.spill.path``).
    """


class BufferFullError(RecordsNotWrittenError):
    """The buffer of the producer has no room, and ``kinesis.producer.buffer.whenfull`` is ``fail``.

    What to do: put less, give the stream more shards, raise the buffer's limits, or let it wait.
    """


class ClosedError(KinesisPublishersError):
    """The object was closed and can no longer be used.

    What to do: use the object inside its ``async with``; open a new fetcher for the next run.
    """
