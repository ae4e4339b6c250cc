"""Decides how to recover from an error of a subscription, by its whole cause chain."""

from __future__ import annotations

import logging
import math

from attrs import define, field

from kinesis_publishers.abc import PublisherContext, StreamConsumerRegistrar
from kinesis_publishers.config import FanOutConfig
from kinesis_publishers.config.retries import causes
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
from kinesis_publishers.model import Shard, StartingPosition
from kinesis_publishers.publishers.trimmed import delay_after_refusal
from kinesis_publishers.retry import RetryBudget

_LOGGER = logging.getLogger(__name__)
_WARNING_PERIOD_SECONDS = 60.0

_THROTTLES = (ThroughputExceededError, LimitExceededError)
# A broken connection, a subscription too young to be taken over, an exceeded rate: none of these
# predicts the next call.
_REPEATED_ENDLESSLY = (ConnectionFailedError, ResourceInUseError, *_THROTTLES)
# A subscription cannot be taken over for 5 s (AWS API reference); the measured time may be slightly
# less. Two readers that displace each other hold a shard for less than a minute each.
_TAKEN_OVER_SECONDS = (4.0, 60.0)
_TAKEOVERS_TO_REPORT = 3
# Neither reader knows which one should read. Both continue, late, but without a storm of calls.
_TAKEOVER_DELAY_SECONDS, _MOST_TAKEOVER_DELAY_SECONDS = 5.0, 30.0


@define(eq=False)
class SubscriptionRecovery:
    """Decides how long to wait before the next subscription; an event resets its ``retries``."""

    _shard: Shard
    _config: FanOutConfig
    registrar: StreamConsumerRegistrar
    _context: PublisherContext
    # The time of the last warning by subject; shards share it.
    _warned_at: dict[str, float]
    retries: RetryBudget = field(init=False)
    _takeovers: int = field(default=0, init=False)
    _may_be_taken_over: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        policy, context = self._config.subscribe_retry, self._context
        self.retries = RetryBudget(
            policy, context.clock, events=context.events, shard=self._shard.key
        )

    def warn(self, message: str, *, about: str | None = None) -> None:
        """Log ``message`` at most once a minute per subject, by default the shard."""
        now, about = self._context.clock.monotonic(), about or str(self._shard)
        if now - self._warned_at.get(about, -math.inf) >= _WARNING_PERIOD_SECONDS:
            self._warned_at[about] = now
            _LOGGER.warning("%s", message)

    def note_end(self, seconds: float) -> None:
        """Update the state after a subscription that has lasted ``seconds``."""
        shortest, longest = _TAKEN_OVER_SECONDS
        self._may_be_taken_over = shortest <= seconds < longest
        if seconds >= longest:
            self._takeovers = 0

    async def delay_after(
        self, error: Exception, position: StartingPosition, consumer_arn: str
    ) -> float:
        """Return the seconds to wait after ``error``, or raise the error that ends reading.

        Args:
            position: where the subscription would have begun or continued.

        Raises:
            PositionTrimmedError: the service no longer knows the position.
            StreamNotFoundError: the service does not find the stream or the shard.
            ConsumerNotFoundError: the consumer is gone, and is not registered again.
            ServiceError: a retry cannot help.
            RetriesExhaustedError: the policy allows no more repetitions.
        """
        deciding = _deciding_error(error)
        if isinstance(deciding, _THROTTLES):
            self._context.events(Throttled(shard=self._shard.key, operation=deciding.operation))
        # An error that the user declared recoverable counts anywhere in the cause chain.
        is_recoverable = self._config.recoverable_errors.contain(error)
        if is_recoverable or isinstance(deciding, _REPEATED_ENDLESSLY):
            delay = self.retries.delay_after(deciding, is_endless=True)
            return max(delay, self._delay_after_takeover(deciding, consumer_arn))
        if isinstance(deciding, InvalidArgumentError):
            return delay_after_refusal(deciding, self._shard, position, self._context.clock.now())
        if isinstance(deciding, StreamNotFoundError):
            deciding = await self._renew_consumer(consumer_arn, deciding)
        return self.retries.delay_after(deciding)

    def _delay_after_takeover(self, error: Exception, consumer_arn: str) -> float:
        """Return how long to leave the shard to another reader of the same consumer."""
        # A refusal right after a subscription broke off: another reader has just subscribed.
        if not (isinstance(error, ResourceInUseError) and self._may_be_taken_over):
            return 0.0
        self._may_be_taken_over = False
        self._takeovers += 1
        if self._takeovers < _TAKEOVERS_TO_REPORT:
            return 0.0
        self.warn(
            f"{self._shard}: another reader has taken the subscription over {self._takeovers} "
            f"times in a row. It uses the same stream consumer, {consumer_arn}: both get every "
            "record, but up to half a minute late. Give each application its own "
            "kinesis.stream.efo.consumername, and run one fetcher for each.",
            about=consumer_arn,
        )
        more = self._takeovers - _TAKEOVERS_TO_REPORT + 1
        return min(_MOST_TAKEOVER_DELAY_SECONDS, more * _TAKEOVER_DELAY_SECONDS)

    async def _renew_consumer(self, consumer_arn: str, error: StreamNotFoundError) -> ServiceError:
        """Return the failure to count if the consumer was registered again.

        Otherwise raise ``error``: the caller of the publisher knows whether the stream or the shard
        is missing, and what that means.
        """
        try:
            arn = await self.registrar.renew(self._shard.stream_arn, consumer_arn)
        except ServiceError as failure:
            # The next refusal repeats the question.
            if not failure.retryable:
                raise
            return failure
        if arn == consumer_arn:
            raise error
        # A new consumer is not known everywhere at once. The retry counts all the same, or a
        # consumer that is repeatedly deleted would keep this going forever.
        return InternalServiceError(
            f"{str(error).rstrip('.')}. The consumer was registered again.",
            operation=error.operation,
            code=error.code,
            request_id=error.request_id,
        )


def _deciding_error(error: Exception) -> Exception:
    """Return the first error of the service in the cause chain, or ``error`` itself."""
    return next((one for one in causes(error) if isinstance(one, ServiceError)), error)
