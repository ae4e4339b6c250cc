"""The duties of every store of checkpoints, as tests for ours and for those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import pytest
from attrs import evolve

from kinesis_publishers.abc import CheckpointStore, CheckpointStoreContext
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.errors import ClosedError, StaleCheckpointError
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointVersion,
    CheckpointWrite,
    HashRange,
    Lease,
    SequenceNumber,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StoredCheckpoint,
)
from kinesis_publishers.retry import RetryPolicy
from kinesis_publishers.testing.contracts.subjects import missing_fixture

NewStore: TypeAlias = Callable[[str], CheckpointStore]

_ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
_KEY = ShardKey(_ARN, "shardId-000000000007")
_INSTANT = datetime(2026, 5, 31, 13, 45, 30, 123457, tzinfo=UTC)
_LONG = SequenceNumber("49590338271490256608559692538361571095921575989136588898")
_POSITIONS = (
    StartingPosition.trim_horizon(),
    StartingPosition.at_timestamp(_INSTANT),
    StartingPosition.at(SequenceNumber("7")),
    StartingPosition.at(evolve(_LONG, sub_sequence_number=0)),
    StartingPosition.at(evolve(_LONG, sub_sequence_number=12_345)),
    StartingPosition.after(_LONG),
)
_MOST_ATTEMPTS = 20
# Enough turns of the event loop for a call to be anywhere between its first step and its end.
_TURNS_BEFORE_CANCELLING = (0, 1, 2, 4, 8, 16, 32)


def store_context(application: str) -> CheckpointStoreContext:
    """Return the context of a store under test: short delays, and this machine's clock."""
    return CheckpointStoreContext(
        application=application,
        retry=RetryPolicy(max_retries=20, base_seconds=0.02, max_seconds=0.2, exponent=1.5),
        clock=SystemClock(),
    )


def _checkpoint(number: int = 1, key: ShardKey = _KEY) -> Checkpoint:
    position = StartingPosition.after(SequenceNumber(str(number)))
    return Checkpoint(
        shard=key,
        stream_created_at=_INSTANT - timedelta(days=3),
        progress=ShardProgress(position=position, as_of=_INSTANT),
    )


def _write(
    number: int = 1, expected: CheckpointVersion | None = None, key: ShardKey = _KEY
) -> CheckpointWrite:
    return CheckpointWrite(checkpoint=_checkpoint(number, key), expected=expected)


async def _save(
    store: CheckpointStore, number: int, expected: CheckpointVersion | None = None
) -> CheckpointVersion:
    return (await store.save([_write(number, expected)]))[_KEY]


async def _cancel_write(
    store: CheckpointStore, key: ShardKey, turns: int, *, is_first: bool
) -> CheckpointVersion | None:
    """Cancel a write after some turns of the event loop; return the version its writer knows."""
    known = None if is_first else (await store.save([_write(1, key=key)]))[key]
    task = asyncio.ensure_future(store.save([_write(2, known, key)]))
    for _ in range(turns):
        await asyncio.sleep(0)
    if not task.cancel():
        return task.result()[key]
    # Swallowed, it would keep alive a worker that was asked to stop.
    with pytest.raises(asyncio.CancelledError):
        await task
    return known


async def _overtake(store: CheckpointStore, number: int, key: ShardKey) -> None:
    """Write over any version; a write that was cancelled may still be on its way."""
    for _ in range(_MOST_ATTEMPTS):
        found = (await store.load()).get(key)
        try:
            await store.save([_write(number, None if found is None else found.version, key)])
        except StaleCheckpointError:
            continue
        return
    raise AssertionError(f"{_MOST_ATTEMPTS} times what was loaded was stale when it was replaced")


async def _stored(store: CheckpointStore, key: ShardKey = _KEY) -> Checkpoint | None:
    found = (await store.load()).get(key)
    return None if found is None else found.checkpoint


def _shard(number: int) -> ShardKey:
    return ShardKey(_ARN, f"shardId-{number:012}")


class CheckpointStoreContract:
    """The duties of every store of checkpoints. Override the fixture ``new_store``.

    It returns a function that makes a store, not open yet, for the application of a name. All
    stores that it makes in one test have the same storage, which is empty when the test begins;
    each is another writer.
    """

    new_store = missing_fixture("function from an application to a CheckpointStore", "new_store")

    async def test_an_application_begins_without_checkpoints(self, new_store: NewStore) -> None:
        async with new_store("billing") as store:
            assert await store.load() == {}
            assert await store.save([]) == {}
            await store.remove({})

    async def test_the_next_store_loads_what_was_written(self, new_store: NewStore) -> None:
        progress = [
            ShardProgress(position=position, as_of=as_of, is_ended=is_ended)
            for position in _POSITIONS
            for as_of in (None, _INSTANT)
            for is_ended in (False, True)
        ]
        written = {
            _shard(number): evolve(_checkpoint(key=_shard(number)), progress=one)
            for number, one in enumerate(progress)
        }
        async with new_store("billing") as store:
            versions = await store.save(
                [CheckpointWrite(checkpoint=one) for one in written.values()]
            )
        async with new_store("billing") as store:
            found = await store.load()
        assert {key: one.checkpoint for key, one in found.items()} == written
        assert {key: one.version for key, one in found.items()} == versions

    async def test_leases_are_kept_with_their_checkpoints(self, new_store: NewStore) -> None:
        first = Lease(parents=("shardId-000000000001",), hash_range=HashRange(0, 2**127 - 1))
        taken = evolve(first, owner="worker-1", switches=3, bytes_per_second=1234)
        asked = evolve(
            taken,
            owner="worker-2",
            leaving="worker-1",
            settle_seconds=4,
            consumer_arn=f"{_ARN}/consumer/billing:1",
        )
        ended = evolve(
            taken, children=("shardId-000000000008", "shardId-000000000009"), hash_range=None
        )
        released = evolve(taken, owner=None)
        async with new_store("billing") as store, new_store("billing") as other:
            version = None
            for number, lease in enumerate((first, taken, asked, ended, released, None)):
                written = evolve(_checkpoint(number), lease=lease)
                write = CheckpointWrite(checkpoint=written, expected=version)
                version = (await store.save([write]))[_KEY]
                assert (await other.load())[_KEY] == StoredCheckpoint(
                    checkpoint=written, version=version
                )

    async def test_a_writer_with_the_version_replaces_it(self, new_store: NewStore) -> None:
        async with new_store("billing") as first, new_store("billing") as second:
            one = await _save(first, 1)
            two = await _save(first, 2, one)
            three = await _save(second, 3, two)
            assert len({one, two, three}) == 3
            assert await _stored(first) == _checkpoint(3)

    async def test_a_stale_writer_is_refused_and_told_what_to_do(self, new_store: NewStore) -> None:
        async with new_store("billing") as stale, new_store("billing") as other:
            known = await _save(stale, 1)
            await _save(other, 5, known)
            with pytest.raises(StaleCheckpointError) as raised:
                await _save(stale, 9, known)
            with pytest.raises(StaleCheckpointError):
                await _save(other, 9, known)
            for part in ("billing", _ARN, _KEY.shard_id, "kinesis.checkpoint.application"):
                assert part in str(raised.value)
            assert await _stored(stale) == _checkpoint(5)

    async def test_a_second_writer_does_not_begin_again(self, new_store: NewStore) -> None:
        async with new_store("billing") as first, new_store("billing") as second:
            await _save(first, 1)
            with pytest.raises(StaleCheckpointError):
                await _save(second, 2)
            assert await _stored(second) == _checkpoint(1)

    async def test_of_writers_that_race_exactly_one_succeeds(self, new_store: NewStore) -> None:
        async with AsyncExitStack() as opened:
            stores = [await opened.enter_async_context(new_store("billing")) for _ in range(4)]
            version = await _save(stores[0], 1)
            for turn in range(5):
                results = await asyncio.gather(
                    *(
                        _save(store, 10 * turn + number + 2, version)
                        for number, store in enumerate(stores)
                    ),
                    return_exceptions=True,
                )
                won = [one for one in results if isinstance(one, CheckpointVersion)]
                lost = [one for one in results if isinstance(one, StaleCheckpointError)]
                assert (len(won), len(lost)) == (1, len(stores) - 1), results
                winner = next(n for n, one in enumerate(results) if one == won[0])
                assert await _stored(stores[0]) == _checkpoint(10 * turn + winner + 2)
                version = won[0]

    async def test_a_batch_of_many_shards_is_written(self, new_store: NewStore) -> None:
        keys = [_shard(number) for number in range(100)]
        async with new_store("billing") as store:
            versions = await store.save([_write(1, key=key) for key in keys])
            await store.save([_write(2, versions[key], key) for key in keys])
            found = await store.load()
        assert {key: one.checkpoint for key, one in found.items()} == {
            key: _checkpoint(2, key) for key in keys
        }

    async def test_one_stale_write_fails_alone(self, new_store: NewStore) -> None:
        keys = [_shard(number) for number in range(30)]
        contended = keys[7]
        async with new_store("billing") as store, new_store("billing") as other:
            versions = dict(await store.save([_write(1, key=key) for key in keys]))
            theirs = await other.save([_write(5, versions[contended], contended)])
            batch = [_write(2, versions[key], key) for key in keys]
            with pytest.raises(StaleCheckpointError, match=contended.shard_id) as refused:
                await store.save(batch)
            for key in keys:
                number = 5 if key == contended else 2
                assert await _stored(other, key) == _checkpoint(number, key)
            found = {key: one.version for key, one in (await other.load()).items()}
            assert refused.value.written == {key: found[key] for key in keys if key != contended}
            # A caller that has not looked at that may write them again with the old ones.
            await store.save([_write(3, {**versions, **theirs}[key], key) for key in keys])

    @pytest.mark.parametrize("is_first", [True, False], ids=["first write", "later write"])
    async def test_a_write_of_unknown_outcome_may_be_repeated_unless_overtaken(
        self, new_store: NewStore, is_first: bool
    ) -> None:
        async with new_store("billing") as store, new_store("billing") as other:
            for turns in _TURNS_BEFORE_CANCELLING:
                key, overtaken = _shard(turns), _shard(100 + turns)
                known = await _cancel_write(store, key, turns, is_first=is_first)
                await store.save([_write(3, known, key)])
                assert await _stored(store, key) == _checkpoint(3, key)
                known = await _cancel_write(store, overtaken, turns, is_first=is_first)
                await _overtake(other, 5, overtaken)
                with pytest.raises(StaleCheckpointError, match=overtaken.shard_id):
                    await store.save([_write(3, known, overtaken)])
                assert await _stored(store, overtaken) == _checkpoint(5, overtaken)

    async def test_applications_do_not_see_each_other(self, new_store: NewStore) -> None:
        async with new_store("billing") as billing, new_store("reports") as reports:
            version = await _save(billing, 1)
            await _save(reports, 2)
            await billing.remove({_KEY: version})
            assert await _stored(billing) is None
            assert await _stored(reports) == _checkpoint(2)

    async def test_equal_shard_ids_of_streams_are_told_apart(self, new_store: NewStore) -> None:
        others = [
            ShardKey(arn, _KEY.shard_id)
            for arn in (f"{_ARN}2", _ARN.replace("eu-west-1", "eu-west-2"))
        ]
        whole_stream = ShardKey(_ARN, "*")
        keys = [_KEY, *others, whole_stream]
        async with new_store("billing") as store:
            await store.save([_write(number + 1, key=key) for number, key in enumerate(keys)])
            for number, key in enumerate(keys):
                assert await _stored(store, key) == _checkpoint(number + 1, key)

    async def test_removing_twice_is_like_removing_once(self, new_store: NewStore) -> None:
        async with new_store("billing") as store:
            versions = await store.save([_write(1, key=key) for key in (_KEY, _shard(8))])
            removed = {_KEY: versions[_KEY]}
            await store.remove(removed)
            await store.remove(removed)
            assert set(await store.load()) == {_shard(8)}

    async def test_a_checkpoint_that_has_moved_on_is_not_removed(self, new_store: NewStore) -> None:
        async with new_store("billing") as stale, new_store("billing") as other:
            known = await stale.save([_write(1), _write(1, key=_shard(8))])
            await _save(other, 2, known[_KEY])
            with pytest.raises(StaleCheckpointError):
                await stale.remove(known)
            assert await _stored(stale) == _checkpoint(2)
            assert await _stored(stale, _shard(8)) is None

    async def test_a_removal_makes_old_versions_stale(self, new_store: NewStore) -> None:
        async with new_store("billing") as store, new_store("billing") as stale:
            old = await _save(store, 1)
            await store.remove({_KEY: old})
            with pytest.raises(StaleCheckpointError):
                await _save(stale, 7, old)
            await _save(store, 2)
            with pytest.raises(StaleCheckpointError):
                await _save(stale, 7, old)
            assert await _stored(store) == _checkpoint(2)

    async def test_a_closed_store_is_not_used(self, new_store: NewStore) -> None:
        store = new_store("billing")
        async with store:
            version = await _save(store, 1)
        with pytest.raises(ClosedError):
            await store.load()
        with pytest.raises(ClosedError):
            await _save(store, 2, version)
        with pytest.raises(ClosedError):
            await store.remove({_KEY: version})
