"""The contract suites of kinesis-publishers, which every publisher must pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kinesis_replay import ReplayPublisherFactory
from recorded import record, replaying

from kinesis_publishers.testing.contracts import (
    FactorySubject,
    HeldShard,
    RecordPublisherContract,
    RecordPublisherFactoryContract,
)
from kinesis_publishers.testing.fakes import (
    FakeControlPlane,
    FakeStream,
    publisher_context,
    sample_records,
    sample_shard,
)
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kinesis_publishers import PublisherContext, Record

# Makes a recording exist although the shards of a test are empty.
_ELSEWHERE = sample_shard(99)


class ReplaySubject(FactorySubject):
    """Each shard that is held is a file of one recording; a recording is never open."""

    factory_class = ReplayPublisherFactory

    def __init__(self, directory: Path, speed: str = "0") -> None:
        self.clock = ManualClock()
        self._speed = speed
        self._directory = directory
        self._stream = FakeStream([_ELSEWHERE])
        record(directory, _ELSEWHERE, sample_records(1, shard=_ELSEWHERE))

    @property
    def properties(self) -> Mapping[str, str]:
        return replaying(self._directory, speed=self._speed)

    @property
    def bad_properties(self) -> Sequence[Mapping[str, str]]:
        nowhere = {"kinesis.custom.replay.path": str(self._directory / "nowhere")}
        return [
            replaying(self._directory, speed="-1"),
            replaying(self._directory, sped="2"),
            {**self.properties, **nowhere},
            {key: one for key, one in self.properties.items() if not key.endswith(".path")},
        ]

    @property
    def context(self) -> PublisherContext:
        return publisher_context(control_plane=FakeControlPlane(self._stream), clock=self.clock)

    async def hold(self, records: Sequence[Record], *, is_open: bool = False) -> HeldShard:
        shard = sample_shard(len(self._stream.shards))
        self._stream.add(shard)
        kept = [one._replace(shard_id=shard.shard_id) for one in records]
        record(self._directory, shard, kept)
        return HeldShard(shard=shard, records=kept)


@pytest.fixture
def replay(tmp_path: Path) -> ReplaySubject:
    return ReplaySubject(tmp_path / "recording")


class TestReplayPublisher(RecordPublisherContract):
    @pytest.fixture
    def subject(self, replay: ReplaySubject) -> ReplaySubject:
        return replay


class TestReplayPublisherInTime(RecordPublisherContract):
    """With its timing a replay has several deliveries."""

    @pytest.fixture
    def subject(self, tmp_path: Path) -> ReplaySubject:
        return ReplaySubject(tmp_path / "recording", speed="1")

    async def test_its_lag_is_zero_only_at_the_tip(self, subject: ReplaySubject) -> None:
        pytest.skip("rows that are not due yet have not arrived: nothing is missing before them")


class TestReplayPublisherFactory(RecordPublisherFactoryContract):
    @pytest.fixture
    def subject(self, replay: ReplaySubject) -> ReplaySubject:
        return replay
