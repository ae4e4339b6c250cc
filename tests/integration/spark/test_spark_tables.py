"""Each record once in Delta and Iceberg tables, although the queries of the page are killed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.spark.drivers import Driver
from tests.integration.spark.spark_harness import numbered
from tests.integration.spark.tables_driver import JARS, VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_PROGRAM = Path(__file__).with_name("tables_driver.py")
_WRITERS = ("append_to_delta", "append_to_iceberg", "merge_into_iceberg")
_TOO_SLOW = "Timed out while waiting for the Python worker to connect back"
_DEADLINE_SECONDS = 600.0

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        VERSION not in JARS,
        reason=f"Delta and Iceberg have no release for PySpark {VERSION}: tox -e spark40",
    ),
]


class Tables:
    """The queries of the page over one stream, started again after each kill."""

    def __init__(self, server: LocalKinesis, folder: Path) -> None:
        self._server = server
        self._folder, self._signals = folder / "tables", folder / "signals"
        self._folder.mkdir()
        self._signals.mkdir()
        self.places: list[tuple[str, str]] = []

    def put_more(self) -> None:
        count = len(self.places)
        self.places += self._server.put_many("orders", numbered(count, count + 20))

    def begun(self, writer: str) -> list[int]:
        """Return the micro-batches with which a function of the page was called."""
        path = self._signals / writer
        lines = path.read_text().splitlines() if path.exists() else []
        return [int(line.split()[1]) for line in lines]

    def held(self, writer: str) -> int | None:
        """Return the micro-batch that is in the table and not in Spark's log."""
        path = self._signals / f"{writer}-held"
        return int(path.read_text()) if path.exists() and path.read_text() else None

    def run_until(self, condition: Callable[[], bool], **settings: str) -> None:
        """Run the queries until the condition holds, then kill all processes.

        PySpark 4.0 gives a Python process ten seconds to start, which a loaded machine may need:
        the queries are then started again, as by any supervisor.
        """
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not self._has_run_until(condition, settings, deadline):
            pass

    def _has_run_until(
        self, condition: Callable[[], bool], settings: dict[str, str], deadline: float
    ) -> bool:
        driver = Driver(settings, self._folder, self._signals, program=_PROGRAM)
        try:
            seen = -1
            while not condition():
                begun = sum(len(self.begun(writer)) for writer in _WRITERS)
                if begun != seen and "rows" not in settings:
                    # What is put after a micro-batch has begun is in a later one.
                    seen = begun
                    self.put_more()
                assert time.monotonic() < deadline, driver.said
                driver.wait(0.02)
        except AssertionError:
            if _TOO_SLOW in driver.said and time.monotonic() < deadline:
                return False
            raise
        finally:
            driver.kill()
        return True

    def rows(self) -> dict[str, list[list[str]]]:
        """Let the queries catch up; return what is in the tables."""
        self.put_more()
        path = self._signals / "rows.json"
        self.run_until(path.exists, rows=str(len(self.places)))
        found: dict[str, list[list[str]]] = json.loads(path.read_text())
        return found


@pytest.fixture
def tables(local_kinesis: LocalKinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    # The page names no endpoint.
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", local_kinesis.endpoint_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")
    local_kinesis.create_stream("orders", 2)
    return Tables(local_kinesis, tmp_path)


def test_each_record_is_in_each_table_once_after_kills(tables: Tables) -> None:
    tables.run_until(lambda: all(tables.held(writer) for writer in _WRITERS), hold="yes")
    held = {writer: tables.held(writer) or 0 for writer in _WRITERS}

    # In the middle of a later micro-batch, of one query at least.
    tables.run_until(
        lambda: all(tables.begun(writer)[-1] > held[writer] + 1 for writer in _WRITERS)
    )
    for writer in _WRITERS:
        assert tables.begun(writer).count(held[writer]) >= 2, "it was not repeated"

    rows = tables.rows()
    expected = sorted([*place, str(number)] for number, place in enumerate(tables.places))
    for writer in _WRITERS:
        assert sorted(rows[writer]) == expected, writer
