"""What follows when a callback fails: never that its record is skipped silently."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from attrs import field, frozen

from kinesis_publishers.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers.model import Record, RecordBatch

__all__ = ["DeadLetter", "ErrorPolicy", "PutAside", "RetryOnError", "StopOnError"]

PutAside: TypeAlias = "Callable[[Record | RecordBatch, Exception], None]"
"""Takes what a callback has failed with, a record or a batch, and the error."""


@frozen
class StopOnError:
    """Stop reading and raise the error; its record is read again by the next run."""


@frozen
class DeadLetter:
    """Hand the record to somebody else, and go on once that has been done.

    Attributes:
        put: takes the record, or the batch, and the error; when it returns, the record counts as
            processed. If it raises, reading stops.
    """

    put: PutAside


def _few_retries() -> RetryPolicy:
    return RetryPolicy(max_retries=5, base_seconds=0.2, max_seconds=10.0, exponent=2.0)


@frozen(kw_only=True)
class RetryOnError:
    """Call again, after a delay, with the same record; its shard and the worker wait meanwhile.

    Attributes:
        policy: how often and after which delays: five times within half a minute by default.
        otherwise: what follows when it has failed as often as that.
    """

    policy: RetryPolicy = field(factory=_few_retries)
    otherwise: StopOnError | DeadLetter = field(factory=StopOnError)


ErrorPolicy: TypeAlias = StopOnError | RetryOnError | DeadLetter
"""One of the three above."""
