"""The command of the demo ends when it is told to."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kinesis_publishers_spark.demo import job, session
from kinesis_publishers_spark.demo.command import demo

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("at_the_end", [True, False])
def test_a_signal_ends_the_demo_where_it_checks_for_one(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, *, at_the_end: bool
) -> None:
    reached = []

    def run(report: object, check_signals: Callable[[], None], **_: int) -> bool:
        check_signals()
        signal.raise_signal(number)
        reached.append("the end of a call to the JVM")
        if not at_the_end:
            check_signals()
        reached.append("the end")
        return True

    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(session, "find_java_problem", lambda _: None)
    monkeypatch.setattr(job, "run_demo", run)
    result = CliRunner().invoke(demo, ["--flights", "1"])
    assert reached == ["the end of a call to the JVM", *["the end"] * at_the_end]
    assert result.output == "Interrupted: everything has been stopped and removed.\n"
    assert result.exit_code == 128 + number
