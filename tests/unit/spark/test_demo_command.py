"""The command of the demo: it ends when it is told to, and starts nothing without a Java."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kinesis_publishers_spark.demo import job, session
from kinesis_publishers_spark.demo.command import demo
from kinesis_publishers_spark.demo.session import find_java_problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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


def _fake_java(home: Path, script: str) -> dict[str, str]:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(home), "PATH": ""}


@pytest.mark.parametrize(
    "answer",
    [
        'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment',
        'openjdk version "21" 2023-09-19',
        'openjdk version "25-ea" 2025-09-16',
    ],
)
def test_a_recent_java_is_no_problem(tmp_path: Path, answer: str) -> None:
    assert find_java_problem(_fake_java(tmp_path, f"echo '{answer}' >&2")) is None


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version \"11.0.2\"' >&2",
            "is Java 11.0.2.",
        ),
        ("echo 'java version \"1.8.0_392\"' >&2", "is Java 1.8.0_392."),
        ("echo 'something else' >&2", "of an unknown version"),
        ("exit 1", "does not run"),
    ],
)
def test_an_unusable_java_is_named_with_the_remedy(tmp_path: Path, script: str, said: str) -> None:
    problem = find_java_problem(_fake_java(tmp_path, script))
    assert problem is not None
    assert said in problem
    assert str(tmp_path) in problem
    assert "apt-get install openjdk-17-jre-headless" in problem


def test_no_java_at_all_is_said_with_the_remedy(tmp_path: Path) -> None:
    problem = find_java_problem({"PATH": str(tmp_path)})
    assert problem is not None
    assert "none was found" in problem
    assert "brew install openjdk@17" in problem


def test_the_demo_ends_with_the_message_and_starts_nothing(tmp_path: Path) -> None:
    environ = _fake_java(tmp_path / "java", "exit 1") | {"TMPDIR": str(tmp_path / "empty")}
    result = CliRunner().invoke(demo, [], env=environ)
    assert result.exit_code == 1
    assert "apt-get install openjdk-17-jre-headless" in result.output
    assert "Reading the flights" not in result.output
