"""Runs commands in this process, against a local Kinesis."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kinesis_publishers.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

__all__ = ["ORDERS", "RunCommand", "run_command", "run_without"]

ORDERS = "orders"


def run_command(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """Run a command to its end; what is not expected of it is raised here."""
    result = CliRunner().invoke(main, arguments, input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run_without(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command where ``module`` is not installed.

    It is a process of its own: modules that were imported here without it would remain, beside
    those of the same names that were imported with it.
    """
    code = (
        f"import sys; sys.modules[{module!r}] = None; "
        "from kinesis_publishers.cli.main import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


class RunCommand:
    """Runs commands with the properties of a stream of a local Kinesis.

    Args:
        server: the service.
        path: where to leave the properties.
    """

    def __init__(self, server: LocalKinesis, path: Path) -> None:
        self.server = server
        self.path = path
        pairs = server.properties(ORDERS) | {
            # What is throttled for a moment is asked for again at once.
            "kinesis.stream.registerstreamconsumer.backoff.base": "10ms",
            "kinesis.stream.registerstreamconsumer.backoff.max": "20ms",
        }
        path.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))

    def __call__(self, command: str, *arguments: str, stdin: str | bytes | None = None) -> Result:
        """Run ``command`` (of one or two words) with ``--config`` and ``arguments``."""
        return run_command(*command.split(), "--config", str(self.path), *arguments, stdin=stdin)


@pytest.fixture
def run(local_kinesis: LocalKinesis, tmp_path: Path) -> RunCommand:
    """A stream of two shards, and what runs commands on it."""
    local_kinesis.create_stream(ORDERS, 2)
    return RunCommand(local_kinesis, tmp_path / "local.properties")
