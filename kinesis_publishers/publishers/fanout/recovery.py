"""Decides what follows from an error of a subscription, by its whole cause chain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.config.recoverable_errors import RecoverableErrors, causes
from kinesis_publishers.errors import (
    ConnectionFailedError,
    InternalServiceError,
    InvalidArgumentError,
    LimitExceededError,
    ResourceInUseError,
    ServiceError,
    StreamNotFoundError,
    ThroughputExceededError,
)
from kinesis_publishers.events import Throttled
from kinesis_publishers.publishers.fanout.missing_resources import find_missing_resource
from kinesis_publishers.publishers.trimmed_positions import (
    CLOCK_SKEW_RETRY_SECONDS,
    may_be_ahead_of_service,
    trimmed_error,
)
from kinesis_publishers.retry import RetryBudget

if TYPE_CHECKING:
    from kinesis_publishers.abc.record_publisher_factory import PublisherContext
    from kinesis_publishers.abc.stream_consumer_registrar import StreamConsumerRegistrar
    from kinesis_publishers.config.fanout import FanOutConfig
    from kinesis_publishers.model import Shard, StartingPosition

__all__ = ["SubscriptionRecovery", "is_repeated_endlessly"]

_THROTTLES = (ThroughputExceededError, LimitExceededError)
# The connection broke, somebody else's subscription is too young to be taken over, or a rate is
# used up: however often that happens, it says nothing about the next call.
_REPEATED_ENDLESSLY = (ConnectionFailedError, ResourceInUseError, *_THROTTLES)


def is_repeated_endlessly(error: Exception, recoverable: RecoverableErrors) -> bool:
    """Say whether a subscription is reopened after ``error`` however often it comes.

    Args:
        error: what ended or prevented the subscription.
        recoverable: what the user has named, wherever in the cause chain it stands.
    """
    return isinstance(_deciding_error(error), _REPEATED_ENDLESSLY) or recoverable.contain(error)


class SubscriptionRecovery:
    """Says how long to wait before a shard is subscribed to again, or that it cannot be.

    Args:
        shard: what is read.
        config: the retry policy and what the user calls recoverable.
        registrar: registers the stream consumer again if it is gone.
        context: client, clock and event sink.
    """

    def __init__(
        self,
        shard: Shard,
        config: FanOutConfig,
        registrar: StreamConsumerRegistrar,
        context: PublisherContext,
    ) -> None:
        self._shard = shard
        self._recoverable = config.recoverable_errors
        self._registrar = registrar
        self._context = context
        self._retries = RetryBudget(
            config.subscribe_retry, context.clock, events=context.events, shard=shard.key
        )

    def note_progress(self) -> None:
        """Allow everything again: an event has arrived."""
        self._retries.reset()

    async def delay_after(
        self, error: Exception, position: StartingPosition, consumer_arn: str
    ) -> float:
        """Return the seconds to wait after ``error``; raise what ends the reading of the shard.

        Args:
            error: what a subscription failed with, before or after it was accepted.
            position: where it was to begin or to go on.
            consumer_arn: the stream consumer of the subscription.

        Raises:
            PositionTrimmedError: the position is not known to the service any more.
            ShardNotFoundError: the shard has left the retention.
            ConsumerNotFoundError: the consumer is gone, and nobody registers it again.
            ServiceError: retrying does not mend it.
            RetriesExhaustedError: the policy allows no more repetitions.
        """
        deciding = _deciding_error(error)
        if isinstance(deciding, _THROTTLES):
            self._context.events(Throttled(shard=self._shard.key, operation=deciding.operation))
        if is_repeated_endlessly(error, self._recoverable):
            return self._retries.delay_after(deciding, is_endless=True)
        if isinstance(deciding, InvalidArgumentError):
            return self._delay_after_refusal(deciding, position)
        if isinstance(deciding, StreamNotFoundError):
            finding = await self._find_missing(consumer_arn)
            # A consumer that was registered a moment ago is not known everywhere at once. It counts
            # all the same, or whoever keeps deleting it would keep this going for ever.
            return self._retries.delay_after(_unexplained(deciding, finding))
        return self._retries.delay_after(deciding)

    def _delay_after_refusal(
        self, error: InvalidArgumentError, position: StartingPosition
    ) -> float:
        if position.sequence_number is not None:
            evidence = f"the service does not know the sequence number ({error})"
            raise trimmed_error(self._shard, position, evidence) from error
        if not may_be_ahead_of_service(position, self._context.clock.now()):
            raise error
        return CLOCK_SKEW_RETRY_SECONDS

    async def _find_missing(self, consumer_arn: str) -> str:
        """Say in words what was found out, if nothing is missing for good."""
        try:
            await find_missing_resource(
                self._shard, consumer_arn, self._registrar, self._context.control_plane
            )
        except ServiceError as failure:
            # Whom nobody answers asks again after the next refusal.
            if not failure.retryable:
                raise
            return f"What is missing could not be found out: {failure}"
        return "But stream, shard and consumer are there."


def _deciding_error(error: Exception) -> Exception:
    """Return what an error is judged by: the first one of the service in its cause chain."""
    return next((one for one in causes(error) if isinstance(one, ServiceError)), error)


def _unexplained(error: StreamNotFoundError, finding: str) -> InternalServiceError:
    return InternalServiceError(
        f"{error} {finding}",
        operation=error.operation,
        code=error.code,
        request_id=error.request_id,
    )
