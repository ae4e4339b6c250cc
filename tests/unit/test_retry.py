"""How often a call is repeated, and after which delays."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.errors import (
    AccessDeniedError,
    InternalServiceError,
    LimitExceededError,
    ResourceInUseError,
    RetriesExhaustedError,
    ServiceError,
    ThroughputExceededError,
)
from kinesis_publishers.retry import RetryBudget, RetryPolicy, call_with_retries
from kinesis_publishers.testing.fakes import finish

if TYPE_CHECKING:
    from kinesis_publishers.testing.manual_clock import ManualClock

POLICIES = st.builds(
    RetryPolicy,
    max_retries=st.integers(0, 50),
    base_seconds=st.floats(0, 10),
    max_seconds=st.floats(0, 10),
    exponent=st.floats(0, 10),
)
POLICY = RetryPolicy(max_retries=3, base_seconds=0.3, max_seconds=1.0, exponent=1.5)


class Service:
    """Fails with the given errors, one call each, and then answers."""

    def __init__(self, *errors: ServiceError) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def failure(kind: type[ServiceError] = InternalServiceError) -> ServiceError:
    return kind("it did not work", operation="ListShards", code="InternalFailure")


@given(POLICIES, st.integers(0, 100_000))
def test_a_delay_lies_between_zero_and_its_bound(policy: RetryPolicy, attempt: int):
    bound = policy.delay_bound_seconds(attempt)
    assert 0 <= policy.delay_seconds(attempt) <= bound <= policy.max_seconds


@pytest.mark.parametrize(("attempt", "bound"), [(0, 0.3), (1, 0.45), (2, 0.675), (3, 1.0)])
def test_the_bound_grows_by_the_exponent_up_to_the_maximum(attempt: int, bound: float):
    assert POLICY.delay_bound_seconds(attempt) == pytest.approx(bound)


def test_the_jitter_is_full():
    delays = [POLICY.delay_seconds(5) for _ in range(2000)]
    assert min(delays) < 0.05
    assert max(delays) > 0.95
    assert 0.45 < sum(delays) / len(delays) < 0.55


@pytest.mark.parametrize("name", ["max_retries", "base_seconds", "max_seconds", "exponent"])
def test_a_policy_refuses_negative_numbers(name: str):
    numbers = {"max_retries": 1, "base_seconds": 1.0, "max_seconds": 1.0, "exponent": 1.0}
    with pytest.raises(ValueError, match=name):
        RetryPolicy(**{**numbers, name: -1})


async def test_a_call_that_succeeds_is_made_once(manual_clock: ManualClock):
    service = Service()
    answer = await call_with_retries(service, policy=POLICY, clock=manual_clock)
    assert (answer, service.calls, manual_clock.sleeps) == ("answer", 1, [])


async def test_a_retryable_failure_is_repeated_after_a_delay(manual_clock: ManualClock):
    service = Service(failure(), failure())
    work = call_with_retries(service, policy=POLICY, clock=manual_clock)
    assert await finish(work, manual_clock) == "answer"
    assert service.calls == 3
    assert len(manual_clock.sleeps) == 2
    assert manual_clock.sleeps[0] <= 0.3
    assert manual_clock.sleeps[1] <= 0.45


async def test_a_failure_that_is_not_retryable_is_raised_at_once(manual_clock: ManualClock):
    error = failure(AccessDeniedError)
    service = Service(error)
    with pytest.raises(AccessDeniedError) as caught:
        await call_with_retries(service, policy=POLICY, clock=manual_clock)
    assert caught.value is error
    assert (service.calls, manual_clock.sleeps) == (1, [])


async def test_the_last_error_is_quoted_and_what_to_do_follows(manual_clock: ManualClock):
    service = Service(*(InternalServiceError("AWS failed.", code="503") for _ in range(10)))
    with pytest.raises(
        RetriesExhaustedError, match=r"^AWS failed\. .* with 503\. Raise its maxretries"
    ):
        await finish(call_with_retries(service, policy=POLICY, clock=manual_clock), manual_clock)


@pytest.mark.parametrize("is_start", [False, True])
async def test_the_advice_names_the_option_that_is_the_limit(
    manual_clock: ManualClock, *, is_start: bool
):
    policy = evolve(POLICY, option="kinesis.checkpoint.store.maxretries")
    service = Service(*(failure() for _ in range(10)))
    work = call_with_retries(service, policy=policy, clock=manual_clock, is_start=is_start)
    with pytest.raises(RetriesExhaustedError) as caught:
        await finish(work, manual_clock)
    assert policy.option in str(caught.value)
    assert ("has not answered once" in str(caught.value)) is is_start


async def test_the_retries_are_exhausted_after_the_configured_number(manual_clock: ManualClock):
    service = Service(*(failure() for _ in range(10)))
    with pytest.raises(RetriesExhaustedError, match="ListShards failed 4 times") as caught:
        await finish(call_with_retries(service, policy=POLICY, clock=manual_clock), manual_clock)
    assert service.calls == caught.value.attempts == 4
    assert isinstance(caught.value.__cause__, InternalServiceError)
    assert caught.value.elapsed_seconds == pytest.approx(sum(manual_clock.sleeps))


async def test_a_call_that_takes_its_time_before_it_fails_is_counted(manual_clock: ManualClock):
    async def times_out() -> None:
        await manual_clock.sleep(60)
        raise failure()

    policy = RetryPolicy(max_retries=0, base_seconds=1, max_seconds=1, exponent=1)
    with pytest.raises(RetriesExhaustedError, match=r"failed once in 60\.0 s"):
        await finish(call_with_retries(times_out, policy=policy, clock=manual_clock), manual_clock)


async def test_an_unknown_error_is_not_repeated(manual_clock: ManualClock):
    calls = []

    async def broken() -> None:
        calls.append(1)
        raise LookupError

    with pytest.raises(LookupError):
        await call_with_retries(broken, policy=POLICY, clock=manual_clock)
    assert calls == [1]


def test_an_endless_call_is_repeated_after_any_error_with_a_warning(
    manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    budget = RetryBudget(POLICY, manual_clock)
    for _ in range(3 * POLICY.max_retries):
        budget.delay_after(OSError("of a custom plane"), is_endless=True)
        budget.delay_after(failure(AccessDeniedError), is_endless=True)
    assert "of a custom plane" in caplog.text


async def test_what_fails_for_an_hour_is_warned_of_once_a_minute(
    manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    budget = RetryBudget(POLICY, manual_clock)
    for _ in range(360):
        budget.delay_after(failure(), is_endless=True)
        await manual_clock.advance(10)
    assert 58 <= len(caplog.records) <= 60


@pytest.mark.parametrize("kind", [ThroughputExceededError, LimitExceededError, ResourceInUseError])
async def test_being_asked_to_wait_for_minutes_is_warned_of_once_a_minute(
    manual_clock: ManualClock, caplog: pytest.LogCaptureFixture, kind: type[ServiceError]
):
    budget = RetryBudget(POLICY, manual_clock)
    for _ in range(180):
        budget.delay_after(failure(kind), is_endless=True)
        await manual_clock.advance(1)
    warned = [re.findall(r"retry (\d+) in ", message) for message in caplog.messages]
    assert warned == [["61"], ["121"]]


async def test_a_call_that_is_asked_to_wait_periodically_is_nothing_to_warn_of(
    manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    budget = RetryBudget(POLICY, manual_clock)
    for _ in range(60):
        for _ in range(4):
            budget.delay_after(failure(ThroughputExceededError), is_endless=True)
            await manual_clock.advance(10)
        budget.reset()
    assert caplog.text == ""


async def test_a_budget_is_used_up_by_as_many_failures_as_there_are_retries(
    manual_clock: ManualClock,
):
    budget, last = RetryBudget(POLICY, manual_clock), failure()
    for bound in (0.3, 0.45, 0.675):
        assert 0 <= budget.delay_after(failure()) <= bound
        await manual_clock.advance(1)
    with pytest.raises(RetriesExhaustedError, match="ListShards failed 4 times") as caught:
        budget.delay_after(last)
    assert caught.value.__cause__ is last
    assert (caught.value.attempts, caught.value.elapsed_seconds) == (4, 3.0)


async def test_a_budget_that_is_reset_allows_everything_again(manual_clock: ManualClock):
    budget = RetryBudget(POLICY, manual_clock)
    for _ in range(3):
        for _ in range(POLICY.max_retries):
            budget.delay_after(failure())
        budget.reset()
        await manual_clock.advance(3600)
    assert budget.delay_after(failure()) <= 0.3
    for _ in range(2):
        budget.delay_after(failure())
    with pytest.raises(RetriesExhaustedError) as caught:
        budget.delay_after(failure())
    assert caught.value.elapsed_seconds == 0


def test_an_endless_error_uses_up_no_retry(manual_clock: ManualClock):
    budget = RetryBudget(POLICY, manual_clock)
    for _ in range(50):
        budget.delay_after(failure(ThroughputExceededError), is_endless=True)
    for _ in range(POLICY.max_retries):
        budget.delay_after(failure())
    with pytest.raises(RetriesExhaustedError, match="failed 54 times"):
        budget.delay_after(failure())


def test_endless_errors_are_still_backed_off_up_to_the_maximum(manual_clock: ManualClock):
    budget = RetryBudget(POLICY, manual_clock)
    throttle = failure(ThroughputExceededError)
    delays = [budget.delay_after(throttle, is_endless=True) for _ in range(100)]
    assert max(delays) <= POLICY.max_seconds
    # A hundred delays of half a second on average.
    assert 30 < sum(delays) < 70


def test_failures_are_warned_of_from_the_second_one_on(
    manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    budget = RetryBudget(POLICY, manual_clock)
    with caplog.at_level(logging.DEBUG, "kinesis_publishers.retry"):
        budget.delay_after(failure(ThroughputExceededError), is_endless=True)
        budget.delay_after(failure())
        assert caplog.records == []
        budget.delay_after(failure())
        budget.delay_after(failure())
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "retry 3 in " in caplog.text


def patient(seconds: float = 300.0, **numbers: float) -> RetryPolicy:
    """Return a policy that repeats what fails for so long."""
    return evolve(POLICY, outage_seconds=seconds, **numbers)


class Outage:
    """Fails until an instant of the clock, and then answers."""

    def __init__(self, clock: ManualClock, until: float, error: ServiceError | None = None) -> None:
        self.clock = clock
        self.until = until
        self.error = error or failure()
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.clock.monotonic() < self.until:
            raise self.error
        return "answer"


async def test_an_outage_that_is_shorter_than_the_patience_is_ridden_through(
    manual_clock: ManualClock,
):
    service = Outage(manual_clock, 299)
    work = call_with_retries(service, policy=patient(), clock=manual_clock)
    assert await finish(work, manual_clock) == "answer"
    # Backed off to half a second on average: neither hammered nor asked too seldom.
    assert 300 < service.calls < 1200


async def test_an_outage_that_outlasts_the_patience_is_given_up(manual_clock: ManualClock):
    work = call_with_retries(Outage(manual_clock, 9999), policy=patient(), clock=manual_clock)
    with pytest.raises(
        RetriesExhaustedError, match=r"Raise kinesis\.retry\.outagemillis"
    ) as caught:
        await finish(work, manual_clock)
    assert 300 <= caught.value.elapsed_seconds <= 302


async def test_the_number_of_retries_counts_where_it_takes_longer_than_the_patience(
    manual_clock: ManualClock,
):
    service = Service(*(failure() for _ in range(10)))
    work = call_with_retries(service, policy=patient(0.001, max_retries=10), clock=manual_clock)
    assert await finish(work, manual_clock) == "answer"


async def test_a_service_that_has_never_answered_is_given_up_soon(
    manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    policy = patient(max_retries=1000, start_seconds=30.0)
    work = call_with_retries(
        Outage(manual_clock, 9999), policy=policy, clock=manual_clock, is_start=True
    )
    with pytest.raises(
        RetriesExhaustedError, match=r"not answered once: set kinesis\.retry\.outagemillis"
    ) as error:
        await finish(work, manual_clock)
    assert 30 <= error.value.elapsed_seconds <= 32
    assert "until 00:00:30: it did not work" in caplog.text


async def test_a_service_that_asks_to_wait_has_answered(manual_clock: ManualClock):
    service = Outage(manual_clock, 200, failure(ResourceInUseError))
    policy = patient(start_seconds=30.0)
    work = call_with_retries(service, policy=policy, clock=manual_clock, is_start=True)
    assert await finish(work, manual_clock) == "answer"


async def test_an_outage_is_reported_at_once_then_each_minute_and_at_its_end(
    manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    work = call_with_retries(Outage(manual_clock, 150), policy=patient(), clock=manual_clock)
    await finish(work, manual_clock)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 4
    assert all(
        one.startswith("ListShards has failed since 00:00:00 UTC, retry ")
        and one.endswith(" s, until 00:05:00: it did not work")
        for one in said[:3]
    )
    assert said[3] == "ListShards works again."


async def test_a_first_failure_that_took_long_is_reported_at_once(
    manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    async def hangs() -> None:
        await manual_clock.sleep(3)
        raise failure()

    policy = patient(0, max_retries=1)
    with pytest.raises(RetriesExhaustedError):
        await finish(call_with_retries(hangs, policy=policy, clock=manual_clock), manual_clock)
    assert [record.getMessage()[:46] for record in caplog.records] == [
        "ListShards has failed since 00:00:00 UTC, retr"
    ]


async def test_hundreds_that_fail_together_say_so_together(
    manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    budgets = [RetryBudget(patient(), manual_clock) for _ in range(300)]
    for _ in range(5):
        for budget in budgets:
            budget.delay_after(failure())
        await manual_clock.advance(1)
    for budget in budgets:
        budget.reset()
    assert [record.getMessage().split(" ")[1] for record in caplog.records] == ["has", "works"]


def test_a_failure_that_was_not_reported_ends_without_a_word(
    manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    budget = RetryBudget(patient(), manual_clock)
    budget.delay_after(failure())
    budget.reset()
    assert caplog.text == ""
