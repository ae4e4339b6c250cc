"""The typed view of the polling publisher's options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import field, frozen

from kinesis_publishers.config.options import fanout, polling, retries
from kinesis_publishers.config.recoverable_errors import RecoverableErrors

if TYPE_CHECKING:
    from kinesis_publishers.config.properties import Properties
    from kinesis_publishers.retry import RetryPolicy

__all__ = ["PollingConfig"]


@frozen(kw_only=True)
class PollingConfig:
    """How a shard is polled with GetRecords.

    Attributes:
        max_records: the Limit of a call, 1 to 10,000.
        interval_seconds: the period of the loop, processing included.
        adaptive_reads: whether the Limit follows the average size of a record.
        get_records_retry: how GetRecords is repeated.
        get_iterator_retry: how GetShardIterator is repeated.
        recoverable_errors: after which either is repeated as often as it takes.
    """

    max_records: int
    interval_seconds: float
    adaptive_reads: bool
    get_records_retry: RetryPolicy
    get_iterator_retry: RetryPolicy
    recoverable_errors: RecoverableErrors = field(factory=RecoverableErrors)

    @classmethod
    def from_properties(cls, properties: Properties) -> PollingConfig:
        """Read the options of polling.

        Raises:
            InvalidOptionError: a recoverable error cannot be imported.
        """
        return cls(
            max_records=properties.get(polling.MAX_RECORDS),
            interval_seconds=properties.seconds(polling.INTERVAL),
            adaptive_reads=properties.get(polling.ADAPTIVE_READS),
            get_records_retry=properties.retry_policy(retries.GET_RECORDS),
            get_iterator_retry=properties.retry_policy(retries.GET_ITERATOR),
            recoverable_errors=RecoverableErrors.parse(
                properties.members(fanout.RECOVERABLE_ERRORS).values()
            ),
        )
