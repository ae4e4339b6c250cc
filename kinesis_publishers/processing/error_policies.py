"""Policies for a callback that fails; none of them skips its record silently."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, Unpack

from attrs import field, frozen

from kinesis_publishers.config import Options, Properties, Scalar, WatermarkConfig
from kinesis_publishers.errors import (
    AggregationError,
    EventTimeError,
    InvalidOptionError,
    NotProcessedError,
    SchemaError,
)
from kinesis_publishers.model import Record, RecordBatch, SequenceNumber
from kinesis_publishers.processing.calls import BatchParts, ResultError, call_plain
from kinesis_publishers.processing.letters import (
    MESSAGE_BYTES,
    PART_BYTES,
    check_stream,
    letters_of,
    open_private,
)
from kinesis_publishers.producing import BlockingProducer
from kinesis_publishers.retry import RetryPolicy

_LOGGER = logging.getLogger(__name__)


@frozen
class StopOnError:
    """Stop reading and raise the error; its record is read again by the next run."""


@frozen
class DeadLetter:
    """Put the record aside, and continue once that is done.

    Attributes:
        put: takes the record, as a batch of one if batches are processed, and the error; when it
            returns, the record counts as processed. If it raises, reading stops.
    """

    put: Callable[[Record | RecordBatch, Exception], None]
    # Raises a ConfigError if records of a source cannot go there.
    _check: Callable[[Properties], None] = field(default=lambda _: None, kw_only=True, repr=False)

    @classmethod
    def to_file(cls, path: str | Path) -> DeadLetter:
        """Return a policy that appends a JSON object per record to a file, and waits for the disk.

        It has ``data`` in base64, ``error``, and the other fields of a record. A new file is
        readable by this user only.

        Raises:
            InvalidOptionError: the file cannot be written, or is a symbolic link.
        """
        file_path = Path(path).absolute()
        try:
            os.close(open_private(str(file_path), os.O_RDWR | os.O_CREAT | os.O_APPEND))
        except OSError as error:
            raise InvalidOptionError(
                f"DeadLetter.to_file: {error}. The folder has to be there, and to be writable; a "
                "symbolic link is not followed"
            ) from error
        lock = threading.Lock()

        def put(item: Record | RecordBatch, error: Exception) -> None:
            records = [item] if isinstance(item, Record) else item
            lines = b"".join(chain.from_iterable(letters_of(one, error) for one in records))
            with lock, open(file_path, "a+b", opener=open_private) as file:
                # A writer that died has left the beginning of a line.
                is_torn = file.tell() > 0 and file.seek(-1, os.SEEK_END) and file.read() != b"\n"
                file.write(b"\n" + lines if is_torn else lines)
                file.flush()
                os.fsync(file.fileno())

        return cls(put)

    @classmethod
    def to_stream(
        cls,
        properties: Properties | Mapping[str, Scalar] | None = None,
        **options: Unpack[Options],
    ) -> DeadLetter:
        """Return a policy that puts records to another stream, and waits for that.

        A record becomes the JSON object that :meth:`to_file` writes, with its partition key; one of
        more than 720 KiB becomes several, with a ``part`` of its ``parts`` each. A letter that
        claims to have been put aside three times stays where it is, and an error in the log names
        its place: its stream seems to be the one that is read.

        The arguments are those of ``BlockingProducer.from_properties``. The producer is opened for
        the first record, and closed at the end of the program.
        """
        properties = Properties.of(properties, options)
        lock = threading.Lock()
        producers: list[BlockingProducer] = []

        def put(item: Record | RecordBatch, error: Exception) -> None:
            with lock:
                if not producers:
                    producers.append(BlockingProducer.from_properties(properties))
            records = [item] if isinstance(item, Record) else item
            producers[0].put_many(
                (letter, record.partition_key or record.shard_id)
                for record in records
                for letter in letters_of(record, error, PART_BYTES)
            ).result()

        return cls(put, check=partial(check_stream, properties))

    @classmethod
    def to_sqs(cls, client: Any, queue_url: str) -> DeadLetter:
        """Return a policy that sends records to a queue of Amazon SQS, as :meth:`to_stream` does.

        A queue whose name ends in ``.fifo`` keeps the order of each partition key.

        Args:
            client: ``boto3.client("sqs")``.
            queue_url: the URL of the queue.
        """

        return cls._to_messages(client.send_message, "MessageBody", QueueUrl=queue_url)

    @classmethod
    def to_sns(cls, client: Any, topic_arn: str) -> DeadLetter:
        """Return a policy that publishes records to a topic of Amazon SNS, as :meth:`to_sqs` does.

        Args:
            client: ``boto3.client("sns")``.
            topic_arn: the ARN of the topic.
        """

        return cls._to_messages(client.publish, "Message", TopicArn=topic_arn)

    @classmethod
    def to_s3(cls, client: Any, bucket: str, prefix: str = "") -> DeadLetter:
        """Return a policy that puts each record into an object of Amazon S3, as :meth:`to_file`.

        Its key is the prefix, ``Record.id`` and ``.json``: if it comes again, it is replaced.

        Args:
            client: ``boto3.client("s3")``.
            bucket: the name of the bucket.
            prefix: what the keys begin with.
        """

        def put(item: Record | RecordBatch, error: Exception) -> None:
            for record in [item] if isinstance(item, Record) else item:
                key = f"{prefix}{record.id.rstrip('/')}.json"
                client.put_object(Bucket=bucket, Key=key, Body=b"".join(letters_of(record, error)))

        return cls(put)

    @classmethod
    def _to_messages(cls, send: Callable[..., object], body: str, **target: str) -> DeadLetter:
        is_fifo = all(place.endswith(".fifo") for place in target.values())

        def put(item: Record | RecordBatch, error: Exception) -> None:
            for record in [item] if isinstance(item, Record) else item:
                for letter in letters_of(record, error, MESSAGE_BYTES):
                    order = _fifo(letter, record) if is_fifo else {}
                    send(**target, **{body: letter.decode()}, **order)

        return cls(put)

    async def put_aside_in_thread(self, item: Record | RecordBatch, error: Exception) -> None:
        name = f"put of DeadLetter for {place_of(item)}"
        await asyncio.to_thread(call_plain, name, self.put_aside, item, error)

    def put_aside(self, item: Record | RecordBatch, error: Exception) -> object:
        """Call :attr:`put`; if it fails, ``error`` is the cause of its exception."""
        try:
            return self.put(item, error)  # type: ignore[func-returns-value]
        except Exception as failure:
            if failure is error:
                raise
            raise failure from failure.__cause__ or error


def _fifo(letter: bytes, record: Record) -> dict[str, str]:
    # Neither takes every character of a partition key.
    group = sha256((record.partition_key or record.shard_id).encode()).hexdigest()
    return {"MessageGroupId": group, "MessageDeduplicationId": sha256(letter).hexdigest()}


@frozen(kw_only=True)
class RetryOnError:
    """Call again, after a delay, with the same record; its shard and the worker wait meanwhile.

    Attributes:
        policy: how often and after which delays; the default is five times within half a minute.
        otherwise: what follows when the last repetition has failed.
    """

    policy: RetryPolicy = field(factory=RetryPolicy)
    otherwise: StopOnError | DeadLetter = field(factory=StopOnError)


ErrorPolicy: TypeAlias = StopOnError | RetryOnError | DeadLetter
"""One of the three above."""


def last_policy(policy: ErrorPolicy) -> StopOnError | DeadLetter:
    """Return what follows when no retry is left."""
    return policy.otherwise if isinstance(policy, RetryOnError) else policy


def next_step(
    policy: ErrorPolicy,
    error: Exception,
    failures: int,
    place: str,
    *,
    parts: BatchParts | None = None,
    of: str = "the callback",
) -> float | DeadLetter:
    """Return the seconds until the next call, or the policy that takes the record.

    Once no retry is left, ``parts`` are divided, if there are any, before the next call. If reading
    must stop, this raises ``error``.
    """
    is_too_old = isinstance(error, NotProcessedError) and error.is_too_old
    if isinstance(error, EventTimeError):
        of = "the watermark assigner"
    elif is_too_old:
        of = "the check of max_age"
    else:
        error.add_note(f"It was raised by {of} for {place}.")
    if isinstance(error, ResultError):
        raise error
    # Such a record has the same bytes the next time. A whole batch may have failed for an
    # external reason, and so may a record that would be put aside; parts in between are halved.
    is_bad_record = isinstance(error, AggregationError | EventTimeError) or is_too_old
    may_help = not is_bad_record and not (parts and parts.is_cut)
    if isinstance(policy, RetryOnError) and may_help and failures <= policy.policy.max_retries:
        delay = policy.policy.delay_seconds(failures - 1)
        _LOGGER.warning(
            "The callback failed for %s, retry %d in %.1f s: %.1000r",
            *(place, failures, delay, error),
        )
        return delay
    # The callback has named each record that it returned.
    divides = parts is not None and not isinstance(error, SchemaError | NotProcessedError)
    if divides and parts is not None and parts.divide():
        what = "%s failed for %s, which are divided in two: %.1000r"
        _LOGGER.warning(what, of.capitalize(), place, error)
        return 0.0
    policy = last_policy(policy)
    if isinstance(policy, StopOnError) or isinstance(error, SchemaError):
        raise error
    what = "%s failed for %s, which will be put aside: %.1000r"
    _LOGGER.error(what, of.capitalize(), place, error)
    return policy


def place_of(item: Record | RecordBatch) -> str:
    """Describe the records of ``item``."""
    if isinstance(item, RecordBatch):
        if not len(item):
            return f"an empty batch of {item.shard}"
        return f"{len(item)} records of {item.shard} from {item.first_sequence_number} on"
    number = SequenceNumber(item.sequence_number, item.sub_sequence_number)
    return f"record {number} of {item.stream_name}/{item.shard_id}"


def check_callback(name: str, callback: object) -> None:
    """Raise a TypeError unless ``callback`` can be called in a thread."""
    if not callable(callback):
        raise TypeError(f"{name} must be callable, not {callback!r}")
    if inspect.iscoroutinefunction(callback):
        raise TypeError(
            f"{name} is an async function, and it is called in a thread: make it a plain one; "
            "`async for record in kinesis_publishers.read(properties)` is for async programs"
        )


def check_policy(policy: object, source: Properties | None = None) -> None:
    """Raise a TypeError unless ``policy`` is one, a ConfigError if it is none for ``source``."""
    if isinstance(policy, RetryOnError):
        policy = policy.otherwise
    if isinstance(policy, DeadLetter):
        check_callback("put of DeadLetter", policy.put)
        if source is not None:
            policy._check(source)
    elif not isinstance(policy, StopOnError):
        raise TypeError(
            f"on_error must be StopOnError(), RetryOnError(...) or DeadLetter(put), not {policy!r}"
        )


def check_decode_policy(
    policy: StopOnError | DeadLetter | None, source: Properties, decode: object
) -> None:
    """Do the same with a policy for ``decode`` or a watermark assigner; ``None`` is the default."""
    if policy is None:
        return
    if isinstance(policy, RetryOnError):
        raise TypeError("RetryOnError has nothing to repeat: a payload remains what it is")
    check_policy(policy, source)
    if decode is None and not source.is_given(WatermarkConfig.assigner):
        raise ValueError("on_error is for decode, and there is none: the loop handles its own")
