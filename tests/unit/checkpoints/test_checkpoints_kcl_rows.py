"""What the rows of the KCL's lease table mean to us, and what ours mean to the KCL."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve

from kinesis_publishers import SequenceNumber, ShardKey, ShardProgress, StartingPosition
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointVersion,
    HashRange,
    Lease,
    Positions,
    Scope,
    StoredCheckpoint,
)
from kinesis_publishers.testing.contracts.checkpoint_store import store_context
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.checkpoints.kcl_support import (
    AFTER,
    CREATED_AT,
    NUMBER,
    ORDERS,
    ORDERS_KEY,
    PAYMENTS,
    SHARD,
    KclTable,
    lease_item,
    write_of,
)

INSTANT = datetime(2026, 6, 1, 12, 0, 0, 250_000, tzinfo=UTC)
AT_INSTANT = ShardProgress(position=StartingPosition.at_timestamp(INSTANT), as_of=INSTANT)
BEGINNING = ShardProgress(position=StartingPosition.trim_horizon())
MARK = ShardKey(ORDERS.arn, "*")


def at(sub: int | None) -> ShardProgress:
    return ShardProgress(position=StartingPosition.at(SequenceNumber(NUMBER, sub)))


BEGINS = Positions(StartingPosition.at_timestamp(INSTANT))


async def load(table: KclTable, **settings: Any) -> StoredCheckpoint:
    async with table.store(**settings) as store:
        return (await store.load())[SHARD]


async def save(
    table: KclTable,
    progress: ShardProgress = AFTER,
    lease: Lease | None = None,
    **settings: Any,
) -> dict[str, dict[str, Any]]:
    """Write over what is stored; return the row."""
    async with table.store(**settings) as store:
        known = (await store.load()).get(SHARD)
        await store.save([write_of(progress, lease, known.version if known else None)])
    return table.row()


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.message for one in caplog.records if one.levelno == logging.WARNING]


async def test_a_lease_of_the_kcl_is_read(table: KclTable) -> None:
    table.put(lease_item(childShardIds={"SS": ["shardId-000000000005", "shardId-000000000004"]}))
    stored = await load(table)
    lease = Lease(
        owner="kcl-worker-1",
        switches=2,
        parents=("shardId-000000000000", "shardId-000000000001"),
        children=("shardId-000000000004", "shardId-000000000005"),
        hash_range=HashRange(0, 2**127 - 1),
        bytes_per_second=1281,
    )
    assert stored.checkpoint == Checkpoint(
        shard=SHARD, stream_created_at=CREATED_AT, progress=at(0), lease=lease
    )
    assert stored.version == CheckpointVersion(number=41, writer='KCL ["kcl-worker-1", null]')
    assert stored.version.is_foreign


async def test_a_lease_of_an_older_version_that_nobody_has_is_read(table: KclTable) -> None:
    later = ("leaseOwner", "startingHashKey", "endingHashKey", "throughputKBps", "entityType")
    table.put(lease_item(**dict.fromkeys((*later, "parentShardId"))))
    assert (await load(table)).checkpoint.lease == Lease(switches=2)


@pytest.mark.parametrize(
    ("text", "sub", "progress"),
    [
        ("TRIM_HORIZON", 0, BEGINNING),
        (NUMBER, 0, at(0)),
        (NUMBER, 41, at(41)),
        (NUMBER, -1, at(None)),
        (NUMBER, 2**31 - 1, AFTER),
        (NUMBER, 2**63 - 1, AFTER),
        ("SHARD_END", 0, evolve(BEGINNING, is_ended=True)),
    ],
)
async def test_a_checkpoint_is_the_last_record_that_was_processed(
    table: KclTable, text: str, sub: int, progress: ShardProgress
) -> None:
    table.put(lease_item(checkpoint={"S": text}, checkpointSubSequenceNumber={"N": str(sub)}))
    assert (await load(table)).checkpoint.progress == progress


async def test_a_shard_at_latest_begins_where_it_was_first_seen(table: KclTable) -> None:
    clock = ManualClock()
    table.put(lease_item(checkpoint={"S": "LATEST"}))
    async with table.store(context=evolve(store_context("billing"), clock=clock)) as store:
        (first, _) = (await store.load()).values()
        await clock.advance(60)
        stored = (await store.load())[SHARD]
        assert stored == first
        pinned = stored.checkpoint.progress
        assert pinned.position == StartingPosition.at_timestamp(clock.now() - timedelta(minutes=1))
        await store.save([write_of(pinned, expected=stored.version)])
    item = table.row()
    assert item["checkpoint"] == {"S": "LATEST"}
    assert (await load(table)).checkpoint.progress == pinned


async def test_a_shard_at_a_timestamp_begins_at_the_one_in_the_configuration(
    table: KclTable, caplog: pytest.LogCaptureFixture
) -> None:
    table.put(lease_item(checkpoint={"S": "AT_TIMESTAMP"}))
    found = await load(table, initial=BEGINS)
    assert found.checkpoint.progress == evolve(AT_INSTANT, as_of=None)
    assert warnings_in(caplog) == []
    async with table.store() as store:
        for _ in range(2):
            assert (await store.load())[SHARD].checkpoint.progress == BEGINNING
    (warning,) = warnings_in(caplog)
    assert "Set kinesis.stream.initpos = AT_TIMESTAMP" in warning


async def test_a_row_of_ours_is_one_of_the_kcl(table: KclTable) -> None:
    lease = Lease(
        owner="ours-1",
        switches=1,
        parents=("shardId-000000000000", "shardId-000000000001"),
        hash_range=HashRange(2**127, 2**128 - 1),
        bytes_per_second=512,
    )
    item = await save(table, lease=lease)
    assert {name: item.pop(name).keys() for name in ("kpWriter", "kpState")} == {
        "kpWriter": {"S"},
        "kpState": {"S"},
    }
    assert sorted(item.pop("parentShardId")["SS"]) == sorted(lease.parents)
    assert float(item.pop("throughputKBps")["N"]) == 0.5
    assert item == {
        "leaseKey": {"S": SHARD.shard_id},
        "leaseOwner": {"S": "ours-1"},
        "leaseCounter": {"N": "1"},
        "ownerSwitchesSinceCheckpoint": {"N": "1"},
        "checkpoint": {"S": NUMBER},
        "checkpointSubSequenceNumber": {"N": "2147483647"},
        "startingHashKey": {"S": str(2**127)},
        "endingHashKey": {"S": str(2**128 - 1)},
        "entityType": {"S": "LEASE"},
        "kpCounter": {"N": "1"},
    }


@pytest.mark.parametrize(
    ("progress", "text", "sub"),
    [
        (BEGINNING, "TRIM_HORIZON", "0"),
        (AT_INSTANT, "LATEST", "0"),
        (at(None), NUMBER, "-1"),
        (at(0), NUMBER, "0"),
        (at(12_345), NUMBER, "12345"),
        (AFTER, NUMBER, "2147483647"),
        (evolve(AFTER, is_ended=True), "SHARD_END", "0"),
    ],
)
async def test_a_place_of_ours_is_one_of_the_kcl_and_comes_back(
    table: KclTable, progress: ShardProgress, text: str, sub: str
) -> None:
    item = await save(table, progress)
    assert item["checkpoint"] == {"S": text}
    assert item["checkpointSubSequenceNumber"] == {"N": sub}
    assert (await load(table)).checkpoint.progress == progress


async def test_the_instant_in_the_configuration_is_at_timestamp(table: KclTable) -> None:
    """So is it in that of the KCL, which would fail with another initial position."""
    item = await save(table, AT_INSTANT, initial=BEGINS)
    assert item["checkpoint"] == {"S": "AT_TIMESTAMP"}
    assert (await load(table)).checkpoint.progress == AT_INSTANT


async def test_each_stream_has_its_own_instant_in_the_configuration(table: KclTable) -> None:
    own = {Scope(SHARD.stream_name): StartingPosition.at_timestamp(INSTANT)}
    initial = Positions(StartingPosition.latest(), own)
    item = await save(table, AT_INSTANT, initial=initial)
    assert item["checkpoint"] == {"S": "AT_TIMESTAMP"}
    table.put(lease_item(checkpoint={"S": "AT_TIMESTAMP"}))
    found = await load(table, initial=initial)
    assert found.checkpoint.progress.position == AT_INSTANT.position


async def test_what_others_have_added_survives_a_write(table: KclTable) -> None:
    foreign = {"tier": {"S": "gold"}, "checksum": {"B": b"\x00\xff"}, "streak": {"L": [{"N": "1"}]}}
    kept = lease_item(leaseOwner=None, checkpointOwner=None, **foreign)
    others = [
        {"leaseKey": {"S": "Leader"}, "entityType": {"S": "LEADER"}, "leaderTerm": {"N": "7"}},
        {
            "leaseKey": {"S": "WORKER_METRIC#w1"},
            "entityType": {"S": "WORKER_METRIC_STATS"},
            "sts": {"M": {"C": {"L": [{"N": "0.5"}]}}},
        },
    ]
    table.put(kept, *others)
    async with table.store() as store:
        found = await store.load()
        assert set(found) == {SHARD, MARK}
        version = found[SHARD].version
        lease = Lease(owner="ours-1", leaving="kcl-worker-1", switches=3)
        version = (await store.save([write_of(lease=lease, expected=version)]))[SHARD]
        await store.save([write_of(lease=Lease(switches=3), expected=version)])
    item = table.row()
    ours = {name for name in item if name.startswith("kp")}
    assert ours == {"kpWriter", "kpCounter", "kpState"}
    assert {name: value for name, value in item.items() if name not in ours} == kept | {
        "leaseCounter": {"N": "43"},
        "ownerSwitchesSinceCheckpoint": {"N": "3"},
        "checkpointSubSequenceNumber": {"N": "2147483647"},
    }
    assert [table.get(other["leaseKey"]["S"]) for other in others] == others


@pytest.mark.parametrize("switches", [0, 1])
async def test_a_prepared_checkpoint_is_over_with_the_next_owner_s_first(
    table: KclTable, switches: int
) -> None:
    pending = {
        "pendingCheckpoint": {"S": f"{NUMBER}1"},
        "pendingCheckpointSubSequenceNumber": {"N": "0"},
        "pendingCheckpointState": {"B": b"state"},
    }
    table.put(lease_item(**pending))
    item = await save(table, lease=Lease(owner="ours-1", switches=switches))
    kept = {name: value for name, value in item.items() if name in pending}
    assert kept == (pending if switches else {})


async def test_the_range_of_one_key_is_left_out_for_the_kcl_cannot_read_it(table: KclTable) -> None:
    item = await save(table, lease=Lease(hash_range=HashRange(5, 5)))
    assert not {"startingHashKey", "endingHashKey"} & item.keys()


async def test_a_place_of_ours_counts_until_the_kcl_has_made_a_checkpoint(table: KclTable) -> None:
    lease = Lease(owner="ours-1", settle_seconds=4, consumer_arn=f"{ORDERS.arn}/consumer/c:1")
    await save(table, AT_INSTANT, lease)
    assert (await load(table)).checkpoint.lease == lease
    table.update(leaseOwner={"S": "kcl-worker-1"})
    taken = (await load(table)).checkpoint
    assert taken.progress == AT_INSTANT
    assert taken.lease == evolve(lease, owner="kcl-worker-1", settle_seconds=0)
    table.update(checkpoint={"S": NUMBER}, checkpointSubSequenceNumber={"N": "3"})
    assert (await load(table)).checkpoint.progress == at(3)


async def test_a_row_without_a_lease_has_one_once_the_kcl_has_written_it(table: KclTable) -> None:
    await save(table, AFTER)
    assert (await load(table)).checkpoint.lease is None
    table.update(leaseOwner={"S": "kcl-worker-1"})
    assert (await load(table)).checkpoint.lease == Lease(owner="kcl-worker-1")


async def test_leases_of_several_streams_are_told_apart_by_their_keys(
    table: KclTable, caplog: pytest.LogCaptureFixture
) -> None:
    named = {"streamName": {"S": ORDERS_KEY}, "shardId": {"S": SHARD.shard_id}}
    former = "123456789012:orders:1700000000"
    table.put(
        lease_item(f"{ORDERS_KEY}:{SHARD.shard_id}", **named),
        lease_item(f"{former}:{SHARD.shard_id}", **named | {"streamName": {"S": former}}),
    )
    new = ShardKey(PAYMENTS.arn, SHARD.shard_id)
    async with table.store(ORDERS, PAYMENTS) as store:
        for _ in range(2):
            found = await store.load()
        assert set(found) == {SHARD, MARK}
        assert found[SHARD].checkpoint.stream_created_at == CREATED_AT
        known = found[SHARD].version
        await store.save([write_of(expected=known), write_of(shard=new)])
        assert set(await store.load()) == {SHARD, MARK, new, ShardKey(PAYMENTS.arn, "*")}
    (warning,) = warnings_in(caplog)
    assert f"leases of {former} (account, stream, creation), which is not among" in warning
    item = table.row(f"123456789012:payments:1779960600:{SHARD.shard_id}")
    assert item["streamName"] == {"S": "123456789012:payments:1779960600"}
    assert item["shardId"] == {"S": SHARD.shard_id}
    old = table.row(f"{former}:{SHARD.shard_id}")
    assert "kpWriter" not in old


@pytest.mark.parametrize("creation", [1, 1_700_000_000, 1_700_000_000_000])
async def test_leases_of_a_former_stream_are_of_one_that_was_created_then(
    table: KclTable, creation: int
) -> None:
    """So the reader is told that the stream was created again; the KCL may have been told more."""
    former = f"123456789012:orders:{creation}"
    table.put(
        lease_item(f"{former}:{SHARD.shard_id}"), lease_item(f"123456789012:orders:0:{NUMBER}")
    )
    child = ShardKey(ORDERS.arn, "shardId-000000000009")
    async with table.store() as store:
        found = await store.load()
        assert set(found) == {SHARD, MARK}
        (created_at,) = {one.checkpoint.stream_created_at for one in found.values()}
        assert created_at == datetime.fromtimestamp(min(creation, 253_402_300_799), UTC)
        await store.save([write_of(expected=found[SHARD].version), write_of(shard=child)])
        assert (await store.load())[SHARD].checkpoint.stream_created_at == CREATED_AT
    assert table.get(f"{former}:{child.shard_id}")


async def test_new_rows_of_one_stream_have_the_keys_that_the_others_have(table: KclTable) -> None:
    table.put(lease_item(f"{ORDERS_KEY}:shardId-000000000001"))
    async with table.store() as store:
        await store.load()
        await store.save([write_of()])
    assert table.get(f"{ORDERS_KEY}:{SHARD.shard_id}")
    assert table.get(SHARD.shard_id) is None


async def test_rows_of_one_stream_keep_their_keys_when_another_one_is_read_too(
    table: KclTable,
) -> None:
    await save(table)
    async with table.store(ORDERS, PAYMENTS) as store:
        known = (await store.load())[SHARD].version
        await store.save([write_of(expected=known)])
        assert set(await store.load()) == {SHARD, MARK}


async def test_a_stream_with_a_row_was_begun_and_the_mark_of_it_is_not_stored(
    table: KclTable,
) -> None:
    async with table.store() as store, table.store() as other:
        assert await store.load() == {}
        mark = write_of(BEGINNING, shard=MARK)
        versions = await store.save([mark, write_of()])
        found = await store.load()
        assert found[MARK].checkpoint == mark.checkpoint
        assert (await other.load())[MARK].checkpoint == mark.checkpoint
        await other.save([evolve(mark, expected=(await other.load())[MARK].version)])
        await store.remove(versions)
        assert await store.load() == {}
    assert table.get("*") is None


async def test_a_stream_that_was_created_again_is_the_one_of_its_rows(table: KclTable) -> None:
    await save(table)
    again = evolve(ORDERS, created_at=CREATED_AT + timedelta(days=2))
    async with table.store(again) as store:
        found = await store.load()
    assert {one.checkpoint.stream_created_at for one in found.values()} == {CREATED_AT}
    item = table.row()
    assert json.loads(item["kpState"]["S"])["stream"] == ORDERS.arn
