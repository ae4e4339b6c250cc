"""Whether Spark will find a Java is known, and said, before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kinesis_publishers_spark.demo.command import demo
from kinesis_publishers_spark.demo.session import find_java_problem

if TYPE_CHECKING:
    from pathlib import Path


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
