"""The course of the demo in the session of the tests; as a program, see ``test_demo``."""

from __future__ import annotations

import io
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from kinesis_publishers_spark.demo import job
from kinesis_publishers_spark.demo.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_every_flight_arrives_once_and_unchanged(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "open_session", lambda _: nullcontext(spark))
    shown = io.StringIO()
    report = Report(Console(file=shown, width=200))
    assert job.run_demo(report, lambda: None, shards=2, limit=500)
    assert "missing 0, repeated 0, different 0, unknown 0." in shown.getvalue()
