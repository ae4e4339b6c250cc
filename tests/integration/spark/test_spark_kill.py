"""Exactly once although the driver is killed again and again, with reshards going on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from attrs import define, field

from tests.integration.spark.drivers import Driver, read_files
from tests.integration.spark.spark_harness import FROM_THE_START, numbered

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_STREAM = "payments"
_PER_KILL = 3000
_DEADLINE_SECONDS = 180.0

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]


@define
class KilledQuery:
    """A query whose driver is killed at a random moment of each round."""

    server: LocalKinesis
    folder: Path
    chance: Random
    put: int = 0
    output: Path = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.output = self.folder / "output"
        self.output.mkdir()
        self.server.create_stream(_STREAM, 4)

    def start(self, planner: str) -> Driver:
        properties = {
            **self.server.properties(_STREAM),
            **FROM_THE_START,
            "kinesis.shard.discovery.intervalmillis": "500",
            "kinesis.spark.planner": planner,
        }
        if planner == "prefetch":
            # Under ranges a limit is counted out, and records would never be jumped over.
            properties["maxRecordsPerTrigger"] = "700"
        if planner == "auto":
            # What is put at once fills half of it, so that the planners take turns.
            properties["kinesis.pending.maxrecords"] = "400"
        return Driver(properties, self.folder / "checkpoint", self.output)

    def put_more(self, count: int) -> None:
        self.server.put_many(_STREAM, numbered(self.put, self.put + count))
        self.put += count

    def run_until_killed(self, planner: str, *, reshards: bool) -> None:
        """Let it work, then kill it.

        The moment of death is random, but every round gets to work: a driver that dies while Spark
        still starts proves nothing.
        """
        files, most = self._files(), self.put + _PER_KILL
        driver = self.start(planner)
        try:
            deadline = time.monotonic() + _DEADLINE_SECONDS
            while self._files() <= files:
                if self.put < most:
                    self.put_more(100)
                driver.wait(0.05)
                assert time.monotonic() < deadline, driver.said
            self.put_more(_PER_KILL)
            if reshards:
                self.server.reshard(_STREAM, self.chance.choice([2, 3, 5, 8]))
            driver.wait(self.chance.uniform(0.0, 2.0))
        finally:
            driver.kill()

    def _files(self) -> int:
        return len(list(self.output.glob("*.json")))

    def run_to_the_end(self, planner: str) -> None:
        driver = self.start(planner)
        try:
            seen, last_change = -1, time.monotonic()
            while (count := len(read_files(self.output))) < self.put:
                if count != seen:
                    seen, last_change = count, time.monotonic()
                driver.wait(0.2)
                waited = time.monotonic() - last_change
                assert waited < _DEADLINE_SECONDS, f"{count} of {self.put} came, then no more"
        finally:
            driver.kill()

    def check(self) -> None:
        rows = read_files(self.output)
        assert sorted(int(data) for *_, data in rows) == list(range(self.put))
        assert len({(shard, number) for shard, number, *_ in rows}) == self.put
        last_of_key: dict[str, int] = {}
        for _, _, key, data in rows:
            assert int(data) > last_of_key.get(key, -1), f"{key} out of order"
            last_of_key[key] = int(data)


@pytest.mark.parametrize(
    "planners",
    [
        ["prefetch", "ranges", "auto"],
        # Each goes on after itself and after another one.
        *(
            pytest.param(planners, marks=pytest.mark.soak)
            for planners in (
                ["prefetch", "auto", "auto", "ranges", "ranges", "prefetch", "prefetch"],
                ["ranges", "auto", "prefetch", "prefetch", "auto", "ranges", "ranges"],
            )
        ),
    ],
    ids=" ".join,
)
def test_each_record_is_there_once_and_in_order_after_every_kill(
    local_kinesis: LocalKinesis, tmp_path: Path, chance: Random, planners: list[str]
) -> None:
    query = KilledQuery(local_kinesis, tmp_path, chance)
    *killed, last = planners
    for number, planner in enumerate(killed):
        query.run_until_killed(planner, reshards=number % 2 == 0)
    query.run_to_the_end(last)
    query.check()
