"""The command of the demo ends when it is told to."""

from __future__ import annotations

import os
import signal
import sys
import weakref
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kinesis_publishers_spark.demo import job, session
from kinesis_publishers_spark.demo.command import demo

if TYPE_CHECKING:
    from collections.abc import Callable


class _JavaObject:
    """py4j tells Java in a callback of the garbage collector that an object is not needed."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_a_callback_of_the_garbage_collector_swallows_ends_it_too(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    swallowed = []

    def run(report: object, check_signals: Callable[[], None], **_: int) -> bool:
        check_signals()
        one = _JavaObject()
        reference = weakref.ref(one, lambda _: signal.raise_signal(number))
        del one
        assert reference() is None
        assert swallowed == [KeyboardInterrupt]
        check_signals()
        return True

    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(session, "find_java_problem", lambda _: None)
    monkeypatch.setattr(job, "run_demo", run)
    monkeypatch.setattr(sys, "unraisablehook", lambda one: swallowed.append(one.exc_type))
    result = CliRunner().invoke(demo, ["--flights", "1"])
    assert result.output == "Interrupted: everything has been stopped and removed.\n"
    assert result.exit_code == 128 + number
