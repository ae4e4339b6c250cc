"""The duties of every assigner of shards, as tests for ours and for those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

import pytest
from attrs import field, frozen

from kinesis_publishers.abc import ShardAssigner, SharedReading
from kinesis_publishers.model import ChildShard, Shard, ShardKey
from kinesis_publishers.testing.contracts.subjects import let_others_run, missing_fixture

_UNKNOWN = ShardKey("arn:aws:kinesis:eu-west-1:123456789012:stream/other", "shardId-000000000099")


@frozen(kw_only=True)
class AssignerSubject:
    """An assigner under test.

    Attributes:
        shards: a listing of which it lets this process read some, but not necessarily all.
        settle: lets it do what it does by itself, until its answer stays the same.
    """

    assigner: ShardAssigner
    shards: Sequence[Shard]
    settle: Callable[[], Awaitable[None]] = field(default=let_others_run)

    @property
    def sharing(self) -> SharedReading:
        """How the assigner shares shards with other processes, which its interface does not say."""
        return SharedReading.of(self.assigner)

    async def mine(self) -> Collection[ShardKey]:
        """Return what it gives, asked as a fetcher asks."""
        there = [one for one in self.shards if self.assigner.reads(one)]
        self.assigner.mine(there)
        await self.settle()
        return self.assigner.mine(there)


class ShardAssignerContract:
    """The duties of every assigner. Override the fixture ``subject``."""

    subject = missing_fixture("AssignerSubject")

    async def test_it_gives_some_of_what_may_be_read(self, subject: AssignerSubject) -> None:
        mine = await subject.mine()
        assert mine, "mine() gave nothing of the subject's shards: choose others for this test"
        assert set(mine) <= {one.key for one in subject.shards}, "mine() gave unknown shards"
        rest = [one for one in subject.shards if one.key not in mine]
        assert not set(subject.assigner.mine(rest)) & set(mine), (
            "mine() gave shards that it was not asked for: their parents are still being read"
        )
        assert not subject.assigner.mine([])

    async def test_the_answer_stays_while_nothing_changes(self, subject: AssignerSubject) -> None:
        first = set(await subject.mine())
        changes: list[bool] = []
        subject.assigner.on_change(lambda: changes.append(True))
        await subject.settle()
        assert set(await subject.mine()) == first or changes, (
            "mine() gave another answer, and the function that on_change() was given was not called"
        )

    async def test_what_exists_for_it_never_changes(self, subject: AssignerSubject) -> None:
        subject.assigner.check_listing(subject.shards)
        before = [subject.assigner.reads(one) for one in subject.shards]
        await subject.mine()
        assert [subject.assigner.reads(one) for one in subject.shards] == before

    async def test_what_it_gave_may_be_delivered(self, subject: AssignerSubject) -> None:
        mine = await subject.mine()
        for key in mine:
            assert subject.sharing.may_deliver(key), f"mine() gave {key}, may_deliver() did not"
            # Without a turn of the event loop: this is in the path of every delivery.
            waiting = subject.sharing.permission(key)
            with pytest.raises(StopIteration):
                waiting.send(None)
        assert not subject.sharing.known_progress().keys() & set(mine), (
            "known_progress() is that of other processes: of its own shards this one knows more"
        )

    async def test_it_is_told_what_it_may_not_know(self, subject: AssignerSubject) -> None:
        # A shard may be taken away while it is being delivered.
        before = set(await subject.mine())
        subject.sharing.note_delivery(_UNKNOWN, 100)
        child = ChildShard(
            shard_id="shardId-000000000100",
            parent_shard_ids=(_UNKNOWN.shard_id,),
            starting_hash_key="0",
            ending_hash_key="9",
        )
        subject.sharing.note_children(_UNKNOWN, [child])
        await subject.sharing.release([_UNKNOWN])
        assert _UNKNOWN not in subject.sharing.leaving()
        assert set(await subject.mine()) == before

    async def test_waiting_can_be_cancelled(self, subject: AssignerSubject) -> None:
        await subject.mine()
        if subject.sharing.may_deliver(_UNKNOWN):
            pytest.skip("it never makes anyone wait")
        waiting = asyncio.ensure_future(subject.sharing.permission(_UNKNOWN))
        await asyncio.sleep(0)
        assert not waiting.done(), "permission() was given for what may not be delivered"
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
