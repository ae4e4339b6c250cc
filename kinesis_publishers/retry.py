"""Owns retrying: the one place that decides how often and after which delay a call is repeated."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import backoff
from attrs import field, frozen, validators

from kinesis_publishers.errors import RetriesExhaustedError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesis_publishers.clock import Clock

__all__ = ["RetryPolicy", "call_with_retries"]

_LOGGER = logging.getLogger(__name__)

_T = TypeVar("_T")

_FAILURES_TO_REPORT = 3


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


async def call_with_retries(
    call: Callable[[], Awaitable[_T]],
    *,
    policy: RetryPolicy,
    clock: Clock,
    is_endless: Callable[[ServiceError], bool] = lambda _: False,
) -> _T:
    """Make ``call`` until it succeeds, fails for good, or ``policy`` allows no more.

    Args:
        call: makes one attempt; it raises :class:`ServiceError` with ``retryable`` set.
        policy: how often and after which delays.
        clock: what the delays are slept on.
        is_endless: says of a retryable error that it uses up no retry (a throttle is a request to
            slow down, not a failure).

    Raises:
        ServiceError: the error of a call that is not retryable, at once.
        RetriesExhaustedError: the policy allows no more repetitions.
    """
    started = clock.monotonic()
    attempt = failures = 0
    while True:
        try:
            return await call()
        except ServiceError as error:
            if not error.retryable:
                raise
            if not is_endless(error):
                failures += 1
            if failures > policy.max_retries:
                elapsed = clock.monotonic() - started
                raise RetriesExhaustedError(
                    f"{error.operation or 'the call'} failed {attempt + 1} times in "
                    f"{elapsed:.1f} s, the last time with {error.code or type(error).__name__}: "
                    f"{error}. Raise its maxretries or backoff options if the service is expected "
                    "to recover.",
                    attempts=attempt + 1,
                    elapsed_seconds=elapsed,
                ) from error
            delay = policy.delay_seconds(attempt)
            # A single failure is nothing to report. Several in a row are what somebody who waits
            # for an unreachable service must be able to see.
            level = logging.WARNING if failures >= _FAILURES_TO_REPORT else logging.DEBUG
            _LOGGER.log(level, "Retry %d in %.1f s: %s", attempt + 1, delay, error)
        await clock.sleep(delay)
        attempt += 1
