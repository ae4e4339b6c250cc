"""Exactly once although the driver is killed again and again, with a reshard going on."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest
from drivers import Driver, read_files
from spark_harness import FROM_THE_START, numbered

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_KILLS = 10
_PER_KILL = 4000
_DEADLINE_SECONDS = 180.0

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_each_record_is_there_once_and_in_order_after_ten_kills(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - a failure must be repeatable
    chance = random.Random(seed)
    output = tmp_path / "output"
    output.mkdir()
    local_kinesis.create_stream("payments", 4)
    properties = {
        **local_kinesis.properties("payments"),
        **FROM_THE_START,
        "kinesis.shard.discovery.intervalmillis": "500",
        "maxRecordsPerTrigger": "700",
    }
    put = 0
    for round_number in range(_KILLS):
        files_before = len(list(output.glob("*.json")))
        driver = Driver(properties, tmp_path / "checkpoint", output)
        try:
            # The moment of death is random, but every round gets to work: a driver that dies while
            # Spark still starts proves nothing.
            deadline = time.monotonic() + _DEADLINE_SECONDS
            while len(list(output.glob("*.json"))) <= files_before:
                driver.wait(0.05)
                if put < (round_number + 1) * _PER_KILL:
                    local_kinesis.put_many("payments", numbered(put, put + 100))
                    put += 100
                assert time.monotonic() < deadline, driver.said
            local_kinesis.put_many("payments", numbered(put, put + _PER_KILL))
            put += _PER_KILL
            if round_number % 3 == 1:
                local_kinesis.reshard("payments", chance.choice([2, 3, 5, 8]))
            driver.wait(chance.uniform(0.0, 2.0))
        finally:
            driver.kill()
    driver = Driver(properties, tmp_path / "checkpoint", output)
    try:
        seen, last_change = -1, time.monotonic()
        while (count := len(read_files(output))) < put:
            if count != seen:
                seen, last_change = count, time.monotonic()
            driver.wait(0.2)
            waited = time.monotonic() - last_change
            assert waited < _DEADLINE_SECONDS, f"{count} of {put} came, then no more"
    finally:
        driver.kill()

    rows = read_files(output)
    assert sorted(int(data) for *_, data in rows) == list(range(put))
    assert len({(shard, number) for shard, number, *_ in rows}) == put
    last_of_key: dict[str, int] = {}
    for _, _, key, data in rows:
        assert int(data) > last_of_key.get(key, -1), f"seed {seed}: {key} out of order"
        last_of_key[key] = int(data)
