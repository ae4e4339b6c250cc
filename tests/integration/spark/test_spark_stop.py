"""Stopping a query in full flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.spark.processes import source_processes, wait_until_gone
from tests.integration.spark.spark_harness import FROM_THE_START

if TYPE_CHECKING:
    from tests.integration.spark.spark_harness import QueryRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_stopping_in_full_flow_leaves_no_process_behind(runner: QueryRunner, flights: str) -> None:
    wait_until_gone(source_processes())  # of earlier tests
    runner.server.put_many(flights, [(f"key-{n}", bytes(10_000)) for n in range(20_000)])
    with runner.run(**FROM_THE_START, maxRecordsPerTrigger="500") as running:
        running.wait_for_rows(1500)
        sources = source_processes()
        assert len(sources) == 1, "the source runs in a process of its own"
    wait_until_gone(sources)
