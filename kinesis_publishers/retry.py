"""Owns retrying: the one place that decides how often and after which delay a call is repeated."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, TypeVar

import backoff
from attrs import define, field, frozen, validators

from kinesis_publishers.errors import (
    LimitExceededError,
    ResourceInUseError,
    RetriesExhaustedError,
    ServiceError,
    ThroughputExceededError,
)
from kinesis_publishers.events import CallRetried, EventSink, log_event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.model import ShardKey

__all__ = ["RetryBudget", "RetryPolicy", "call_with_retries"]

_LOGGER = logging.getLogger(__name__)

_T = TypeVar("_T")

_FAILURES_TO_REPORT = 3
# Hundreds of shards that repeat every second for hours must not drown everything else.
_REPORT_PERIOD_SECONDS = 60.0
_ADVICE = "Raise its maxretries or backoff options if the service is expected to recover."
# Answers that say "later": nothing that anybody has to look into, unless they do not end.
_REQUESTS_TO_WAIT = (ThroughputExceededError, LimitExceededError, ResourceInUseError)


@frozen(kw_only=True)
class RetryPolicy:
    """How often a call is repeated, and how long to wait before each repetition.

    ``delay = random[0, 1) * min(max_seconds, base_seconds * exponent ** attempt)``: "full jitter",
    the rule of Flink's connector, so that competing processes spread out.

    Attributes:
        max_retries: repetitions after the first call; 0 makes exactly one call.
        base_seconds: the upper bound of the first delay.
        max_seconds: the upper bound of every delay.
        exponent: the factor by which the bound grows with each attempt.
    """

    max_retries: int = field(validator=validators.ge(0))
    base_seconds: float = field(validator=validators.ge(0.0))
    max_seconds: float = field(validator=validators.ge(0.0))
    exponent: float = field(validator=validators.ge(0.0))

    def delay_bound_seconds(self, attempt: int) -> float:
        """Return the longest delay before repetition ``attempt`` (counted from 0), in seconds."""
        try:
            grown = self.base_seconds * self.exponent**attempt
        except OverflowError:
            return self.max_seconds
        return min(self.max_seconds, grown)

    def delay_seconds(self, attempt: int) -> float:
        """Return a random delay before repetition ``attempt`` (counted from 0), in seconds."""
        return float(backoff.full_jitter(self.delay_bound_seconds(attempt)))


@define(eq=False)
class RetryBudget:
    """What a policy still allows one operation; whoever makes the calls does the waiting.

    It serves those who cannot wait on the spot, because they hold something that others need;
    everybody else uses :func:`call_with_retries`.

    Args:
        policy: how often and after which delays.
        clock: what the time that failures take is measured with.
        began_at: when the first call began, in seconds of the monotonic clock; unless it is given,
            time counts from the first failure.
        events: where each repetition is reported.
        shard: which shard the operation is about, if it is about one.
        advice: what to do when all retries are used up; unless it is given, to raise the options of
            the properties.
    """

    _policy: RetryPolicy
    _clock: Clock
    _began_at: float | None = field(default=None, kw_only=True)
    _events: EventSink = field(default=log_event, kw_only=True)
    _shard: ShardKey | None = field(default=None, kw_only=True)
    _advice: str = field(default=_ADVICE, kw_only=True)
    _attempts: int = field(default=0, init=False)
    _failures: int = field(default=0, init=False)
    _unexpected: int = field(default=0, init=False)
    _reported_at: float = field(default=-math.inf, init=False)

    def delay_after(self, error: Exception, *, is_endless: bool = False) -> float:
        """Return how long to wait, in seconds, before the call that failed is made again.

        Args:
            error: what it failed with.
            is_endless: whether it is repeated as often as it takes, whatever it is, and uses up no
                retry (a throttle is a request to slow down, not a failure); it is backed off all
                the same.

        Raises:
            Exception: ``error`` itself, if it is not retryable.
            RetriesExhaustedError: the policy allows no more repetitions.
        """
        if not (is_endless or getattr(error, "retryable", False)):
            raise error
        if self._began_at is None:
            self._began_at = self._clock.monotonic()
        delay = self._policy.delay_seconds(self._attempts)
        self._attempts += 1
        if not is_endless:
            self._failures += 1
        if self._failures > self._policy.max_retries:
            raise self._exhausted(error, self._began_at) from error
        if not isinstance(error, _REQUESTS_TO_WAIT):
            self._unexpected += 1
        self._report(error, delay)
        return delay

    def _report(self, error: Exception, delay: float) -> None:
        if self._is_to_report():
            _LOGGER.warning("Retry %d in %.1f s: %s", self._attempts, delay, error)
        self._events(
            CallRetried(
                operation=getattr(error, "operation", ""),
                code=getattr(error, "code", "") or type(error).__name__,
                attempt=self._attempts,
                delay_seconds=delay,
                message=str(error),
                shard=self._shard,
            )
        )

    def _is_to_report(self) -> bool:
        """Say whether a failure is worth a warning now.

        A single one is not. Several in a row are what somebody who waits for an unreachable service
        must be able to see, once a minute; being asked to wait is that after a minute.
        """
        now = self._clock.monotonic()
        if now - self._reported_at < _REPORT_PERIOD_SECONDS:
            return False
        began_at = now if self._began_at is None else self._began_at
        is_lasting = now - began_at >= _REPORT_PERIOD_SECONDS
        if (self._attempts if is_lasting else self._unexpected) < _FAILURES_TO_REPORT:
            return False
        self._reported_at = now
        return True

    def reset(self) -> None:
        """Allow everything again: the operation has succeeded."""
        self._began_at = None
        self._attempts = self._failures = self._unexpected = 0

    def _exhausted(self, error: Exception, began_at: float) -> RetriesExhaustedError:
        elapsed = self._clock.monotonic() - began_at
        operation, code = getattr(error, "operation", ""), getattr(error, "code", "")
        return RetriesExhaustedError(
            f"{operation or 'the call'} failed {self._attempts} times in {elapsed:.1f} s, "
            f"the last time with {code or type(error).__name__}: {str(error).rstrip('.')}. "
            f"{self._advice}",
            attempts=self._attempts,
            elapsed_seconds=elapsed,
        )


async def call_with_retries(
    call: Callable[[], Awaitable[_T]],
    *,
    policy: RetryPolicy,
    clock: Clock,
    events: EventSink = log_event,
) -> _T:
    """Make ``call`` until it succeeds, fails for good, or ``policy`` allows no more.

    Args:
        call: makes one attempt; it raises :class:`ServiceError` with ``retryable`` set.
        policy: how often and after which delays.
        clock: what the delays are slept on.
        events: where each repetition is reported.

    Raises:
        ServiceError: the error of a call that is not retryable, at once.
        RetriesExhaustedError: the policy allows no more repetitions.
    """
    budget = RetryBudget(policy, clock, began_at=clock.monotonic(), events=events)
    while True:
        try:
            return await call()
        except ServiceError as error:
            delay = budget.delay_after(error)
        await clock.sleep(delay)
