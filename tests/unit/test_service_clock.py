"""This machine's clock, corrected by what the service's answers say."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.clock import ServiceClock, SystemClock
from kinesis_publishers.testing.manual_clock import ManualClock

SECONDS = st.floats(-900, 900)


def answer(clock: ServiceClock, machine: ManualClock, ahead: float, took: float = 0.0) -> None:
    """Let an answer come from a service whose clock is so far ahead."""
    told = machine.now() + timedelta(seconds=ahead)
    sent_at = machine.now() - timedelta(seconds=took)
    clock.observe(format_datetime(told.replace(microsecond=0), usegmt=True), sent_at=sent_at)


def skew_of(clock: ServiceClock) -> float:
    return clock.skew.total_seconds()


@given(SECONDS, st.lists(st.tuples(st.floats(0, 2), st.floats(0, 1)), min_size=1, max_size=20))
async def test_it_is_never_ahead_of_a_service_whose_clock_differs_by_more_than_a_second(
    ahead: float, answers: list[tuple[float, float]]
):
    machine = ManualClock()
    clock = ServiceClock(machine)
    for pause, took in answers:
        await machine.advance(pause)
        answer(clock, machine, ahead, took)
    if abs(ahead) > 2:
        assert ahead - 1.001 <= skew_of(clock) <= ahead + 0.001
    else:
        assert skew_of(clock) <= max(0.0, ahead) + 0.001


async def test_a_clock_that_no_answer_contradicts_is_trusted():
    machine = ManualClock()
    clock = ServiceClock(machine)
    assert clock.now() == machine.now()
    for _ in range(100):
        await machine.advance(0.37)
        answer(clock, machine, 0.0, took=0.1)
        assert clock.now() == machine.now()


@pytest.mark.parametrize("date", [None, "", "yesterday", "Thu, 32 Jan 2026 00:00:00 GMT"])
def test_a_header_that_is_no_date_says_nothing(date: str | None):
    machine = ManualClock()
    clock = ServiceClock(machine)
    clock.observe(date, sent_at=machine.now())
    assert clock.now() == machine.now()


def test_one_answer_that_contradicts_all_others_is_left_out():
    machine = ManualClock()
    clock = ServiceClock(machine)
    answer(clock, machine, 0.0)
    answer(clock, machine, -86_400.0)
    answer(clock, machine, 0.0)
    answer(clock, machine, -3600.0)
    assert clock.now() == machine.now()


def test_a_clock_that_is_put_right_is_noticed_with_the_second_answer():
    machine = ManualClock()
    clock = ServiceClock(machine)
    answer(clock, machine, 20.0)
    answer(clock, machine, 0.0)
    answer(clock, machine, 0.0)
    assert clock.now() == machine.now()


async def test_old_answers_do_not_bind_a_clock_that_drifts():
    machine = ManualClock()
    clock = ServiceClock(machine)
    answer(clock, machine, 20.0)
    await machine.advance(3600)
    answer(clock, machine, 20.9)
    await machine.advance(3600)
    answer(clock, machine, 21.8)
    assert 20.8 <= skew_of(clock) <= 21.8


def test_a_difference_is_warned_about_once_and_again_when_it_changes_much(
    caplog: pytest.LogCaptureFixture,
):
    machine = ManualClock()
    clock = ServiceClock(machine)
    for ahead in (0.9, 20.0, 20.0, 20.1, 21.0, 20.0, -600.0, -600.0, -601.0):
        answer(clock, machine, ahead)
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert "20 s behind the service's" in warnings[0]
    assert "ahead of the service's" in warnings[1]
    assert "NTP" in warnings[1]


def test_a_clock_is_corrected_by_one_and_not_twice():
    clock = ServiceClock(ManualClock())
    assert ServiceClock.around(clock) is clock


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="needs a clock of Linux")
def test_the_clock_of_the_machine_goes_on_while_that_is_suspended():
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now = SystemClock().monotonic()
    assert before <= now <= time.clock_gettime(time.CLOCK_BOOTTIME)
