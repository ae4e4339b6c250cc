"""Every assigner of shards keeps the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.abc import ShardAssigner
from kinesis_publishers.checkpoints import CheckpointMemory
from kinesis_publishers.config import Properties
from kinesis_publishers.leases.assigners import AllShards, NamedShards
from kinesis_publishers.testing.contracts import AssignerSubject, ShardAssignerContract
from kinesis_publishers.testing.fakes import sample_shard, shard_name
from tests.unit.leases.lease_support import Worker

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kinesis_publishers import Shard, ShardKey
    from kinesis_publishers.testing.manual_clock import ManualClock

SHARDS = [sample_shard(number) for number in range(4)]


class EvenShards(ShardAssigner):
    """A third party's: every second shard."""

    def mine(self, startable: Sequence[Shard]) -> Collection[ShardKey]:
        return [one.key for one in startable if int(one.shard_id[-12:]) % 2 == 0]


class TestAllShards(ShardAssignerContract):
    @pytest.fixture
    def subject(self) -> AssignerSubject:
        return AssignerSubject(assigner=AllShards(), shards=SHARDS)


class TestNamedShards(ShardAssignerContract):
    @pytest.fixture
    def subject(self) -> AssignerSubject:
        properties = {"kinesis.shards": f"orders:{shard_name(1)}, orders:{shard_name(3)}"}
        assigner = NamedShards.from_properties(Properties.parse(properties, complete=False))
        return AssignerSubject(assigner=assigner, shards=SHARDS)


class TestCustom(ShardAssignerContract):
    @pytest.fixture
    def subject(self) -> AssignerSubject:
        return AssignerSubject(assigner=EvenShards(), shards=SHARDS)


class TestLeases(ShardAssignerContract):
    @pytest.fixture
    async def subject(self, manual_clock: ManualClock) -> AssignerSubject:
        memory = CheckpointMemory()
        other = await Worker.begin("other", memory, manual_clock, SHARDS[:1])
        await other.look()
        one = await Worker.begin("one", memory, manual_clock, SHARDS)
        return AssignerSubject(
            assigner=one.leases.shards, shards=SHARDS, settle=one.leases.taker.look
        )
