"""Decides how often, and after which delay, a call is repeated; the only place that does."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

import backoff
from attrs import define, field, frozen, validators

from kinesis_publishers.clock import Clock
from kinesis_publishers.errors import (
    LimitExceededError,
    ResourceInUseError,
    RetriesExhaustedError,
    ServiceError,
    ThroughputExceededError,
)
from kinesis_publishers.events import CallRetried, EventSink, log_event
from kinesis_publishers.model import ShardKey

_LOGGER = logging.getLogger(__name__)

_T = TypeVar("_T")

# A single failure needs no attention unless it took this long.
_FAILURES_TO_REPORT = 2
_PROMPT_SECONDS = 2.0
_REPORT_PERIOD_SECONDS = 60.0
_OUTAGE = "kinesis.retry.outagemillis"
_ADVICE = "Raise {} if the service is expected to recover."
_ADVICE_AT_START = "The service has not answered once: set {} to wait longer for it."
# A connection error already says so.
_ADVICE_ON_ADDRESS = "Check its address (aws.region, aws.endpoint or that of the checkpoint store)."
# Answers that mean "later" need no attention unless they persist.
_REQUESTS_TO_WAIT = (ThroughputExceededError, LimitExceededError, ResourceInUseError)


@frozen(kw_only=True)
class RetryPolicy:
    """How often a call is repeated, and how long to wait before each repetition.

    ``delay = random[0, 1) * min(max_seconds, base_seconds * exponent ** attempt)``: "full jitter",
    the rule of Flink's connector, so that competing processes spread out.

    Attributes:
        max_retries: repetitions after the first call; 0 makes exactly one call, unless
            ``outage_seconds`` allows more.
        base_seconds: the upper bound of the first delay.
        max_seconds: the upper bound of every delay.
        exponent: the factor by which the bound grows with each attempt.
        outage_seconds: until consecutive failures have lasted this long, the call is repeated
            regardless of ``max_retries``.
        start_seconds: replaces both limits while the service has not answered once, so that a wrong
            endpoint is noticed soon; ``None`` keeps them.
        option: what ``max_retries`` is called in properties, for the advice of an error.
    """

    max_retries: int = field(default=5, validator=validators.ge(0))
    base_seconds: float = field(default=0.2, validator=validators.ge(0.0))
    max_seconds: float = field(default=10.0, validator=validators.ge(0.0))
    exponent: float = field(default=2.0, validator=validators.ge(0.0))
    outage_seconds: float = field(default=0.0, validator=validators.ge(0.0))
    start_seconds: float | None = None
    option: str = field(default="its maxretries", eq=False)

    def delay_bound_seconds(self, attempt: int) -> float:
        """Return the longest delay before repetition ``attempt`` (counted from 0), in seconds."""
        try:
            grown = self.base_seconds * self.exponent**attempt
        except OverflowError:
            return self.max_seconds
        return min(self.max_seconds, grown)

    def delay_seconds(self, attempt: int) -> float:
        """Return a random delay before repetition ``attempt`` (counted from 0), in seconds."""
        # Only this part of backoff is used: its decorators sleep by the system's clock, and know
        # neither outages nor the budget that the shards of a fetcher share.
        return float(backoff.full_jitter(self.delay_bound_seconds(attempt)))


# Shards that fail together are reported once. By clock, which all parts of a fetcher share: when an
# operation was last reported as failing, and whether its recovery must still be reported.
_REPORTS: Final[WeakKeyDictionary[Clock, dict[str, tuple[float, bool]]]] = WeakKeyDictionary()


@define(eq=False)
class RetryBudget:
    """The retries that a policy still allows one operation; the caller waits.

    It is for callers that must release something before they wait. Others use
    :func:`call_with_retries`.

    Args:
        began_at: when the first call began, in seconds of the monotonic clock; by default time
            counts from the first failure.
        events: receives a report of each repetition.
        shard: the shard that the operation is about, if any.
        advice: what to do when all retries are used up; the default names the options to raise.
        is_start: whether the service has never answered before.
    """

    _policy: RetryPolicy
    _clock: Clock
    _began_at: float | None = field(default=None, kw_only=True)
    _events: EventSink = field(default=log_event, kw_only=True)
    _shard: ShardKey | None = field(default=None, kw_only=True)
    _advice: str | None = field(default=None, kw_only=True)
    _is_start: bool = field(default=False, kw_only=True)
    _attempts: int = field(default=0, init=False)
    _failures: int = field(default=0, init=False)
    _unexpected: int = field(default=0, init=False)
    # The failing operation, once this or another budget has reported its failure.
    _failing: str | None = field(default=None, init=False)

    def delay_after(self, error: Exception, *, is_endless: bool = False) -> float:
        """Return the delay, in seconds, before the failed call is made again.

        Args:
            is_endless: whether to repeat the call until it succeeds, without using up retries: a
                throttle is a request to slow down, not a failure. The delays grow nevertheless.

        Raises:
            Exception: ``error`` itself, if it is not retryable.
            RetriesExhaustedError: the policy allows no more repetitions.
        """
        if not (is_endless or getattr(error, "retryable", False)):
            raise error
        policy, now = self._policy, self._clock.monotonic()
        self._began_at = now if self._began_at is None else self._began_at
        elapsed = now - self._began_at
        delay = policy.delay_seconds(self._attempts)
        self._attempts += 1
        self._failures += not is_endless
        self._unexpected += not isinstance(error, _REQUESTS_TO_WAIT)
        start = self._start_seconds
        is_used_up = start is not None or self._failures > policy.max_retries
        seconds_left = (policy.outage_seconds if start is None else start) - elapsed
        limit = f"{policy.max_retries} times at most"
        if is_endless:
            limit = "as often as it takes"
        elif seconds_left > 0:
            limit = f"until {self._clock.now() + timedelta(seconds=seconds_left):%H:%M:%S}"
        elif is_used_up:
            raise self._exhausted(error, elapsed) from error
        self._report(error, delay, elapsed, limit)
        return delay

    @property
    def _is_unanswered(self) -> bool:
        """Whether the service has never answered; a throttle is an answer."""
        return self._is_start and self._unexpected == self._attempts

    @property
    def _start_seconds(self) -> float | None:
        return self._policy.start_seconds if self._is_unanswered else None

    def _report(self, error: Exception, delay: float, elapsed: float, limit: str) -> None:
        operation = getattr(error, "operation", "")
        if self._is_to_report(operation or "The call", elapsed):
            since = self._clock.now() - timedelta(seconds=elapsed)
            _LOGGER.warning(
                "%s has failed since %s UTC, retry %d in %.1f s, %s: %s",
                self._failing,
                f"{since:%H:%M:%S}",
                self._attempts,
                delay,
                limit,
                error,
            )
        self._events(
            CallRetried(
                operation=operation,
                code=getattr(error, "code", "") or type(error).__name__,
                attempt=self._attempts,
                delay_seconds=delay,
                message=str(error),
                shard=self._shard,
            )
        )

    def _is_to_report(self, operation: str, elapsed: float) -> bool:
        """Return whether to log a warning about a failure now.

        A single quick failure needs none. Several in a row need one at once and then one a minute;
        throttles need one after a minute.
        """
        failures_to_report = _FAILURES_TO_REPORT if elapsed < _PROMPT_SECONDS else 1
        if self._unexpected < failures_to_report and elapsed < _REPORT_PERIOD_SECONDS:
            return False
        if (self._start_seconds or math.inf) <= _PROMPT_SECONDS:
            return False  # The error that follows says the same.
        self._failing = operation
        reports, now = _REPORTS.setdefault(self._clock, {}), self._clock.monotonic()
        if now - reports.get(operation, (-math.inf, False))[0] < _REPORT_PERIOD_SECONDS:
            return False
        reports[operation] = now, True
        return True

    def reset(self) -> None:
        """Reset the retries: the operation has succeeded."""
        if self._failing is not None:
            reports = _REPORTS[self._clock]
            said_at, is_open = reports[self._failing]
            reports[self._failing] = said_at, False
            if is_open:
                # The level is that of the warning.
                _LOGGER.warning("%s works again.", self._failing)
        self._began_at = self._failing = None
        self._attempts = self._failures = self._unexpected = 0

    def _exhausted(self, error: Exception, elapsed: float) -> RetriesExhaustedError:
        operation, code = getattr(error, "operation", ""), getattr(error, "code", "")
        is_by_time = self._policy.outage_seconds or self._start_seconds is not None
        advice = (_ADVICE_AT_START if self._is_unanswered else _ADVICE).format(
            _OUTAGE if is_by_time else self._policy.option
        )
        if self._is_unanswered and "aws.endpoint" not in str(error):
            advice = f"{advice} {_ADVICE_ON_ADDRESS}"
        if "aws.cabundle" in str(error):
            advice = "Waiting longer does not help."
        times = "once" if self._attempts == 1 else f"{self._attempts} times"
        return RetriesExhaustedError(
            # The advice of the error comes first.
            f"{str(error).rstrip('.')}. {operation or 'The call'} failed {times} in "
            f"{elapsed:.1f} s, the last time with {code or type(error).__name__}. "
            f"{self._advice or advice}",
            attempts=self._attempts,
            elapsed_seconds=elapsed,
        )


async def call_with_retries(
    call: Callable[[], Awaitable[_T]],
    *,
    policy: RetryPolicy,
    clock: Clock,
    events: EventSink = log_event,
    is_start: bool = False,
) -> _T:
    """Make ``call`` until it succeeds, fails for good, or ``policy`` allows no more.

    Args:
        call: makes one attempt; it raises :class:`ServiceError` with ``retryable`` set.
        events: receives a report of each repetition.
        is_start: whether the service has never answered before.

    Raises:
        ServiceError: the error of a call that is not retryable, at once.
        RetriesExhaustedError: the policy allows no more repetitions.
    """
    budget = RetryBudget(
        policy, clock, began_at=clock.monotonic(), events=events, is_start=is_start
    )
    while True:
        try:
            answer = await call()
        except ServiceError as error:
            delay = budget.delay_after(error)
        else:
            budget.reset()
            return answer
        await clock.sleep(delay)
