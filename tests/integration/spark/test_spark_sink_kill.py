"""Exactly once from Spark through Kinesis to Spark, although writer and reader are killed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.spark.drivers import Driver, read_files
from tests.integration.spark.spark_harness import FROM_THE_START, numbered
from tests.stored import user_records

if TYPE_CHECKING:
    from random import Random

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_COPIER = Path(__file__).with_name("sink_driver.py")
_MOST_BEHIND = 2000  # Records, so that a slow machine has no more to read than a fast one.
_DEADLINE_SECONDS = 180.0

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_each_record_arrives_once_although_writer_and_reader_are_killed(
    local_kinesis: LocalKinesis, tmp_path: Path, chance: Random, kills: int
) -> None:
    for stream in ("flights", "flights-copy"):
        local_kinesis.create_stream(stream, 2)
    put = 0

    def stored() -> int:
        return sum(map(len, local_kinesis.records("flights-copy").values()))

    def start(stream: str, **more: Any) -> Driver:
        """Start the one that copies, or the one that reads the copies."""
        properties = {**local_kinesis.properties(stream), **FROM_THE_START}
        if stream == "flights":
            properties["maxRecordsPerTrigger"] = "500"
            more["program"] = _COPIER
        else:
            properties["includeBatchMarker"] = "true"
        output = tmp_path / f"{stream}-output"
        output.mkdir(exist_ok=True)
        return Driver(properties, tmp_path / f"{stream}-checkpoint", output, **more)

    def arrived() -> list[int]:
        return [int(data) for *_, data in read_files(tmp_path / "flights-copy-output")]

    def put_more() -> None:
        nonlocal put
        local_kinesis.put_many("flights", numbered(put, put + 50))
        put += 50

    def kill_both() -> None:
        before, seen = stored(), len(arrived()) if put else 0
        writer, reader = start("flights"), start("flights-copy")
        deadline = time.monotonic() + _DEADLINE_SECONDS
        try:
            # In the middle of a micro-batch, which has been written in part.
            while stored() == before or len(arrived()) == seen:
                if put - len(arrived()) < _MOST_BEHIND:
                    put_more()
                writer.wait(0.1)
                reader.wait(0.0)
                assert time.monotonic() < deadline, writer.said + reader.said
            reader.wait(chance.uniform(0.0, 1.0))
            before = stored()
            put_more()
            while stored() == before:
                writer.wait(0.001)
        finally:
            writer.kill()
            reader.kill()

    def copied() -> int:
        """Return how many records the copy has once all have arrived."""
        # These are copied after the micro-batch that was killed has been repeated.
        put_more()
        writer, reader = start("flights"), start("flights-copy")
        try:
            deadline = time.monotonic() + _DEADLINE_SECONDS
            while len(set(arrived())) < put:
                writer.wait(0.2)
                reader.wait(0.0)
                assert time.monotonic() < deadline, writer.said + reader.said + f"{put=}"
            return len(user_records(local_kinesis, "flights-copy"))
        finally:
            writer.kill()
            reader.kill()

    for _ in range(kills):
        kill_both()
    # A slow machine may kill them between two micro-batches, which repeats nothing.
    while copied() == put:
        kill_both()
    assert sorted(arrived()) == list(range(put))
